"""On normal subposteriors all baselines are exact; each has a control that must fail."""

import jax.numpy as jnp
import numpy as np
import pytest

import consilience as cs
from consilience.baselines import (
    Gaussian,
    consensus_monte_carlo,
    modes_and_curvatures,
    parametric_product,
    product,
    semiparametric_product,
)
from consilience.errors import ProblemError
from tests.statistical import rejects_covariance, rejects_mean

AGENTS, SIZE = 3, 2
UNITS = np.array([1e-3, 1e4])  # parameters have no common unit


def parts(apart=1.0):
    """Normal subposteriors with other means and other shapes."""
    rng = np.random.default_rng(3)
    shapes = [0.3 * rng.normal(size=(SIZE, SIZE)) + np.eye(SIZE) for _ in range(AGENTS)]
    precisions = [shape @ shape.T / UNITS[:, None] / UNITS for shape in shapes]
    return [Gaussian(apart * rng.normal(size=SIZE) * UNITS, precision) for precision in precisions]


def draws_of(gaussians, chains, length):
    return np.stack([own.draws((chains, length), seed) for seed, own in enumerate(gaussians)])


def rejected(draws, exact):
    """Whether independent draws contradict a normal law in mean or covariance, in its own units."""
    flat = np.linalg.solve(exact.root, (draws.reshape(-1, SIZE) - exact.mean).T).T
    return rejects_mean(flat, np.zeros(SIZE)) or rejects_covariance(flat, np.zeros(SIZE), np.eye(SIZE))


def unfitted(method, alone, gaussians, monkeypatch):
    """What a method makes of draws if it knows the moments: then it is exact, not only in the limit."""
    known = iter(gaussians)
    monkeypatch.setattr(f"{method.__module__}.fitted", lambda own: next(known))
    return method(alone) if method is consensus_monte_carlo else method(alone, seed=1)


@pytest.mark.parametrize("method", [consensus_monte_carlo, parametric_product])
def test_weighted_by_precisions_the_product_is_exact(method, monkeypatch):
    """False alarms: 2e-6."""
    gaussians = parts()
    found = unfitted(method, draws_of(gaussians, 2, 10_000), gaussians, monkeypatch)
    assert found.shape == (2, 10_000, SIZE)
    assert not rejected(found, product(gaussians))


def test_averages_without_weights_are_noticed():
    """The control: agents whose draws count alike."""
    gaussians = parts()
    assert rejected(draws_of(gaussians, 2, 10_000).mean(0), product(gaussians))


@pytest.mark.parametrize("method", [consensus_monte_carlo, parametric_product])
def test_with_the_moments_of_draws_it_is_near(method):
    """Moments of 200,000 draws are known to 0.002; 0.03 is more than ten times the error of mean and sd."""
    gaussians = parts()
    exact, alone = product(gaussians), draws_of(gaussians, 2, 100_000)
    found = method(alone) if method is consensus_monte_carlo else method(alone, seed=1)
    away = np.linalg.solve(exact.root, (found.reshape(-1, SIZE) - exact.mean).T)
    assert np.abs(away.mean(1)).max() < 0.03
    assert np.abs(np.cov(away) - np.eye(SIZE)).max() < 0.03


def semiparametric_errors(gaussians, exact, repetitions=10):
    """Errors of mean and standard deviation, in standard deviations: the means of independent repetitions."""
    found = []
    for repetition in range(repetitions):
        alone = np.stack([own.draws((100, 200), 100 * repetition + i) for i, own in enumerate(gaussians)])
        draws = semiparametric_product(alone, seed=repetition).reshape(-1, SIZE)
        found.append(np.linalg.solve(exact.root, (draws - exact.mean).T))
    return np.mean([[one.mean(1), one.std(1) - 1] for one in found], 0)


def test_the_semiparametric_product_is_near_on_normal_subposteriors():
    """Exact only for ever more draws: 20,000 leave errors of 0.04, with standard errors of at most 0.03.

    0.15 is more than four of these beyond that: less than 1e-3 false alarms for the four statistics.
    """
    gaussians = parts()[:2]
    exact = product(gaussians)
    assert np.abs(semiparametric_errors(gaussians, exact)).max() < 0.15
    shifted = [own._replace(mean=own.mean + 0.4 * exact.root @ np.ones(SIZE)) for own in gaussians]
    wider = [own._replace(precision=own.precision / 2) for own in gaussians]
    means, spreads = semiparametric_errors(shifted, exact)[0], semiparametric_errors(wider, exact)[1]
    assert (means > 0.15).all()  # the controls
    assert (spreads > 0.15).all()


def skewed(rng, length):
    """Subposteriors `w^a e^(−b w)` of a logarithm: their product is a gamma distribution again."""
    return np.log(rng.gamma(np.array([0.5, 0.7, 0.8])[:, None, None, None], size=(3, 4, length, 1)) / 2)


def test_beyond_normal_subposteriors_only_the_semiparametric_product_follows():
    """Mean and spread of a product of skewed densities, over 8 repetitions whose standard errors are below 0.07."""
    rng = np.random.default_rng(0)
    exact = np.log(rng.gamma(2.0, size=400_000) / 6)
    repeated = [skewed(rng, 1_000) for _ in range(8)]

    def error(method):
        found = [method(alone, seed) for seed, alone in enumerate(repeated)]
        centre, spread = np.mean([one.mean() for one in found]), np.mean([one.std() for one in found])
        return abs(centre - exact.mean()) / exact.std() + abs(spread / exact.std() - 1)

    wrong = error(parametric_product)
    assert wrong > 0.8  # the control: these are not normal
    assert error(semiparametric_product) < 0.75 * wrong


def linear(rows_of_agents):
    """A regression with known noise: subposteriors are normal, and have a mode where they are identified."""
    rng = np.random.default_rng(1)
    inputs = rng.normal(size=(30, SIZE)) * [1.0, 50.0]
    outcome = inputs @ [1.0, -0.02] + rng.normal(size=30)
    shards = [(inputs[rows], outcome[rows]) for rows in np.split(np.arange(30), rows_of_agents)]
    problem = cs.Problem(
        lambda w, rows: -0.5 * (rows[1] - rows[0] @ w) ** 2,
        lambda w: jnp.zeros(()),
        lambda key: jnp.zeros(SIZE),
        shards,
    )
    precision = inputs.T @ inputs
    return problem, Gaussian(np.linalg.solve(precision, inputs.T @ outcome), precision)


def test_modes_and_curvatures_give_the_posterior_of_a_regression():
    problem, exact = linear([5, 15])
    found = product(modes_and_curvatures(problem, np.array([30.0, -7.0])))
    np.testing.assert_allclose(found.mean, exact.mean, rtol=1e-6)
    np.testing.assert_allclose(found.precision, exact.precision, rtol=1e-9)


def test_a_subposterior_that_is_not_identified_is_refused():
    problem, _ = linear([1, 15])
    with pytest.raises(ProblemError, match="agent 0 alone has no mode"):
        modes_and_curvatures(problem, np.zeros(SIZE))


def test_draws_without_spread_are_refused():
    with pytest.raises(ProblemError, match="not identified"):
        consensus_monte_carlo(np.zeros((2, 1, 10, SIZE)))
