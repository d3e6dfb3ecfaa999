"""Mixing by several exchanges: it keeps the average, contracts as promised, and is stable where it says so."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import consilience as cs
from consilience.kernel.chebyshev import begun, ended, exchanged, mixed
from consilience.kernel.mixing import make_disagreement
from consilience.samplers.mixing import MOST_NEGATIVE, Mixing, chebyshev, contraction, exchanges_for

GRAPHS = {
    "path": cs.graphs.path(5),
    "star": cs.graphs.star(20),
    "ring": cs.graphs.ring(6),
    "complete": cs.graphs.complete(4),
    "barbell": cs.graphs.barbell(7),
}


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def matrix(graph, mixing):
    """`Q`, from what mixing does to each agent's unit message."""
    return np.asarray(mixed(jnp.eye(graph.num_agents), make_disagreement(graph, jnp.float64), mixing))


@pytest.mark.parametrize("exchanges", [1, 2, 5])
@pytest.mark.parametrize("name", GRAPHS)
def test_it_is_a_polynomial_that_keeps_the_average_and_contracts_by_theta(name, exchanges):
    graph = GRAPHS[name]
    found, theta = matrix(graph, chebyshev(graph, exchanges)), contraction(graph, exchanges)
    np.testing.assert_allclose(found, found.T, atol=1e-12)
    np.testing.assert_allclose(found.sum(0), 1, atol=1e-12)
    values = np.sort(np.linalg.eigvalsh(found))[:-1]  # without that of the average
    low, high = (0, 2 * theta / (1 + theta)) if theta > MOST_NEGATIVE else (-theta, theta)
    assert values.min() >= low - 1e-10
    assert values.max() <= high + 1e-10
    assert np.abs(values).max() > 0.98 * high or theta < 1e-9


@pytest.mark.parametrize("name", GRAPHS)
def test_what_is_stable_on_a_graph_is_so_on_every_part_of_it(name):
    """Without some edges no eigenvalue is below `−θ` (0 for `Q⁺`), none above 1: corrected samplers stay stable."""
    graph, rng = GRAPHS[name], np.random.default_rng(0)
    for exchanges in (1, 3):
        mixing, theta = chebyshev(graph, exchanges), contraction(graph, exchanges)
        apart = np.eye(graph.num_agents)[graph.edges]
        apart = (apart[:, 0] - apart[:, 1])[rng.random(graph.num_edges) > 0.3]  # each row is an edge
        left = mixed(jnp.eye(graph.num_agents), lambda said, apart=apart: apart.T @ (apart @ said), mixing)
        values = np.linalg.eigvalsh(left)
        low = 0 if theta > MOST_NEGATIVE else -theta
        assert values.min() >= low - 1e-10
        assert values.max() <= 1 + 1e-10
        for q in values[values < 1 - 1e-9]:
            assert cs.kinetic(0.3, exchanges, whitening="none").radius(q, 0.0) < 1
            assert cs.langevin(0.05, exchanges, whitening="none").radius(q, 0.0) < 1


def test_without_the_recurrence_the_contraction_is_missed():
    """The control: the same exchanges with the first one's rate alone."""
    graph = GRAPHS["path"]
    plain = chebyshev(graph, 5)._replace(squared_ratio=0.0)
    values = np.sort(np.linalg.eigvalsh(matrix(graph, plain)))[:-1]
    assert np.abs(values).max() > 2 * contraction(graph, 5)


def test_a_traced_number_of_exchanges_does_the_same():
    graph = GRAPHS["barbell"]
    for exchanges in (1, 4):
        traced = jax.jit(lambda k: mixed(jnp.eye(7), make_disagreement(graph, float), chebyshev(graph, k)))(exchanges)
        np.testing.assert_allclose(traced, matrix(graph, chebyshev(graph, exchanges)), atol=1e-12)


def test_exchange_by_exchange_is_the_same():
    graph = GRAPHS["ring"]
    mixing, disagreement = chebyshev(graph, 3), make_disagreement(graph, jnp.float64)
    message = jnp.asarray(np.random.default_rng(0).normal(size=(6, 2)))
    sofar = begun(message)
    for _ in range(3):
        sofar = exchanged(sofar, disagreement(sofar.now), mixing)
    np.testing.assert_allclose(ended(message, sofar, mixing), mixed(message, disagreement, mixing), atol=1e-14)


def test_one_exchange_of_a_given_rate_is_the_laplacian_step():
    graph = GRAPHS["star"]
    np.testing.assert_allclose(matrix(graph, Mixing(0.04)), np.eye(20) - 0.04 * graph.laplacian.toarray(), atol=1e-14)


def test_the_fewest_exchanges_for_a_contraction():
    for graph in GRAPHS.values():
        count = exchanges_for(graph, 0.1)
        assert contraction(graph, count) <= 0.1 + 1e-12
        assert count == 1 or contraction(graph, count - 1) > 0.1
