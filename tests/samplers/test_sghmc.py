"""DE-SGHMC: the scaling by `n`, where it is stable, and what it chooses for a problem. The contract tests its law."""

import numpy as np
import pytest

import consilience as cs
from consilience.errors import PlanError
from consilience.samplers import SGHMC, Landscape
from consilience.theory import ExactLaw, GaussianNetwork
from tests.gaussian import regression


def equal_agents(graph, curvature):
    """Agents with the same one-dimensional potential of some curvature."""
    n = graph.num_agents
    return GaussianNetwork(graph, np.full((n, 1, 1), curvature), np.ones((n, 1)))


def average_variance(sampler, network):
    law = ExactLaw(network, sampler)
    return float(network.average(law.positions(law.stationary())).covariance[0, 0])


def test_the_average_has_the_posteriors_variance_and_no_other_scaling_does():
    """With 7 agents a factor `n` in the wrong place changes the variance sevenfold."""
    network = equal_agents(cs.graphs.complete(7), 0.5)
    posterior, good = float(network.posterior.covariance[0, 0]), cs.sghmc(1e-3, 0.1, friction=2.0)
    assert average_variance(good, network) == pytest.approx(posterior, rel=0.01)

    class NoiseOfVarianceOne(SGHMC):
        def coefficients(self, k, n):
            right = super().coefficients(k, n)
            return right._replace(deviation=right.deviation / n**0.5)

    class GradientWithoutFactor(SGHMC):
        def coefficients(self, k, n):
            right = super().coefficients(k, n)
            return right._replace(drift=right.drift / n)

    entries = {"step_size": 1e-3, "consensus": 0.1, "friction": 2.0}
    assert average_variance(NoiseOfVarianceOne(**entries), network) == pytest.approx(posterior / 7, rel=0.01)
    assert average_variance(GradientWithoutFactor(**entries), network) == pytest.approx(7 * posterior, rel=0.01)


def test_one_agent_is_the_centralized_algorithm():
    """Written out by hand, without noise."""
    sampler = cs.sghmc(0.1, 0.3, friction=0.5, temperature=0.0)
    law = ExactLaw(equal_agents(cs.graphs.ring(1), 2.0), sampler)
    w = v = 0.0
    for k, moments in enumerate(law.evolve(20)):
        v = v - 0.1 * (0.5 * v + (2.0 * w - 1.0))
        w = w + 0.1 * v
        assert float(law.positions(moments).mean[0]) == pytest.approx(w, rel=1e-9), k


@pytest.mark.parametrize("graph", [cs.graphs.ring(6), cs.graphs.star(5), cs.graphs.path(2)], ids=lambda g: g.name)
@pytest.mark.parametrize("friction", [0.3, 3.0])
def test_the_limit_of_stability_is_where_the_formula_says(graph, friction):
    curvature, consensus = 1.5, 0.4 * graph.stable_consensus_limit
    strength = consensus * graph.largest_eigenvalue
    steps = np.linspace(0.01, 2 / friction, 4000)[:-1]
    limit = steps[steps**2 * graph.num_agents * curvature < (2 - strength) * (2 - steps * friction)].max()

    def radius(step):
        found = ExactLaw(equal_agents(graph, curvature), cs.sghmc(step, consensus, friction)).step(0)
        return np.abs(np.linalg.eigvals(found.transition)).max()

    assert radius(0.99 * limit) < 1
    assert radius(1.01 * limit) > 1
    for step, level in ((0.9 * limit, "ok"), (1.1 * limit, "error")):
        found = cs.sghmc(step, consensus, friction).findings(graph, 100, curvature)
        assert found[-1].level == level, found


def test_what_is_wrong_is_told():
    graph = cs.graphs.ring(5)
    assert cs.sghmc(0.5, 0.2, friction=5.0).findings(graph, 10, None)[1].level == "error"
    assert cs.sghmc(0.3, 0.2, friction=5.0).findings(graph, 10, None)[1].level == "warning"
    assert cs.sghmc(0.1, 0.9, friction=1.0).findings(graph, 10, 1.0)[0].level == "error"
    falling = cs.FromTo(start=2.0, end=0.01, num_steps=100, exponent=0.6)
    assert cs.sghmc(falling, 0.2, friction=0.1).findings(graph, 100, 1.0)[-1].level == "warning"
    with pytest.raises(PlanError, match="friction"):
        cs.sghmc(0.1, 0.2, friction=0.0)
    with pytest.raises(PlanError, match="'friction' is missing"):
        SGHMC(step_size=0.1, consensus=0.2)


@pytest.mark.parametrize("relaxation", [None, 40.0])
def test_its_own_choice_is_stable_and_agents_agree(relaxation):
    """The excess variance that it promises is the one of the exact law, for agents with flat potentials."""
    graph, landscape = cs.graphs.path(4), Landscape(2.0, 6.0, "made up", relaxation)
    sampler, reasons, _ = SGHMC.suggest(landscape, graph, 10_000)
    assert all(finding.level == "ok" for finding in sampler.findings(graph, 10_000, 2.0))
    last = float(sampler.step_size(9_999))
    constant = cs.sghmc(last, sampler.consensus, sampler.friction)
    law = ExactLaw(equal_agents(graph, 1e-6), constant)
    positions = law.positions(law.stationary())
    spread = np.diag(positions.covariance) - float(GaussianNetwork.average(law.network, positions).covariance[0, 0])
    share = float(reasons[-1].split("at most ")[1].split("%")[0]) / 100
    assert share <= 0.05
    assert spread.max() * 6.0 == pytest.approx(share, rel=0.05)


def test_agents_with_different_data_are_biased_in_proportion_to_the_step():
    """Nothing corrects for it: what the documents say of heterogeneous silos, from the exact law."""
    problem, graph = regression([20, 30, 25], noise_variance=1.0), cs.graphs.complete(3)
    network = GaussianNetwork.of(problem, graph)

    def bias(step):
        law = ExactLaw(network, cs.sghmc(step, 0.25, friction=4.0))
        means = law.positions(law.stationary()).mean.reshape(3, 2)
        return np.abs(means - network.posterior.mean).max()

    assert bias(0.01) > 0.1
    assert bias(0.01) / bias(0.0025) == pytest.approx(4, rel=0.2)
