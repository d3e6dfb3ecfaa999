"""What a check says of the errors that `kinetic` and `langevin` leave, before anything runs."""

import numpy as np
import pytest

import consilience as cs
from consilience.errors import UnstableError
from consilience.planning.checks import check
from consilience.planning.foresight import errors_left, foreseen
from consilience.theory import ExactLaw, GaussianNetwork
from tests.gaussian import regression
from tests.hierarchical import sites


@pytest.fixture(scope="module")
def unequal():
    return regression([3, 20, 8, 40], num_features=3, noise_variance=0.5)


def plan_of(sampler, graph=None, **entries):
    return cs.Plan(graph=graph or cs.graphs.path(4), sampler=sampler, **{"num_draws": 10, **entries})


def test_with_numbers_given_it_is_the_exact_law(unequal):
    """In the model's own coordinates, so nothing of the warm-up is in it."""
    sampler = cs.kinetic(0.02, 2, whitening="none")
    plan = plan_of(sampler, num_draws=None, num_steps=10)
    found = foreseen(plan, unequal)
    network = GaussianNetwork.of(unequal, plan.graph)
    law = ExactLaw(network, sampler)
    ratios = np.diag(law.positions(law.stationary()).covariance).reshape(4, 3) / np.diag(network.posterior.covariance)
    worst = np.abs(ratios - 1).argmax(1)
    np.testing.assert_allclose(found["variance_error"], ratios[np.arange(4), worst] - 1, rtol=1e-5)
    np.testing.assert_allclose(found["mean_error"], 0, atol=1e-6)
    assert (found["step_size"], found["exchanges"]) == (0.02, 2)
    assert np.abs(ratios - 1).max() > 0.01  # a prediction of nothing would fail


def test_a_check_says_what_is_left_and_warns_of_much(unequal):
    """The step size is 0.45: of a normal posterior Newton's approximation is the posterior, and `Λ = 1`."""
    (finding,) = errors_left(plan_of(cs.kinetic(), batch_size=3), unequal)
    assert (finding.level, finding.topic) == ("ok", "errors left")
    assert "means < 0.001 sd off, variances +" in finding.message
    assert "the noise of minibatches aside (step size 0.45, exchanges in a step " in finding.message
    (finding,) = errors_left(plan_of(cs.kinetic(exchanges=1)), unequal)
    assert finding.level == "warning"
    assert "exchanges in a step 1)" in finding.message


def test_numbers_without_a_stationary_law_are_an_error(unequal):
    """Stable against a curvature of 1, but not with so little mixing of agents that differ: the exact law knows."""
    plan = plan_of(cs.kinetic(1.5, 1))
    assert all(finding.level != "error" for finding in check(plan, unequal))
    (finding,) = errors_left(plan, unequal)
    assert (finding.level, finding.topic) == ("error", "errors left")
    assert "spectral radius" in finding.message
    assert "to the warm-up" in finding.remedy


@pytest.mark.parametrize("sampler", [cs.kinetic(300.0), cs.kinetic(3.0, 2), cs.langevin(5.0, 3)])
def test_step_sizes_that_no_coordinates_make_stable_are_refused(sampler, unequal, tmp_path):
    """By a check, and before a run makes its directory; the control: the step size that the warm-up would find."""
    plan = plan_of(sampler)
    assert {one.topic: one.level for one in check(plan, unequal)}["step size"] == "error"
    with pytest.raises(UnstableError, match="step size is unstable"):
        cs.sample(unequal, plan, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    stable = plan.replace(sampler=sampler.model_copy(update={"step_size": sampler.step_for(1.0)}))
    assert {one.topic: one.level for one in check(stable, unequal)}["step size"] == "ok"


@pytest.mark.parametrize(("problem", "why"), [
    (None, "agents do not tell each other; the plan names no problem"),
    (sites((4, 9, 6, 5)), "there are private parameters"),
    (regression([2] * 4, num_features=31), "124 numbers are more than 120"),
], ids=["at nodes", "private", "large"])  # fmt: skip
def test_what_is_not_known_is_said_in_words(problem, why):
    (finding,) = errors_left(plan_of(cs.kinetic()), problem)
    assert finding.level == "ok"
    assert finding.message.startswith("not known before it runs: ")
    assert why in finding.message


def test_of_other_samplers_and_one_agent_it_is_not_asked(unequal):
    assert errors_left(plan_of(cs.nuts()), unequal) == []
    assert errors_left(plan_of(cs.kinetic(), cs.graphs.path(1)), unequal.of_agent(0)) == []
