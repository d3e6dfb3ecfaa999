"""Potentials with private and constrained parameters, against those written down by hand for each agent."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.distributions import constraints
from numpyro.distributions.transforms import biject_to

from consilience.kernel import gradients as kernel_gradients
from consilience.kernel.gradients import network_gradients, network_potentials
from consilience.kernel.grouping import by_number, group_numbers
from consilience.kernel.parameters import Parameters
from tests.gaussian import regression
from tests.hierarchical import quadratics, ragged, sites

WEIGHTS = np.array([[1, 1, 0, 1, 1, 0], [1] * 6, [0, 1, 1, 1, 1, 1], [1] * 6], float)
SCALE = np.array([1.0, 2.0, 0.5, 1.5])


def by_hand(problem, agent, w, rows, weights, scale):
    """`U_i` of `ragged`, without any of the package's code, from the flat vector of one agent."""
    count = {0: 2, 1: 3, 2: 2, 3: 4}[agent]
    positive, simplex, interval = (
        biject_to(one) for one in (constraints.positive, constraints.simplex, constraints.interval(0.0, 1.0))
    )
    scale_, shares, slope = positive(w[1]), simplex(w[2:4]), interval(w[4 + count])
    tree = {"mean": w[0], "scale": scale_, "shares": shares, "own": {"effect": w[4 : 4 + count], "slope": slope}}
    shared = positive.log_abs_det_jacobian(w[1], scale_) + simplex.log_abs_det_jacobian(w[2:4], shares)
    private = interval.log_abs_det_jacobian(w[4 + count], slope)
    likelihood = (problem.log_likelihood(tree, rows) * weights).sum()
    return -scale * likelihood - (problem.log_prior(tree) + shared) / 4 - problem.log_private(tree) - private


@pytest.mark.parametrize("per_chain", [False, True])
@pytest.mark.parametrize(
    "few",
    [pytest.param(8, marks=pytest.mark.slow(reason="many programs to compile")), 0],
    ids=["a lane for each row", "side by side"],
)
def test_agents_of_different_lengths_have_their_own_potentials(per_chain, few, monkeypatch):
    monkeypatch.setattr(kernel_gradients, "_FEW_PARAMETERS", few)
    with jax.enable_x64(True):
        problem = ragged()
        parameters = Parameters.of(problem, jnp.float64)
        data = problem.stacked_shards(jnp.float64)
        if per_chain:
            data = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf[:, ::-1]]), data)
        w = jax.random.normal(jax.random.key(0), (2, 4, parameters.size))
        given = (w, data, jnp.asarray(WEIGHTS), jnp.asarray(SCALE), per_chain)
        compiled = partial(jax.jit, static_argnums=4)
        values, slopes = (np.asarray(one) for one in compiled(network_potentials(problem, parameters))(*given))
        for agent in range(4):
            expected = jax.jit(jax.value_and_grad(partial(by_hand, problem, agent), argnums=0))
            for chain in range(2):
                rows = jax.tree.map(lambda leaf, at=(chain, agent): leaf[at] if per_chain else leaf[at[1]], data)
                value, slope = expected(w[chain, agent], rows, WEIGHTS[agent], SCALE[agent])
                np.testing.assert_allclose(values[chain, agent], value, rtol=1e-10)
                np.testing.assert_allclose(slopes[chain, agent], slope, rtol=1e-8, atol=1e-10)
        assert not slopes[:, ~parameters.entries].any()
        alone = compiled(network_gradients(problem, parameters))(*given)
        np.testing.assert_allclose(alone, slopes, rtol=1e-9, atol=1e-10)
        numbers = jnp.asarray(group_numbers(parameters))
        again = compiled(by_number(problem, parameters, network_potentials)(numbers))(*given)
        np.testing.assert_allclose(again[0], values, rtol=1e-12)
        np.testing.assert_allclose(again[1], slopes, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("many", [5000, 1], ids=["whole", "in parts"])
def test_the_hierarchical_potential_is_quadratic_with_the_known_matrices(many, monkeypatch):
    monkeypatch.setattr(kernel_gradients, "MANY_PARAMETERS", many)
    problem = sites([3, 40])
    hessians, linear = quadratics(problem)
    with jax.enable_x64(True):
        parameters = Parameters.of(problem, jnp.float64)
        data = problem.stacked_shards(jnp.float64)
        weights = jnp.asarray(np.arange(40) < problem.shard_sizes[:, None], float)
        w = jax.random.normal(jax.random.key(0), (1, 2, 2))
        arguments = (data, weights, jnp.ones(2), False)
        values, slopes = network_potentials(problem, parameters)(w, *arguments)
        origin, _ = network_potentials(problem, parameters)(jnp.zeros_like(w), *arguments)
        alone = network_gradients(problem, parameters)(w, *arguments)
    exact = np.einsum("iab,cib->cia", hessians, w)
    np.testing.assert_allclose(slopes, exact - linear, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(alone, slopes, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(values - origin, ((exact / 2 - linear) * w).sum(-1), rtol=1e-6, atol=1e-6)


def test_values_of_plain_problems_belong_to_their_gradients():
    problem = regression([5, 5, 5], 12)
    parameters = Parameters.of(problem, jnp.float32)
    data, w = problem.stacked_shards(jnp.float32), jax.random.normal(jax.random.key(1), (2, 3, 12))
    arguments = (data, None, jnp.ones(3), False)
    _, slopes = network_potentials(problem, parameters)(w, *arguments)
    np.testing.assert_allclose(slopes, network_gradients(problem, parameters)(w, *arguments), rtol=1e-5, atol=1e-5)
