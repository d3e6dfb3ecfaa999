"""Both theorems hold at every step against the exact dynamics, and the tight recursion lies in between."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings

import consilience as cs
from consilience.theory import (
    ConsensusBound,
    DivergenceBound,
    GaussianNetwork,
    Moments,
    Setting,
    consensus_recursion,
    divergence_recursion,
    exact_path,
    gaussian_constants,
    theorem_inputs,
)
from tests.gaussian import regression
from tests.theory.gaussian_networks import cases

pytestmark = pytest.mark.slow(reason="many random networks, followed exactly")

STEPS = np.arange(301)
ROUNDING = 1e-9


def bounds(case, as_printed=False):
    """Exact values, tight bounds and closed forms of one case, after 0 … 300 steps."""
    network, sampler, start = case
    path = exact_path(network, sampler, start, STEPS)
    constants = gaussian_constants(network)
    inputs = theorem_inputs(constants, network, sampler, start)
    if as_printed:
        inputs = inputs._replace(coupling=constants.smoothness.value**2)
    setting = Setting.of(case.graph, sampler, case.dimension)
    closed = ConsensusBound(setting, path.gradient_disagreement, path.consensus_error[0], as_printed)
    tight = consensus_recursion(
        case.graph, sampler, case.dimension, path.gradient_disagreement, path.consensus_error[0], STEPS[-1]
    )
    return path, inputs, closed, tight


@given(cases())
@settings(max_examples=120, deadline=None)
def test_theorem_1_holds_and_its_recursion_lies_between(case):
    path, _, closed, tight = bounds(case)
    assert (path.consensus_error <= tight * (1 + ROUNDING) + 1e-12).all()
    if case.graph.num_agents == 1:
        assert (tight == 0).all()
    else:
        assert (np.log(tight[1:]) <= closed(STEPS[1:]).log + ROUNDING).all()
        assert (closed(STEPS[1:]).log <= closed.at_rate(STEPS[1:]).log + ROUNDING).all()


@given(cases())
@settings(max_examples=120, deadline=None)
def test_theorem_2_holds_and_its_recursion_lies_between(case):
    path, inputs, consensus, tight_consensus = bounds(case)
    tight = divergence_recursion(inputs, case.sampler, case.dimension, tight_consensus)
    closed = DivergenceBound(consensus, inputs)(STEPS[1:])
    assert (np.log(path.divergence[1:]) <= tight.log[1:] + ROUNDING).all()
    assert (tight.log[1:] <= closed.log + ROUNDING).all()


@given(cases(least_agents=2, least_consensus_exponent=0.01))
@settings(max_examples=60, deadline=None)
def test_the_constants_as_printed_hold_too_where_they_are_defined(case):
    path, inputs, consensus, _ = bounds(case, as_printed=True)
    assert (path.consensus_error[1:] <= consensus(STEPS[1:]).floats() * (1 + ROUNDING)).all()
    assert (np.log(path.divergence[1:]) <= DivergenceBound(consensus, inputs)(STEPS[1:]).log + ROUNDING).all()


LATER = np.unique(np.geomspace(1, 300_000, 200).astype(int))


def easy_network(num_agents=5, shift=0.0):
    """Agents with equal curvature: inside the conditions its steps are large, so that bounds get small."""
    linear = shift * np.array([1.0, -1.0] + [0.0] * (num_agents - 2))[:, None]
    return GaussianNetwork(cs.graphs.ring(num_agents), np.full((num_agents, 1, 1), 1 / num_agents), linear)


def bounds_later(network, sampler, start):
    """The tight bounds of a network at `LATER`, and Theorem 2 in closed form."""
    graph, size = network.graph, network.linear.shape[1]
    path = exact_path(network, sampler, start, LATER)
    tight = consensus_recursion(graph, sampler, size, path.gradient_disagreement, 0.0, LATER[-1])
    inputs = theorem_inputs(gaussian_constants(network), network, sampler, start)
    consensus = ConsensusBound(Setting.of(graph, sampler, size), path.gradient_disagreement, 0.0)
    divergence = divergence_recursion(inputs, sampler, size, tight)
    return tight[LATER], divergence.floats()[LATER], DivergenceBound(consensus, inputs)(LATER).floats(), path


PROVEN = cs.dula(cs.Polynomial(scale=0.12, exponent=0.7), 0.24)
AT_ZERO = Moments(np.zeros(5), np.zeros((5, 5)))


def test_noise_of_variance_1_instead_of_n_violates_theorem_2():
    """The average then samples at temperature 1/n; the closed form itself is small enough to notice."""
    network = easy_network()
    _, tight, closed, right = bounds_later(network, PROVEN, AT_ZERO)
    wrong = exact_path(network, PROVEN.model_copy(update={"temperature": 1 / 5}), AT_ZERO, LATER)
    assert (right.divergence <= tight).all()
    assert wrong.divergence[-1] > closed[-1] > tight[-1]
    assert wrong.consensus_error[-1] < right.consensus_error[-1]  # Theorem 1 cannot notice: there is less noise


class OneSided:
    """A graph in which the first agent does not listen to the second, who listens to it."""

    def __init__(self, graph):
        dense = graph.laplacian.toarray()
        dense[0, 0] += dense[0, 1]
        dense[0, 1] = 0.0
        self.num_agents, self.laplacian = graph.num_agents, scipy.sparse.csr_array(dense)


def test_an_edge_used_by_one_end_only_violates_theorem_2():
    """Mixing then no longer preserves the average, and agents' data counts with different weights."""
    network = easy_network(shift=1.0)
    _, tight, closed, right = bounds_later(network, PROVEN, AT_ZERO)
    wrong = exact_path(dataclasses.replace(network, graph=OneSided(network.graph)), PROVEN, AT_ZERO, LATER)
    assert (right.divergence <= tight).all()
    assert wrong.divergence[-1] > closed[-1] > tight[-1]


