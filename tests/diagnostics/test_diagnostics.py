import numpy as np
import pytest

from consilience.diagnostics import (
    consensus_error,
    convergence,
    equal_time_draws,
    fitted_rate,
    kl_divergence,
    sinkhorn_distance,
    weighted_mean,
)
from consilience.errors import InputError

RNG = np.random.default_rng(0)


def test_sinkhorn_of_two_points_is_their_distance():
    """One point a side leaves a single plan, whatever the regularisation, up to the solver's threshold of 1e-4."""
    assert sinkhorn_distance(np.array([[0.0, 0.0]]), np.array([[3.0, 4.0]])) == pytest.approx(5.0, rel=1e-4)


def test_sinkhorn_is_the_regularised_transport_cost():
    """Against a plain iteration written from the definition, in double precision."""
    x, y = RNG.normal(size=(40, 2)), RNG.normal(size=(50, 2)) + 0.5
    cost = np.linalg.norm(x[:, None] - y[None], axis=-1)
    kernel = np.exp(-cost / 0.1)
    u, v = np.ones(40), np.ones(50)
    for _ in range(20_000):
        u = (1 / 40) / (kernel @ v)
        v = (1 / 50) / (kernel.T @ u)
    expected = (u[:, None] * kernel * v[None] * cost).sum()
    assert sinkhorn_distance(x, y) == pytest.approx(expected, rel=2e-3)


def test_sinkhorn_sees_a_missing_mode():
    """The negative control of the mixture's figure: draws from one mode only score far above the floor."""
    modes = np.array([[0.0, 1.0], [1.0, -1.0]])
    both = modes[RNG.integers(0, 2, 600)] + 0.4 * RNG.normal(size=(600, 2))
    also = modes[RNG.integers(0, 2, 600)] + 0.4 * RNG.normal(size=(600, 2))
    one = modes[0] + 0.4 * RNG.normal(size=(600, 2))
    floor = sinkhorn_distance(also, both)
    assert floor < 0.3
    assert sinkhorn_distance(one, both) > 3 * floor


@pytest.mark.parametrize(("shift", "scale"), [(0.0, 1.0), (1.0, 1.0), (0.0, 1.3), (0.5, 0.7)])
def test_kl_of_gaussians_is_the_known_one(shift, scale):
    """Estimates from 10,000 draws scatter by about 0.02 (seed fixed)."""
    draws = shift + scale * RNG.normal(size=(10_000, 2))
    reference = RNG.normal(size=(10_000, 2))
    exact = 2 * (0.5 * (scale**2 + shift**2 - 1) - np.log(scale))
    assert kl_divergence(draws, reference) == pytest.approx(exact, abs=0.08)


def test_kl_needs_draws():
    with pytest.raises(InputError, match="needs more draws"):
        kl_divergence(np.zeros((3, 1)), np.zeros((100, 1)))


def test_rate_of_a_noisy_power_law_is_found():
    steps = np.arange(1, 100_000, 50)
    errors = 2.0 * (230.0 + steps) ** -0.45 * RNG.gamma(3, 1 / 3, len(steps))
    assert fitted_rate(steps, errors, offset=230) == pytest.approx(0.45, abs=0.02)
    assert np.isnan(fitted_rate(steps[:1], errors[:1]))


def test_consensus_error_ignores_the_average():
    positions = RNG.normal(size=(5, 3))
    assert consensus_error(positions + 100) == pytest.approx(consensus_error(positions))
    assert consensus_error(np.ones((5, 3))) == 0


def test_weighted_mean_is_over_time():
    steps = np.array([0.1, 0.1, 0.8])
    assert weighted_mean(np.array([[1.0, 0], [2, 0], [3, 1]]), steps).tolist() == pytest.approx([2.7, 0.8])


def test_draws_at_equal_times_follow_the_step_sizes():
    """Where steps are ten times as long, ten times as many draws are taken."""
    step_sizes = np.concatenate([np.full(1000, 1.0), np.full(1000, 0.1)])
    chosen = equal_time_draws(step_sizes, 110)
    assert (chosen < 1000).sum() == 100
    assert (np.diff(chosen) > 0).all()


def test_rhat_across_agents_is_kept_apart_from_rhat_across_chains():
    """Agents that agree in chains that do not: converged looks only the one that must not be asked."""
    centres = np.array([-3.0, 3.0])[:, None, None, None]
    common = RNG.normal(size=(2, 1, 2000, 1)) + centres
    draws = common + 0.01 * RNG.normal(size=(2, 4, 2000, 1))
    found = convergence(draws)
    assert found.rhat_agents.max() < 1.01
    assert found.rhat_chains.min() > 1.5
    assert found.rhat_average.min() > 1.5


def test_ess_of_independent_draws_is_their_number():
    draws = RNG.normal(size=(2, 2, 3000, 1))
    found = convergence(draws)
    assert found.ess_agents == pytest.approx(6000, rel=0.15)
    assert found.rhat_chains == pytest.approx(1, abs=0.01)


def test_one_chain_is_split_and_few_draws_give_nothing():
    drifting = np.linspace(0, 1, 4000).reshape(1, 1, -1, 1) + 0.1 * RNG.normal(size=(1, 1, 4000, 1))
    assert convergence(drifting).rhat_chains.item() > 1.5
    assert np.isnan(convergence(RNG.normal(size=(1, 1, 3, 1))).ess_agents).all()
