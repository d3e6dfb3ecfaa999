"""Newton on sums: it ends in the posterior's bulk, with private parameters too, whatever their scales."""

import jax.numpy as jnp
import numpy as np
import pytest

import consilience as cs
from consilience.errors import ProblemError
from consilience.theory import GaussianNetwork
from consilience.warmup.derivatives import LocalPotentials
from consilience.warmup.network import Network
from consilience.warmup.newton import factors, newton
from tests.gaussian import regression
from tests.hierarchical import quadratics, ragged, sites


def network_of(problem):
    return Network(np.arange(problem.num_agents), problem.num_agents, lambda values: values.sum(0))


def test_of_a_gaussian_posterior_it_finds_mean_and_covariance():
    problem = regression([4, 9, 5], num_features=3)
    exact = GaussianNetwork.of(problem, cs.graphs.ring(3)).posterior
    found = newton(LocalPotentials(problem), network_of(problem), np.full((3, 3), 9.0), 3)
    np.testing.assert_allclose(found.positions, np.tile(exact.mean, (3, 1)), atol=1e-8)
    np.testing.assert_allclose(found.root @ found.root.T, exact.covariance, rtol=1e-8)


def test_private_parameters_are_eliminated_by_their_agent():
    """The Schur complement and the regression on shared parameters are those of the joint posterior."""
    problem = sites((4, 9, 6))
    hessians, linear = quadratics(problem)
    joint, push = np.zeros((4, 4)), np.zeros(4)
    for agent, (hessian, own) in enumerate(zip(hessians, linear, strict=True)):
        both = [0, 1 + agent]
        joint[np.ix_(both, both)] += hessian
        push[both] += own
    covariance = np.linalg.inv(joint)
    mode = covariance @ push
    found = newton(LocalPotentials(problem), network_of(problem), np.full((3, 2), 7.0), 4)
    np.testing.assert_allclose(found.positions, np.stack([np.full(3, mode[0]), mode[1:]], 1), atol=1e-7)
    np.testing.assert_allclose(found.root**2, covariance[:1, :1], rtol=1e-7)
    along = covariance[1:, 0] / covariance[0, 0]
    np.testing.assert_allclose(found.shear[:, 0, 0], along, rtol=1e-7)
    given = np.diag(covariance)[1:] - along * covariance[1:, 0]
    np.testing.assert_allclose(found.own_root[:, 0, 0] ** 2, given, rtol=1e-7)


def test_it_stops_short_of_the_mode_of_a_funnel():
    """There a scale's logarithm runs off to where its effects are all alike, and the bulk is left behind."""
    rng = np.random.default_rng(0)
    shards = [
        (np.eye(8)[[2 * i, 2 * i + 1] * 4], rng.normal(size=8) + np.tile(rng.normal(size=2), 4)) for i in range(4)
    ]
    problem = cs.Problem(
        log_likelihood=lambda w, rows: -0.5 * (rows[1] - rows[0] @ w["effect"]) ** 2,
        log_prior=lambda w: (
            -0.5 * w["log_scale"] ** 2
            - 8 * w["log_scale"]
            - 0.5 * (w["effect"] ** 2).sum() * jnp.exp(-2 * w["log_scale"])
        ),
        init=lambda key: {"effect": jnp.zeros(8), "log_scale": jnp.zeros(())},
        shards=shards,
    )
    found = newton(LocalPotentials(problem), network_of(problem), np.zeros((4, 9)), 9)
    mode = newton(LocalPotentials(problem), network_of(problem), np.zeros((4, 9)), 1e-8)
    assert found.positions[0, 8] > mode.positions[0, 8] + 1
    assert found.iterations < mode.iterations
    assert np.isfinite(found.root).all()


def test_scales_far_apart_do_not_hide_each_other():
    """Without scaling to a unit diagonal the floor of eigenvalues would cover the wide direction."""
    hessian = np.diag([1e12, 1.0]) + 1e5 * np.array([[0, 1], [1, 0]])
    root = factors(hessian).root
    np.testing.assert_allclose(root @ root.T @ hessian, np.eye(2), atol=1e-6)
    values, vectors = np.linalg.eigh(hessian)
    floored = (vectors / np.maximum(values, 1e-6 * values.max())) @ vectors.T
    assert np.abs(floored @ hessian - np.eye(2)).max() > 0.5


@pytest.mark.slow(reason="a large program to compile")
def test_agents_of_different_lengths():
    problem = ragged()
    found = newton(LocalPotentials(problem), network_of(problem), np.zeros((4, 9)), 4 + 15)
    assert np.isfinite(found.positions).all()
    np.testing.assert_array_equal(found.positions[0, 7:], 0)  # the first agent's filling stays where it is


def test_a_start_without_a_likelihood_is_refused():
    problem = cs.Problem(
        log_likelihood=lambda w, x: jnp.log(w - x),
        log_prior=lambda w: -(w**2),
        init=lambda key: jnp.zeros(()),
        shards=[np.ones(2), np.ones(3)],
    )
    with pytest.raises(ProblemError, match="not finite where the agents start"):
        newton(LocalPotentials(problem), network_of(problem), np.zeros((2, 1)), 1)


def doubled(laplace):
    """Two features that are the same: the rows say nothing about the difference of their weights, the prior all."""
    rng = np.random.default_rng(3)
    one = rng.normal(size=(200, 1))
    labels = (rng.random(200) < 1 / (1 + np.exp(-1.5 * one[:, 0]))).astype(int)
    shards = [(np.hstack([one, one])[part], labels[part]) for part in np.array_split(np.arange(200), 2)]
    return cs.models.logistic_regression(shards, "laplace" if laplace else "normal")


@pytest.mark.parametrize("laplace", [True, False])
def test_a_direction_that_only_a_prior_with_a_kink_holds_has_the_posteriors_width(laplace):
    problem = doubled(laplace)
    network = Network(np.arange(2), 2, lambda values: values.sum(0))
    potentials = LocalPotentials(problem)
    found = newton(potentials, network, np.tile([0.3, -0.2], (2, 1)), 2)
    axis = np.linspace(-6, 6, 241)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    values = potentials.values(np.repeat(grid[:, None], 2, 1)).sum(1)
    weights = np.exp(values.min() - values)
    weights /= weights.sum()
    difference = np.array([1.0, -1.0]) / np.sqrt(2)
    exact = np.sqrt(weights @ ((grid - weights @ grid) @ difference) ** 2)
    assert 0.5 < np.linalg.norm(found.root.T @ difference) / exact < 1.5
    centre = found.positions[0]
    blind = factors(potentials.at(found.positions).hessians.sum(0)).root  # the control: by the Hessian alone
    assert (np.linalg.norm(blind.T @ difference) / exact > 50) == laplace
    assert np.abs((centre - weights @ grid) @ difference) < 2 * exact