def slope(values, since=10_000):
    late = since < LATER
    return -np.polyfit(np.log(LATER[late]), np.log(values[late]), 1)[0]


@pytest.mark.parametrize("delta_2", [0.6, 0.7, 0.9])
def test_with_a_constant_consensus_step_the_exact_slope_is_the_theorems(delta_2):
    """`δ_2 − 2δ_1 = δ_2` for `δ_1 = 0`."""
    sampler = cs.dula(cs.Polynomial(scale=0.1, exponent=delta_2), 0.24)
    tight, _, _, path = bounds_later(easy_network(), sampler, AT_ZERO)
    assert slope(path.consensus_error) == pytest.approx(delta_2, abs=0.005)
    assert slope(tight) == pytest.approx(delta_2, abs=0.01)


@pytest.mark.parametrize(("delta_1", "delta_2"), [(0.05, 0.7), (0.2, 0.8), (0.3, 0.95)])
def test_the_slope_of_theorem_1_is_attained_by_the_worst_gradients_that_assumption_3_allows(delta_1, delta_2):
    """Gradients that differ by `(n μ_g)^½ (k+1)^{δ_2/2}` along the slowest pattern: nothing better can be proven.

    A Gaussian network's gradients do not grow like that, and its consensus error falls like `δ_2 − δ_1`.
    """
    graph, a, b, size = cs.graphs.ring(5), 0.1, 0.24, 5
    sampler = cs.dula(cs.Polynomial(scale=a, exponent=delta_2), cs.Polynomial(scale=b, exponent=delta_1))
    slowest = np.linalg.eigh(graph.laplacian.toarray())[1][:, 1]
    k = np.arange(LATER[-1])
    push = sampler.step_size(k) * size * np.sqrt(size) * (k + 1.0) ** (delta_2 / 2)
    keep = 1 - sampler.consensus(k) * graph.algebraic_connectivity
    error = np.zeros(size)
    apart = np.empty(len(k))
    for i in range(len(k)):
        error = keep[i] * error - push[i] * slowest  # the pattern is an eigenvector of the Laplacian
        apart[i] = error @ error
    tight = consensus_recursion(graph, sampler, 1, 1.0, 0.0, int(LATER[-1]))
    closed = ConsensusBound(Setting.of(graph, sampler, 1), 1.0, 0.0)(LATER).floats()
    promised = delta_2 - 2 * delta_1
    assert slope(apart[LATER - 1]) == pytest.approx(promised, abs=0.02)
    assert slope(closed) == pytest.approx(promised, abs=0.001)
    assert (apart[LATER - 1] <= tight[LATER]).all()
    path = exact_path(easy_network(), sampler, AT_ZERO, LATER)
    assert slope(path.consensus_error) == pytest.approx(delta_2 - delta_1, abs=0.02)


