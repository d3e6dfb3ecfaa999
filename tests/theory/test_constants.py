import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import consilience as cs
from consilience.errors import ProblemError
from consilience.experiments import EXPERIMENTS
from consilience.theory import (
    GaussianNetwork,
    GridPosterior,
    Potentials,
    gaussian_constants,
    is_quadratic,
    problem_constants,
)
from tests.gaussian import regression


def logistic(num_features=3, prior_variance=2.0, rows=120):
    rng = np.random.default_rng(0)
    features = rng.normal(size=(rows, num_features))
    labels = (rng.random(rows) < 1 / (1 + np.exp(-features @ rng.normal(size=num_features)))).astype(float)
    return cs.models.logistic_regression(
        [(features[i::3], labels[i::3]) for i in range(3)], scale=prior_variance**0.5
    )


def test_gaussian_constants_are_those_of_the_data():
    problem = regression([6, 9, 30], prior_variance=2.0)
    constants = gaussian_constants(GaussianNetwork.of(problem, cs.graphs.ring(3)))
    squares = [np.float64(x).T @ np.float64(x) for x, _ in problem.shards]
    local = [np.linalg.eigvalsh(square)[-1] + 1 / 6 for square in squares]
    spectrum = np.linalg.eigvalsh(sum(squares) + np.eye(2) / 2)
    np.testing.assert_allclose(constants.local_smoothness.value, local, rtol=1e-6)
    assert constants.smoothness.value == pytest.approx(max(local))
    rng, blocks = np.random.default_rng(0), GaussianNetwork.of(problem, cs.graphs.ring(3)).precisions
    apart = rng.normal(size=(100_000, 3, 2))
    apart -= apart.mean(1, keepdims=True)
    ratio = (np.einsum("iab,kib->ka", blocks, apart) ** 2).sum(1) / (apart**2).sum((1, 2))
    assert 0.95 * constants.coupling.value < ratio.max() <= constants.coupling.value < sum(x**2 for x in local)
    assert constants.total_smoothness.value == pytest.approx(spectrum[-1])
    assert constants.log_sobolev.value == pytest.approx(spectrum[0])
    assert constants.second_moment.value == pytest.approx((1 / spectrum).sum())
    assert constants.log_sobolev.kind == "exact"


def test_logistic_regression_brings_bounds_that_hold_everywhere():
    problem = logistic()
    constants = problem_constants(Potentials(problem))
    assert {constants.local_smoothness.kind, constants.total_smoothness.kind, constants.log_sobolev.kind} == {"bound"}
    assert constants.log_sobolev.value == pytest.approx(1 / 2)
    potentials, rng = Potentials(problem), np.random.default_rng(1)
    for scale in (0.0, 1.0, 5.0):
        hessians = potentials.hessians(scale * rng.normal(size=3))
        total = np.linalg.eigvalsh(hessians.sum(0))
        assert total[-1] <= constants.total_smoothness.value * (1 + 1e-9)
        assert total[0] >= constants.log_sobolev.value * (1 - 1e-9)
        assert (np.linalg.eigvalsh(hessians)[:, -1] <= constants.local_smoothness.value * (1 + 1e-9)).all()
    at_origin = np.linalg.eigvalsh(potentials.hessians(np.zeros(3)))[:, -1]
    np.testing.assert_allclose(at_origin, constants.local_smoothness.value)  # where p(1−p) is 1/4


def test_estimates_agree_with_analysis_and_are_labelled():
    problem = dataclasses.replace(logistic(), curvature=None)
    constants, known = problem_constants(Potentials(problem)), logistic().curvature
    assert {constants.smoothness.kind, constants.log_sobolev.kind} == {"estimate"}
    np.testing.assert_allclose(constants.local_smoothness.value, known.smoothness)  # the start is the origin
    assert constants.log_sobolev.value > known.convexity  # the region is not everywhere


def test_many_parameters_are_looked_at_by_hessian_vector_products():
    problem = dataclasses.replace(logistic(num_features=150, rows=300), curvature=None)
    potentials = Potentials(problem)
    constants = problem_constants(potentials)
    exact = np.abs(np.linalg.eigvalsh(potentials.hessians(np.zeros(150)))).max(1)
    np.testing.assert_allclose(constants.local_smoothness.value, exact, rtol=1e-3)


