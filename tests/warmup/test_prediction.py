"""What is left is predicted: the exact law of the numbers found, beside what draws show."""

import jax
import numpy as np
import pytest

import consilience as cs
from consilience.engines.simulate import simulation
from consilience.kernel.parameters import Parameters
from consilience.kernel.tuning import Tuning
from consilience.kernel.whitening import Dense, identity
from consilience.theory import GaussianNetwork
from consilience.warmup.network import Network
from consilience.warmup.prediction import MOST_NUMBERS
from consilience.warmup.stages import WarmUp
from tests.gaussian import regression
from tests.hierarchical import sites

OPTIMISED = True


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def unequal():
    return regression([3, 20, 8, 40], num_features=3, noise_variance=0.5)


def warm_up(problem, graph, here=None, temperature=1.0):
    agents = np.arange(problem.num_agents)[:here]
    network = Network(agents, problem.num_agents, lambda values: values.sum(0))
    plan = cs.Plan(graph=graph, sampler=cs.kinetic(temperature=temperature), num_draws=10)
    return WarmUp(problem, plan, Parameters.of(problem, np.float64), network)


def tuning(problem, graph, step=0.4, exchanges=1):
    """Whitened by the posterior itself."""
    posterior = GaussianNetwork.of(problem, graph).posterior
    blank = identity(len(posterior.mean), problem.num_agents, 0)
    assert isinstance(blank, Dense)
    whitening = blank._replace(mean=posterior.mean, root=np.linalg.cholesky(posterior.covariance))
    return Tuning(np.float64(step), np.int64(exchanges), np.float64(1.0), whitening)


@pytest.mark.slow(reason="four laws to compile")
def test_agents_of_a_complete_graph_are_exact_and_others_are_not(unequal):
    """One exchange makes agents of a complete graph equal, and BAOAB's variance of a normal law is exact."""
    graph = cs.graphs.complete(4)
    found = warm_up(unequal, graph).predicted(tuning(unequal, graph))
    for errors in found.values():
        np.testing.assert_allclose(errors, 0, atol=1e-7)
    graph = cs.graphs.path(4)
    few = warm_up(unequal, graph).predicted(tuning(unequal, graph, exchanges=2))
    many = warm_up(unequal, graph).predicted(tuning(unequal, graph, exchanges=12))
    np.testing.assert_allclose(few["mean_error"], 0, atol=1e-7)  # what the correction is for
    assert np.abs(few["variance_error"]).max() > 10 * np.abs(many["variance_error"]).max() > 0
    cold = warm_up(unequal, graph, temperature=0.0).predicted(tuning(unequal, graph, exchanges=2))
    for name, errors in few.items():  # variances are compared with those at the temperature, not with the posterior's
        np.testing.assert_allclose(cold[name], errors, atol=1e-9)


def test_what_is_not_predicted_says_why(unequal):
    graph = cs.graphs.path(4)
    assert "do not tell each other" in warm_up(unequal, graph, here=2).predicted(tuning(unequal, graph))["left_out"]
    private = sites((4, 9, 6))
    known = tuning(unequal, graph)
    assert warm_up(private, cs.graphs.path(3)).predicted(known)["left_out"] == "there are private parameters"
    many = regression([2] * 41, num_features=3)
    assert f"more than {MOST_NUMBERS}" in warm_up(many, cs.graphs.path(41)).predicted(known)["left_out"]


@pytest.mark.slow(reason="a run of forty thousand steps")
def test_draws_differ_between_agents_as_predicted(unequal):
    """Of one exchange on a path, where variances at agents differ by tens of per cent.

    The ratio of an agent's variance to the average's has an error of about `sqrt(2 |1 − r²|/N)` for draws that go
    together by `r`; 0.04 is more than six of them with 8,000 effective draws.
    """
    graph = cs.graphs.path(4)
    plan = cs.Plan(graph=graph, sampler=cs.kinetic(exchanges=2), num_draws=5000)
    stepper = simulation(unequal, plan)
    state, step, parts = stepper.initial_state(), 0, []
    while step < plan.num_steps:
        state, segment = stepper.advance(state, step, min(stepper.max_steps, plan.num_steps - step))
        step = segment.last_step
        parts.append(segment.draws)
    draws = np.concatenate(parts)  # draws, chains, agents, parameters
    excess = draws.var((0, 1)) / draws.mean(2).var((0, 1)) - 1
    measured = excess[np.arange(4), np.abs(excess).argmax(1)]
    predicted = np.array(stepper.found(state)["predicted"]["excess"])
    np.testing.assert_allclose(measured, predicted, atol=0.04)
    assert np.abs(predicted).max() > 0.1  # a prediction of nothing would fail