def test_the_papers_bound_on_the_coupling_fails_for_many_agents():
    """`‖ζ‖² ≤ L² ‖w̃‖²` (S126) lacks a factor: half of the agents flat, half steep, is a counterexample."""
    steep = np.repeat([1.0, 0.0], 4)
    apart = np.repeat([1.0, -1.0], 4)
    zeta = steep @ apart
    assert zeta**2 > steep.max() ** 2 * (apart @ apart)
    assert zeta**2 <= (steep**2).sum() * (apart @ apart)


def test_exact_path_agrees_with_the_step_by_step_recursion():
    network = GaussianNetwork.of(regression([4, 9, 20]), cs.graphs.ring(3))
    start = Moments(np.arange(6.0), 0.5 * np.eye(6))
    sampler = cs.dula(cs.Polynomial(scale=0.01, exponent=0.7), 0.2)
    path = exact_path(network, sampler, start, [0, 1, 7, 40])
    every = [start, *network.evolve(sampler, start, 40)]
    for place, k in enumerate(path.steps):
        average = network.average(every[k])
        np.testing.assert_allclose(path.mean[place], average.mean, rtol=1e-9)
        np.testing.assert_allclose(path.covariance[place], average.covariance, rtol=1e-9)
        assert path.consensus_error[place] == pytest.approx(network.consensus_error(every[k]))
    draws = (
        np.random.default_rng(0).multivariate_normal(every[0].mean, every[0].covariance, 200_000).reshape(-1, 3, 2)
    )
    gradients = np.einsum("iab,kib->kia", network.precisions, draws) - network.linear
    apart = ((gradients - gradients.mean(1, keepdims=True)) ** 2).sum((1, 2)).mean() / 3
    assert path.gradient_disagreement == pytest.approx(apart, rel=0.02)  # largest at the start here


def test_the_stationary_law_is_where_constant_steps_lead():
    network = GaussianNetwork.of(regression([4, 9, 20]), cs.graphs.ring(3))
    sampler = cs.dula(2e-3, 0.2)
    *_, settled = network.evolve(sampler, Moments(np.zeros(6), np.zeros((6, 6))), 5000)
    law = network.stationary(sampler, 0)
    np.testing.assert_allclose(law.mean, settled.mean, rtol=1e-6)
    np.testing.assert_allclose(law.covariance, settled.covariance, rtol=1e-6, atol=1e-12)


def test_an_exact_path_of_no_steps_is_the_start():
    network, start = easy_network(), Moments(np.arange(5.0), np.eye(5))
    path = exact_path(network, PROVEN, start, [0])
    assert path.consensus_error[0] == pytest.approx(network.consensus_error(start))
    assert path.mean[0] == pytest.approx(2.0)


def test_tiny_disagreement_beside_a_large_spread_is_not_lost_to_rounding():
    network = easy_network()
    common = 1e6 * np.ones((5, 5)) + 1e-9 * np.eye(5)
    path = exact_path(network, PROVEN, Moments(np.zeros(5), common), [0])
    assert path.consensus_error[0] == pytest.approx(4e-9, rel=0.3)
