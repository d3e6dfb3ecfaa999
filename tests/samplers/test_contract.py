"""What every sampler must do; a new one is added to SAMPLERS and must pass as it is."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import consilience as cs
from consilience.samplers import SAMPLERS, Sampler
from consilience.theory import GaussianNetwork, Moments
from tests.engines.final_positions import final_positions
from tests.gaussian import regression
from tests.statistical import rejects_covariance, rejects_mean

MADE = {name: kind(step_size=0.01, consensus=0.2) for name, kind in SAMPLERS.items()}
POSITION = {"a": jnp.array([1.0, 2.0]), "b": jnp.array(3.0)}


@pytest.fixture(params=MADE)
def sampler(request) -> Sampler:
    return MADE[request.param]


def test_position_is_what_was_given(sampler):
    found = sampler.position(sampler.init(POSITION))
    assert jax.tree.all(jax.tree.map(lambda a, b: (a == b).all(), found, POSITION))


def test_a_step_keeps_structure_shape_and_dtype(sampler):
    state = sampler.init(POSITION)
    message = sampler.share(state)
    noise = jax.tree.map(jnp.ones_like, POSITION)
    after = sampler.step(state, noise, jax.tree.map(jnp.zeros_like, message), sampler.coefficients(0, 3), noise)
    assert jax.tree.structure(after) == jax.tree.structure(state)
    assert jax.tree.map(jnp.shape, after) == jax.tree.map(jnp.shape, state)
    assert jax.tree.map(jnp.result_type, after) == jax.tree.map(jnp.result_type, state)


def test_step_is_pure_and_compiles(sampler):
    state, zero = sampler.init(POSITION), jax.tree.map(jnp.zeros_like, POSITION)
    arguments = (state, POSITION, sampler.share(sampler.init(zero)))
    once = sampler.step(*arguments, sampler.coefficients(5, 3), zero)
    again = jax.jit(lambda k: sampler.step(*arguments, sampler.coefficients(k, 3), zero))(5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), once, again)


def test_agents_that_agree_and_see_no_noise_descend_together(sampler):
    """Without noise and disagreement a step moves against the gradient, the further the larger it is."""
    zero = jax.tree.map(jnp.zeros_like, POSITION)
    state = sampler.init(POSITION)
    message = jax.tree.map(jnp.zeros_like, sampler.share(state))
    after = sampler.position(sampler.step(state, POSITION, message, sampler.coefficients(0, 3), zero))
    moved = jax.tree.map(lambda new, old: ((new - old) < 0).all(), after, POSITION)
    assert jax.tree.all(moved)


def test_sampler_follows_the_exact_gaussian_recursion(sampler):
    """Mean and covariance of all agents after 40 steps; false-alarm rate 1e-4 each."""
    problem, graph = regression([4, 7, 12]), cs.graphs.ring(3)
    network = GaussianNetwork.of(problem, graph)
    plan = cs.Plan(graph=graph, sampler=sampler, num_steps=40, num_chains=4000)
    positions = final_positions(problem, plan)
    zero = Moments(np.zeros(6), np.zeros((6, 6)))
    *_, exact = network.evolve(sampler, zero, 40)
    assert not rejects_mean(positions, exact.mean)
    assert not rejects_covariance(positions, exact.mean, exact.covariance)
