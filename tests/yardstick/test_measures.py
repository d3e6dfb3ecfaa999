"""Errors in standard deviations, what is left beyond noise, and costs of a draw."""

import numpy as np
import pytest

import consilience as cs
from consilience.posteriors import Reference
from consilience.yardstick.measures import is_false, judged
from consilience.yardstick.spending import spent

CHAINS, LENGTH = 4, 2500


def reference(mean, sd, error=0.01, has_sd=(True, True)):
    mean, sd, has_sd = np.array(mean), np.array(sd), np.array(has_sd)
    spread = 1.6449 * sd
    return Reference(
        ("slope", "spread"), mean, sd, mean - spread, mean + spread, error * sd, error * sd,
        np.full(2, error**-2), False, has_sd, "made up",
    )  # fmt: skip


def draws(mean, sd, seed=0):
    return np.array(mean) + np.array(sd) * np.random.default_rng(seed).normal(size=(CHAINS, LENGTH, 2))


def test_draws_of_the_reference_have_no_error_beyond_noise():
    """10,000 independent draws; four standard errors are exceeded by one of four statistics in 4,000 seeds."""
    found = judged([draws([1, 2e5], [1e-3, 1e4])], [reference([1, 2e5], [1e-3, 1e4])])
    assert found["mean_error_beyond_noise"] == found["sd_error_beyond_noise"] == 0
    assert found["mean_error"] < 0.1
    assert found["tail_error"] < 0.03
    assert 5_000 < found["ess_mean"] < 15_000
    assert 5_000 < found["ess_square"] < 15_000


def test_the_worst_parameter_at_the_worst_agent_counts():
    right, known = draws([0, 0], [1, 1]), reference([0, 0], [1, 1])
    found = judged([right, draws([0, 0.5], [1, 0.8])], [known, known])
    assert found["worst_parameter"] == "spread at agent 1"
    assert found["mean_error"] == pytest.approx(0.5, abs=0.1)
    assert 0.3 < found["mean_error_beyond_noise"] < found["mean_error"]
    assert found["sd_ratio_smallest"] == pytest.approx(0.8, abs=0.05)
    assert found["sd_ratio_largest"] == pytest.approx(1.0, abs=0.05)
    assert 0.1 < found["sd_error_beyond_noise"] < 0.2


def test_a_parameter_without_a_variance_is_judged_by_its_tails():
    """A shift by half a standard deviation moves the share below a quantile from 5 % to 13 %, 0.8 by the density."""
    known = reference([0, 0], [1, 1], has_sd=(True, False))
    right, shifted, lost = (judged([draws([0, middle], [1, 1])], [known]) for middle in (0, -0.5, 50))
    assert right["shift_without_sd"] == 0
    assert 0.3 < shifted["shift_without_sd"] < 0.8
    assert shifted["mean_error"] == lost["mean_error"] < 0.1
    assert lost["tail_error"] > 0.9
    assert [is_false({**one, "converged": True}) for one in (right, shifted, lost)] == [False, True, True]
    everywhere = judged([draws([0, -0.5], [1, 1])], [reference([0, 0], [1, 1])])
    assert everywhere["shift_without_sd"] == 0
    assert everywhere["mean_error"] > 0.4


def test_draws_that_do_not_move_are_worth_one():
    found = judged([np.ones((CHAINS, LENGTH, 2))], [reference([0, 0], [1, 1])])
    assert found["ess_mean"] == 1
    assert found["mean_error"] == 1


def test_a_verdict_is_false_only_if_one_was_made():
    assert is_false({"converged": True, "mean_error": 0.3})
    assert not is_false({"converged": True, "mean_error": 0.1})
    assert not is_false({"converged": False, "mean_error": 3.0})
    assert not is_false({"converged": None, "mean_error": 3.0})
    assert not is_false({"failed": "it diverged"})


@pytest.mark.parametrize(
    ("sampler", "rounds", "numbers", "messages"),
    [
        (cs.kinetic(), 600, 2 * 3, 600 * 2 * 5),
        (cs.langevin(), 600, 3, 600 * 2 * 5),
        (cs.nuts(), 1200, 3 + 2, 300 * 2 * 4),
    ],
)
def test_bytes_of_messages(sampler, rounds, numbers, messages):
    """On a ring of 5, in which a sum takes 4 hops: both directions of 5 edges, or of a tree's 4."""
    plan = cs.Plan(graph=cs.graphs.ring(5), sampler=sampler, num_draws=100, num_chains=2)
    summary = {"rounds": 1000, "warmup_rounds": 1000 - rounds, "gradients": 500, "warmup_gradients": 200}
    found = spent(plan, summary, {"ess_mean": 50.0, "ess_square": 25.0}, num_shared=3)
    assert found["rounds_per_effective_mean"] == 2 * rounds / 50
    assert found["gradients_per_effective_square"] == 2 * 300 / 25
    assert found["bytes_per_effective_mean"] == 2 * messages * numbers * 8 / 50
    assert found["warmup_rounds"] == 1000 - rounds