@pytest.mark.slow(reason="an analysis of the mixture")
def test_the_mixture_is_seen_to_have_two_modes_and_a_small_gap():
    potentials = Potentials(EXPERIMENTS["gmm"].problem(5))
    modes = potentials.modes
    assert len(modes) == 2
    assert modes[0, 1] * modes[1, 1] < 0
    np.testing.assert_allclose(potentials.gradients(modes[0]).sum(0), 0, atol=1e-2)
    constants = problem_constants(potentials)
    assert "spectral gap" in constants.log_sobolev.how
    lowest = np.linalg.eigvalsh(potentials.hessians(modes[0]).sum(0))[0]
    assert 0 < constants.log_sobolev.value < lowest / 3  # far below what one mode alone would suggest


@pytest.mark.parametrize("sizes", [[20, 30], [4, 5]])
def test_the_spectral_gap_on_a_grid_is_exact_for_normal_posteriors(sizes):
    problem = regression(sizes)
    network = GaussianNetwork.of(problem, cs.graphs.path(2))
    wide = 6 * np.sqrt(np.diag(network.posterior.covariance))
    low, high = network.posterior.mean - wide, network.posterior.mean + wide
    gap = GridPosterior.of(problem, (low[0], high[0]), (low[1], high[1]), 200).spectral_gap()
    assert gap == pytest.approx(np.linalg.eigvalsh(network.precisions.sum(0))[0], rel=0.01)


def two_humps(num_parameters):
    """Not log-concave: every parameter is near −1 or near 1."""
    return cs.Problem(
        log_likelihood=lambda w, x: -jnp.sum((w**2 - 1) ** 2) * x,
        log_prior=lambda w: -0.05 * w @ w,
        init=lambda key: 0.1 * jnp.ones(num_parameters),
        shards=[np.ones(2), np.ones(3)],
    )


def test_without_log_concavity_draws_give_the_spread():
    potentials = Potentials(two_humps(3))
    with pytest.raises(ProblemError, match="not log-concave"):
        problem_constants(potentials)
    draws = np.random.default_rng(0).choice([-1.0, 1.0], size=(400, 3)) + 0.1
    constants = problem_constants(potentials, draws)
    assert constants.log_sobolev.kind == "estimate"
    assert constants.log_sobolev.value == pytest.approx(1 / np.linalg.eigvalsh(np.cov(draws.T))[-1])


def test_too_many_parameters_are_refused():
    with pytest.raises(ProblemError, match="at most 2,000 parameters"):
        problem_constants(Potentials(two_humps(2001)))


def test_a_flat_direction_is_refused():
    network = GaussianNetwork(cs.graphs.ring(2), np.zeros((2, 1, 1)), np.zeros((2, 1)))
    with pytest.raises(ProblemError, match="proper prior"):
        gaussian_constants(network)


@pytest.mark.parametrize("apart", [2.0, 5.0])
def test_modes_too_far_apart_are_said_to_be_so(apart):
    problem = cs.Problem(
        log_likelihood=lambda w, x: 0.0 * x,
        log_prior=lambda w: jnp.logaddexp(-20 * ((w - apart) ** 2).sum(), -20 * ((w + apart) ** 2).sum()),
        init=lambda key: apart * jnp.sign(jax.random.normal(key)) * jnp.ones(2),
        shards=[np.ones(2), np.ones(2)],
    )
    with pytest.raises(ProblemError, match="practically never goes from one to the other"):
        problem_constants(Potentials(problem))


@pytest.mark.parametrize("name", ["Laplace prior", "Huber loss"])
def test_what_is_quadratic_only_in_places_is_not_taken_for_gaussian(name):
    gaussian = regression([10, 20])
    problem = {
        "Laplace prior": dataclasses.replace(gaussian, log_prior=lambda w: -20 * jnp.abs(w).sum()),
        "Huber loss": dataclasses.replace(
            gaussian,
            log_likelihood=lambda w, rows: -jnp.where(abs(r := rows[1] - rows[0] @ w) < 30, r**2, 60 * abs(r) - 900),
        ),
    }[name]
    assert is_quadratic(Potentials(gaussian))
    assert not is_quadratic(Potentials(problem))
