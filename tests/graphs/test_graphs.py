import math

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience import graphs
from consilience.errors import GraphError

FAMILIES = sorted(set(graphs.FAMILIES) - {"edges"})


def test_spectrum_of_a_ring_is_the_known_one():
    graph = graphs.ring(7)
    eigenvalues = 2 - 2 * np.cos(2 * np.pi * np.arange(7) / 7)
    assert graph.largest_eigenvalue == pytest.approx(eigenvalues.max())
    assert graph.algebraic_connectivity == pytest.approx(np.sort(eigenvalues)[1])
    assert graph.stable_consensus_limit == pytest.approx(2 / eigenvalues.max())


@pytest.mark.parametrize(
    ("graph", "second", "largest"),
    [(graphs.star(10), 1, 10), (graphs.complete(6), 6, 6), (graphs.path(2), 2, 2)],
)
def test_spectra_known_in_closed_form(graph, second, largest):
    assert graph.algebraic_connectivity == pytest.approx(second)
    assert graph.largest_eigenvalue == pytest.approx(largest)


def test_sparse_solver_agrees_with_closed_form_for_many_agents():
    graph = graphs.ring(10_000)
    assert graph.largest_eigenvalue == pytest.approx(4, rel=1e-6)
    assert graph.algebraic_connectivity == pytest.approx(2 - 2 * math.cos(2 * math.pi / 10_000), rel=1e-4)
    assert graph.laplacian.nnz == 30_000  # nothing of size n × n


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("num_agents", [1, 2, 3, 6, 12])
def test_every_family_is_connected_and_survives_a_plan_file(family, num_agents):
    if family == "watts_strogatz" and num_agents < 6:
        pytest.skip("fewer agents than neighbours")
    graph = graphs.named(family, num_agents)
    assert graph.num_agents == num_agents
    assert graphs.from_recipe(graph.to_recipe()) == graph


def test_fastest_consensus_contracts_most():
    graph = graphs.grid(3, 4)
    eigenvalues = np.linalg.eigvalsh(graph.laplacian.toarray())[1:]

    def contraction(step):
        return np.abs(1 - step * eigenvalues).max()

    best = contraction(graph.fastest_consensus)
    assert all(best <= contraction(step) + 1e-12 for step in np.linspace(0.01, 0.3, 100))


def test_weights_scale_the_laplacian():
    graph = graphs.ring(5).with_weights(np.full(5, 2.0))
    assert graph.largest_eigenvalue == pytest.approx(2 * graphs.ring(5).largest_eigenvalue)
    assert graphs.from_recipe(graph.to_recipe()) == graph


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 12), st.randoms(use_true_random=False))
def test_networkx_graphs_keep_their_edges_and_weights(size, random):
    tree = networkx.Graph()
    tree.add_nodes_from(range(size))
    for node in range(1, size):
        tree.add_edge(node, random.randrange(node), weight=random.uniform(0.1, 3))
    graph = graphs.from_networkx(tree)
    expected = networkx.laplacian_matrix(tree).toarray()
    np.testing.assert_allclose(graph.laplacian.toarray(), expected)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: graphs.from_edges(4, [(0, 1), (2, 3)]), "2 parts"),
        (lambda: graphs.from_edges(3, [(0, 1)]), "cannot reach agent 2"),
        (lambda: graphs.from_networkx(networkx.DiGraph([(0, 1)])), "directed"),
        (lambda: graphs.from_edges(2, [(0, 0), (0, 1)]), "edge to itself"),
        (lambda: graphs.from_edges(2, [(0, 5)]), "names agent 5"),
        (lambda: graphs.from_edges(2, [(0, 1), (1, 0)], [1.0, 2.0]), "symmetric"),
        (lambda: graphs.ring(5).with_weights([1, 1, 1, 1, -1]), "positive"),
        (lambda: graphs.ring(5).with_weights([1, 1]), "expected 5 edge weights"),
        (lambda: graphs.from_edges(3, [(0, 1, 2), (1, 2, 1)]), "pair of agent numbers"),
        (lambda: graphs.from_edges(2, [(0.0, 1.0)]), "pair of agent numbers"),
        (lambda: graphs.ring(0), "at least 1"),
        (lambda: graphs.named("pentagram", 5), "unknown graph 'pentagram': choose one of barbell, complete, erdos"),
        (lambda: graphs.named("startt", 5), "unknown graph 'startt': did you mean star?"),
        (lambda: graphs.from_recipe({"kind": "rign"}), "unknown graph kind 'rign': did you mean ring or grid?"),
        (lambda: graphs.from_recipe({"kind": "ring", "agents": 5}), "ring"),
        (lambda: graphs.erdos_renyi(50, 0.001), "disconnected"),
    ],
)
def test_bad_graphs_are_refused_with_the_reason(make, words):
    with pytest.raises(GraphError, match=words):
        make()


def test_numpy_numbers_are_plain_ones_in_a_plan_file():
    graph = graphs.grid(np.int64(2), np.int64(3))
    assert {type(value) for value in graph.to_recipe().values()} == {str, int}


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: graphs.named("ring", 3 * 10**9), "3,000,000,000 agents are more than one plan can hold"),
        (lambda: graphs.grid(2000, 2000), "4,000,000 agents are more"),
        (lambda: graphs.complete(100_000), "edges are more than one plan can hold"),
        (lambda: graphs.barbell(100_000), "choose a sparser graph"),
    ],
)
def test_graphs_that_no_memory_holds_are_refused_at_once(make, words):
    with pytest.raises(GraphError, match=words):
        make()
