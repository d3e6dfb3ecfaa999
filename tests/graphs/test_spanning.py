"""The tree of a sum: the same at every agent, as flat as the graph allows, along its edges only."""

import networkx
import pytest

import consilience as cs
from consilience.graphs.spanning import centre, num_hops, spanning_tree

GRAPHS = [
    cs.graphs.path(1), cs.graphs.path(2), cs.graphs.path(7), cs.graphs.star(9), cs.graphs.ring(8),
    cs.graphs.barbell(9), cs.graphs.complete(6), cs.graphs.grid(4, 5), cs.graphs.watts_strogatz(40, seed=3),
    cs.graphs.erdos_renyi(30, seed=1),
]  # fmt: skip


def as_networkx(graph):
    found = networkx.Graph(graph.edges.tolist())
    found.add_nodes_from(range(graph.num_agents))
    return found


@pytest.mark.parametrize("graph", GRAPHS, ids=repr)
def test_the_centre_is_the_smallest_of_the_graphs_centre(graph):
    assert centre(graph) == min(networkx.center(as_networkx(graph)))


@pytest.mark.parametrize("graph", GRAPHS, ids=repr)
def test_the_tree_is_breadth_first_along_edges(graph):
    tree, whole = spanning_tree(graph), as_networkx(graph)
    distances = networkx.single_source_shortest_path_length(whole, tree.root)
    assert list(tree.depth) == [distances[agent] for agent in range(graph.num_agents)]
    assert [agent for agent, parent in enumerate(tree.parent) if parent == -1] == [tree.root]
    for agent, parent in enumerate(tree.parent):
        if agent != tree.root:
            assert whole.has_edge(agent, parent)
            assert agent in tree.children[parent]
    assert sum(map(len, tree.children)) == graph.num_agents - 1
    assert num_hops(graph) == 2 * networkx.radius(whole)
    assert num_hops(graph, "flood") == networkx.diameter(whole)


def test_weights_do_not_matter():
    graph = cs.graphs.ring(6)
    assert spanning_tree(graph.with_weights([0.1, 5.0, 0.1, 2.0, 1.0, 1.0])) == spanning_tree(graph)
