import numpy as np
import pytest

import consilience as cs
from consilience.errors import ProblemError
from consilience.experiments import EXPERIMENTS
from consilience.theory import GaussianNetwork, Moments
from tests.gaussian import regression


def zero(size):
    return Moments(np.zeros(size), np.zeros((size, size)))


def test_the_posterior_is_that_of_the_pooled_data():
    problem = regression([5, 9, 20], 3, noise_variance=2.0, prior_variance=3.0)
    posterior = GaussianNetwork.of(problem, cs.graphs.ring(3)).posterior
    features = np.concatenate([shard[0] for shard in problem.shards]).astype(float)
    targets = np.concatenate([shard[1] for shard in problem.shards]).astype(float)
    precision = features.T @ features / 2 + np.eye(3) / 3
    np.testing.assert_allclose(posterior.covariance, np.linalg.inv(precision), rtol=1e-6)
    np.testing.assert_allclose(posterior.mean, np.linalg.solve(precision, features.T @ targets / 2), rtol=1e-6)


def test_the_average_converges_to_the_posterior_as_steps_fall():
    """With a falling step the law of w̄ tends to the posterior; noise of variance 1 leads elsewhere."""
    problem, graph = regression([5, 9, 20]), cs.graphs.ring(3)
    network = GaussianNetwork.of(problem, graph)
    sampler = cs.dula(cs.Polynomial(scale=0.02, exponent=0.6), cs.Polynomial(scale=0.2, exponent=0.05))
    *_, last = network.evolve(sampler, zero(6), 30_000)
    average = network.average(last)
    deviation = np.sqrt(np.diag(network.posterior.covariance))
    assert (np.abs(average.mean - network.posterior.mean) < 0.03 * deviation).all()
    np.testing.assert_allclose(average.covariance, network.posterior.covariance, atol=0.03 * deviation.min() ** 2)
    *_, wrong = network.evolve(sampler.model_copy(update={"temperature": 1 / 3}), zero(6), 30_000)
    ratio = np.trace(network.average(wrong).covariance) / np.trace(network.posterior.covariance)
    assert ratio == pytest.approx(1 / 3, rel=0.05)


def test_the_consensus_error_falls_at_the_theorems_rate():
    network = GaussianNetwork.of(regression([5, 9, 20]), cs.graphs.ring(3))
    sampler = cs.dula(cs.Polynomial(scale=0.02, exponent=0.7), cs.Polynomial(scale=0.2, exponent=0.1))
    errors = np.array([network.consensus_error(moments) for moments in network.evolve(sampler, zero(6), 20_000)])
    steps = np.arange(1, 20_001)
    late = steps > 2000
    slope = np.polyfit(np.log(steps[late]), np.log(errors[late]), 1)[0]
    # Theorem 1 promises δ_2 − 2 δ_1 = 0.5. The noise alone falls by α/β, which is δ_2 − δ_1 = 0.6, and the agents'
    # different gradients by its square.
    assert 0.5 < 0.6 <= -slope < 0.7


def test_one_step_by_hand():
    network = GaussianNetwork.of(regression([3, 4]), cs.graphs.path(2))
    sampler = cs.dula(0.1, 0.3)
    (once,) = network.evolve(sampler, Moments(np.array([1.0, 0, 0, 1]), np.zeros((4, 4))), 1)
    first = np.array([1.0, 0])
    gradient = network.precisions[0] @ first - network.linear[0]
    expected = first - 0.3 * (first - np.array([0, 1.0])) - 0.1 * 2 * gradient
    np.testing.assert_allclose(once.mean[:2], expected, rtol=1e-9)
    np.testing.assert_allclose(once.covariance, 2 * 0.1 * 2 * np.eye(4))


def test_problems_that_are_not_gaussian_are_refused():
    with pytest.raises(ProblemError, match="not quadratic"):
        GaussianNetwork.of(EXPERIMENTS["gmm"].problem(2), cs.graphs.path(2))
