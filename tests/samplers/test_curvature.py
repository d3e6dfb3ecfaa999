"""Where chains of NUTS begin to move, and their first mass."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import consilience as cs
from consilience.kernel.network_sums import NetworkSums
from consilience.samplers.transitions.curvature import beginning, num_adopted
from tests.gaussian import regression
from tests.unison import replicas_of, sampled

AGENTS = 3


def begun(potential, start, seed=0, total=lambda words: words):
    """Where chains that start at `(chains, d)` begin, if three agents share a potential out, unequally."""
    start = np.asarray(start, float)
    shares = jnp.array([0.5, 0.3, 0.2])
    each = jax.vmap(jax.vmap(jax.value_and_grad(lambda share, w: share * potential(w), 1)), (None, 0))
    network = NetworkSums(
        lambda positions: each(shares, positions), start.shape[1], AGENTS, total, jnp.arange(AGENTS),
        jnp.zeros((AGENTS, 0)),
    )  # fmt: skip
    shifts = np.random.default_rng(seed).uniform(-1, 1, start.shape)
    with jax.enable_x64(True):
        found = jax.jit(lambda w: beginning(network, w, shifts, (AGENTS, 0)))(start)
    return jax.tree.map(np.asarray, found)


def test_units_and_correlations_are_found():
    """Deviations from 1e-5 to 1e4, and a correlation of 0.999, from far outside."""
    scales = np.array([1e-5, 1.0, 1e4])
    correlations = np.eye(3)
    correlations[0, 2] = correlations[2, 0] = 0.999
    covariance = correlations * np.outer(scales, scales)
    precision, mean = np.linalg.inv(covariance), np.array([0.3, -2.0, 5e5])
    found = begun(lambda w: 0.5 * (w - mean) @ precision @ (w - mean), [[2.0, 2.0, 2.0], [-2.0, 1.0, -1.0]])
    np.testing.assert_allclose(found.inverse_mass / np.outer(scales, scales), correlations, atol=0.02)
    away = found.shared - mean
    distance = np.sqrt(np.einsum("ci,ij,cj->c", away, precision, away))
    assert (distance < 3 * np.sqrt(3) * 1.01).all()
    assert (distance > 0.1).all(), "chains begin apart from each other"


def test_what_is_adopted_is_as_long_as_nodes_are_told():
    lengths = []

    def total(words):
        lengths.append(words.size)
        return words

    begun(lambda w: 0.5 * w @ w, np.ones((300, 3)), total=total)
    assert max(lengths) == num_adopted(300, 3) > 300 * (2 + 3)


def test_chains_stay_in_the_modes_near_which_they_start():
    def potential(w):
        return -jnp.logaddexp(-0.5 * ((w - 10) ** 2).sum(), jnp.log(0.2) - 0.5 * ((w + 10) ** 2).sum() / 0.01)

    found = begun(potential, [[12.0, 7.0], [-8.0, -11.0], [9.0, 9.0], [-9.0, -9.5]])
    np.testing.assert_allclose(found.shared.mean(1).round(-1), [10, -10, 10, -10])
    np.testing.assert_allclose(found.inverse_mass, np.eye(2), atol=1e-3, err_msg="of the mode with more density")


@pytest.mark.parametrize(
    "potential",
    [
        lambda w: jnp.where(jnp.abs(w).max() < 1e-9, 0.0, jnp.inf) + 0.5 * w @ w,
        lambda w: 0.0 * w.sum(),
        lambda w: -w.sum(),
    ],
    ids=["density at one point", "flat", "without end"],
)
def test_where_there_is_no_bulk_chains_still_begin_at_finite_places(potential):
    found = begun(potential, np.zeros((2, 2)))
    for values in (found.shared, found.inverse_mass):
        assert np.isfinite(values).all()
    assert (np.linalg.eigvalsh(found.inverse_mass) > 0).all()


@pytest.mark.slow(reason="three programs to compile")
def test_units_of_the_data_do_not_lengthen_the_warm_up():
    """The control goes without the descent, as larger models do."""

    def sums(units, mass="dense"):
        problem = regression([40, 25, 30])
        likelihood = problem.log_likelihood
        scaled = cs.Problem(
            log_likelihood=lambda w, row: likelihood(w * units, row),
            log_prior=lambda w: problem.log_prior(w * units),
            init=lambda key: jnp.zeros(2), shards=problem.shards,
        )  # fmt: skip
        plan = cs.Plan(graph=cs.graphs.path(3), sampler=cs.nuts(mass=mass), num_warmup=150, num_draws=4, seed=5)
        return sampled(replicas_of(scaled, plan)).measured["evaluations"][0, :150].sum()

    odd, plain = np.array([1e4, 1e-4]), sums(np.ones(2))
    assert sums(odd) < 1.5 * plain
    assert sums(odd, mass="diagonal") > 5 * plain
