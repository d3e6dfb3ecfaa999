"""Agents are grouped by the lengths of their shards, and nothing else changes by it."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from consilience import Plan, Problem, dula, graphs
from consilience.kernel.gradients import network_gradients, network_potentials
from consilience.kernel.lengths import _CALL, places_by_length
from consilience.kernel.parameters import Parameters
from consilience.kernel.rows import Rows

UNEQUAL = (3, 300, 6, 1, 65, 14, 139, 30, 1)
"""From one row to 300, in no order."""


def logistic(sizes, columns=6):
    rng = np.random.default_rng(0)
    shards = [(rng.normal(size=(size, columns)), rng.integers(0, 2, size).astype(float)) for size in sizes]

    def log_likelihood(w, rows):
        features, outcomes = rows
        linear = features @ w
        return outcomes * linear - jnp.logaddexp(0.0, linear)

    return Problem(log_likelihood, lambda w: -0.5 * w @ w, lambda key: jnp.zeros(columns), shards)


def means(sizes):
    """A model without a product, whose rows are single numbers."""
    shards = [np.random.default_rng(size).normal(size=size) for size in sizes]
    log_likelihood = lambda w, x: jnp.logaddexp(-0.5 * (x - w[0]) ** 2, -0.5 * (x - w.sum()) ** 2)  # noqa: E731
    return Problem(log_likelihood, lambda w: -0.5 * w @ w, lambda key: jnp.zeros(2), shards)


def evaluated(problem, make, w, num_chains):
    """Of all agents, as engines ask for it, and the groups they were put in."""
    plan = Plan(graph=graphs.ring(problem.num_agents), sampler=dula(1e-3, 0.1), num_steps=2, num_chains=num_chains)
    rows = Rows(problem, plan, jnp.float64)
    shards, weights, scale = rows.arrays
    function = rows.evaluated(make(problem, Parameters.of(problem, jnp.float64)))
    return jax.jit(lambda w: function(w, rows.used(shards), weights, scale, False))(w), rows.groups


def wide(sizes):
    """Tables with more columns than any shard has rows."""
    return logistic(sizes, columns=400)


@pytest.mark.parametrize(
    ("model", "chains"),
    [(logistic, 40), (wide, 2), pytest.param(means, 200, marks=pytest.mark.slow(reason="a program for each agent"))],
)
def test_gradients_of_groups_are_those_of_each_agent_alone_and_add_up_to_that_of_all_rows(model, chains):
    problem = model(UNEQUAL)
    with jax.enable_x64(True):
        size = Parameters.of(problem, jnp.float64).size
        w = jax.random.normal(jax.random.key(0), (chains, len(UNEQUAL), size)) * jnp.ones((1, len(UNEQUAL), 1))
        (values, slopes), groups = evaluated(problem, network_potentials, w, chains)
        gradients, _ = evaluated(problem, network_gradients, w, chains)
        assert len(groups) > 1
        for agent, shard in enumerate(problem.shards):
            expected = jax.jit(jax.vmap(jax.value_and_grad(
                lambda w, shard=shard: -problem.log_likelihood(w, shard).sum() - problem.log_prior(w) / len(UNEQUAL)
            )))(w[:, agent])  # fmt: skip
            np.testing.assert_allclose(values[:, agent], expected[0], rtol=1e-11)
            np.testing.assert_allclose(slopes[:, agent], expected[1], rtol=1e-9, atol=1e-11)
            np.testing.assert_allclose(gradients[:, agent], expected[1], rtol=1e-9, atol=1e-11)
        together = jnp.broadcast_to(w[:, :1], w.shape)
        (_, slopes), _ = evaluated(problem, network_potentials, together, chains)
        rows = jax.tree.map(lambda *leaves: np.concatenate(leaves), *problem.shards)
        pooled = jax.jit(jax.vmap(jax.grad(
            lambda w: -problem.log_likelihood(w, rows).sum() - problem.log_prior(w)
        )))(w[:, 0])  # fmt: skip
        np.testing.assert_allclose(slopes.sum(1), pooled, rtol=1e-9, atol=1e-10)


def test_equal_shards_and_small_ones_are_one_group():
    assert len(places_by_length(np.full(50, 1000), 100)) == 1
    assert len(places_by_length(np.array([90, 100, 100, 110]), 10_000)) == 1
    assert len(places_by_length(np.array([1, 1, 1]), 10)) == 1
    assert len(places_by_length(np.array([30, 3, 40, 1]), 2)) == 1


@pytest.mark.parametrize("row_numbers", [20, 300, 10_000])
@pytest.mark.parametrize("sizes", [UNEQUAL, (5, 5, 400, 400, 1, 1), tuple(range(1, 9))])
def test_groups_are_the_cheapest_of_all(sizes, row_numbers):
    """Against every way to cut the sorted sizes into at most four pieces."""
    sizes = np.array(sizes)
    ordered = np.sort(sizes)

    def cost(pieces):
        return sum(len(piece) * piece.max() * row_numbers + _CALL for piece in pieces)

    every = [
        cost(np.split(ordered, cuts))
        for count in range(4)
        for cuts in itertools.combinations(range(1, len(sizes)), count)
    ]
    groups = places_by_length(sizes, row_numbers)
    np.testing.assert_array_equal(np.sort(np.concatenate(groups)), np.arange(len(sizes)))
    assert cost([sizes[group] for group in groups]) == min(every)


def test_many_lengths_are_grouped_too():
    sizes = np.random.default_rng(0).integers(1, 100_000, 10_000)
    groups = places_by_length(sizes, 10)
    assert len(groups) == 4
    assert len(np.unique(np.concatenate(groups))) == len(sizes)
    assert sum(len(group) * sizes[group].max() for group in groups) < 1.3 * sizes.sum()
