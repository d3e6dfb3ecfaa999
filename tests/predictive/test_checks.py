"""Checks against observed outcomes: they pass for the model that made them, and not for another."""

import jax
import numpy as np
import pytest

from consilience.predictive.checks import check_program, check_site
from consilience.predictive.outcomes import Pieces
from tests.outcome_problems import hospital_draws, hospitals, visits


def checked(problem, parameters, rows, block=None):
    with jax.enable_x64(True):
        program = check_program(problem.outcomes, 0)
        pieces = Pieces([lambda: iter([parameters])])
        return check_site(problem.outcomes, program, pieces, rows, block or len(rows["x"]))


def outside(one):
    return sum(
        not low <= seen <= high for low, seen, high in zip(one["low"], one["observed"], one["high"], strict=True)
    )


@pytest.mark.parametrize("kind", ["number", "count"])
def test_the_true_model_covers_what_it_made_and_another_does_not(kind):
    problem = visits(sizes=(2000,), kind=kind)
    rows = problem.shards[0]
    right = checked(problem, {"w": np.tile([0.5, 0.4], (200, 1))}, rows)["y"]
    assert sum(right["observed"]) == 2000
    assert np.diff(right["edges"]).min() > 0
    assert len(right["edges"]) == len(right["observed"]) + 1 == len(right["low"]) + 1
    assert outside(right) <= 0.3 * len(right["observed"])
    assert 0.001 < right["statistics"]["mean"]["share_above"] < 0.999
    wrong = checked(problem, {"w": np.tile([1.5, 0.4], (200, 1))}, rows)["y"]
    assert wrong["statistics"]["mean"]["share_above"] == 1.0
    assert outside(wrong) > outside(right)
    assert sum(wrong["high"]) >= 2000


def test_counts_have_bins_of_whole_numbers():
    problem = visits(sizes=(300,))
    found = checked(problem, {"w": np.tile([0.5, 0.4], (50, 1))}, problem.shards[0])["y"]
    edges = np.array(found["edges"])
    assert (edges % 1 == 0.5).all()
    observed = problem.shards[0]["y"]
    inside = (observed > edges[0]) & (observed < edges[-1])
    assert sum(found["observed"]) == 300
    np.testing.assert_array_equal(np.histogram(observed[inside], edges)[0][1:-1], np.array(found["observed"])[1:-1])


def test_calibration_of_zeros_and_ones():
    problem = hospitals((3000,))
    rows = problem.shards[0]
    draws = hospital_draws(200, 1, 1)
    truth = {"coefficients": np.tile([-0.3, 0.8, 1.1], (200, 1)), "site_effect": np.full((200, 1), -0.6 / 0.7)}
    right = checked(problem, truth, rows, block=700)["died"]
    assert right["rows"] == [300] * 10
    assert outside(right) <= 3
    assert np.all(np.diff(right["predicted"]) >= 0)
    assert right["statistics"]["mean"]["observed"] == pytest.approx(rows["y"].mean())
    too_sure = {"coefficients": 3 * truth["coefficients"], "site_effect": 3 * truth["site_effect"]}
    assert outside(checked(problem, too_sure, rows)["died"]) >= 6
    assert draws["coefficients"].shape == (1, 200, 3)


def test_a_site_with_one_row():
    problem = hospitals((1,))
    truth = {"coefficients": np.zeros((20, 3)), "site_effect": np.zeros((20, 1))}
    assert checked(problem, truth, problem.shards[0])["died"]["rows"] == [1]
