"""A tree inside a graph, from its centre: the way of a sum through a network.

Every agent computes the same tree from the same graph, so nobody has to agree on anything. A sum goes up the tree to
the root and down again: twice its height in hops.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from consilience.errors import GraphError
from consilience.graphs.graph import Graph

NOBODY = -1
"""The parent of the root."""


class SpanningTree(NamedTuple):
    """Who reports to whom.

    Attributes:
        root: the agent where sums are complete.
        parent: of each agent; the root's is -1.
        children: of each agent, in ascending order.
        depth: of each agent, in hops from the root.
    """

    root: int
    parent: tuple[int, ...]
    children: tuple[tuple[int, ...], ...]
    depth: tuple[int, ...]

    @property
    def height(self) -> int:
        """Hops from the root to the farthest agent."""
        return max(self.depth)


def spanning_tree(graph: Graph) -> SpanningTree:
    """The breadth-first tree from the graph's centre, neighbours in ascending order.

    >>> from consilience.graphs.families import path
    >>> tree = spanning_tree(path(5))
    >>> tree.root, tree.parent, tree.children[2], tree.height
    (2, (1, 2, -1, 2, 3), (1, 3), 2)
    """
    from scipy.sparse.csgraph import breadth_first_order

    root = centre(graph)
    order, before = breadth_first_order(_adjacency(graph), root, directed=False)
    if len(order) < graph.num_agents:
        raise GraphError(
            f"agent {root} reaches {len(order)} of {graph.num_agents} agents: a sum needs all, add edges between the "
            "graph's parts"
        )
    parent, depth = [NOBODY] * graph.num_agents, [0] * graph.num_agents
    children: list[list[int]] = [[] for _ in range(graph.num_agents)]
    for agent in order.tolist()[1:]:
        parent[agent] = int(before[agent])
        depth[agent] = depth[parent[agent]] + 1
        children[parent[agent]].append(agent)
    return SpanningTree(root, tuple(parent), tuple(tuple(sorted(one)) for one in children), tuple(depth))


def num_hops(graph: Graph, summation: str | None = "tree") -> int:
    """Hops of a sum: up the tree and down again; if parts are flooded, as far as the farthest two are apart.

    >>> from consilience.graphs.families import ring
    >>> num_hops(ring(5)), num_hops(ring(5), "flood")
    (4, 2)
    """
    if summation != "flood":
        return 2 * spanning_tree(graph).height
    from scipy.sparse.csgraph import shortest_path

    return int(shortest_path(_adjacency(graph), directed=False, unweighted=True).max())


def centre(graph: Graph) -> int:
    """The agent from which the farthest other is nearest; among several, the smallest number.

    Distances `d` from one agent with eccentricity `e` bound those of all: `max(d, e − d) ≤ e_j`. Agents that so
    cannot be the centre are never looked at, which leaves a few of most graphs, and half of a ring.

    >>> from consilience.graphs.families import path, ring
    >>> centre(path(6)), centre(ring(6))
    (2, 0)
    """
    from scipy.sparse.csgraph import dijkstra

    adjacency, numbers = _adjacency(graph), np.arange(graph.num_agents)
    least = np.zeros(graph.num_agents)
    best = (np.inf, -1)
    open_ = np.ones(graph.num_agents, bool)
    while open_.any():
        candidates = numbers[open_]
        agent = int(candidates[least[candidates].argmin()])
        distances = dijkstra(adjacency, directed=False, indices=agent, unweighted=True)
        farthest = float(distances.max())
        best = min(best, (farthest, agent))
        least = np.maximum(least, np.maximum(distances, farthest - distances))
        open_[agent] = False
        open_ &= (least < best[0]) | ((least == best[0]) & (numbers < best[1]))
    return best[1]


def _adjacency(graph: Graph) -> object:
    """The graph without its weights, columns ascending."""
    import scipy.sparse

    i, j = graph.edges.T
    ends = np.concatenate([i, j]), np.concatenate([j, i])
    found = scipy.sparse.csr_array((np.ones(len(ends[0])), ends), shape=(graph.num_agents,) * 2)
    found.sort_indices()
    return found
