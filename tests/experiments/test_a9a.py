"""a9a, shortened: repetitions with data of their own, accuracies, the report."""

import json

import numpy as np
import pytest

import consilience as cs
from consilience.experiments import EXPERIMENTS
from consilience.experiments.a9a import _split, packed, read_accuracy, unpacked
from consilience.sampling import series
from tests.datasets.test_loaders import require_here, where  # noqa: F401 - the fixture finds the data

A9A = EXPERIMENTS["a9a"]


def test_plans_are_the_papers_without_the_data():
    plans = A9A.plans()
    assert {name: plan.num_steps for name, plan in plans.items()} == {
        "c-ula": 26040, "d-ula-5": 5200, "d-ula-10": 2600, "d-ula-25": 1040
    }  # fmt: skip
    assert float(plans["c-ula"].sampler.step_size(0)) == pytest.approx(0.004 / 230**0.55)
    assert float(plans["d-ula-5"].sampler.consensus(0)) == pytest.approx(0.48 / 230**0.05)


def test_repetitions_hold_out_different_rows():
    train, test, _ = _split(0, 0)
    assert (len(train), len(test)) == (26049, 6512)
    assert len(np.intersect1d(train, test)) == 0
    assert not np.array_equal(test, _split(0, 1)[1])


@pytest.mark.slow(reason="a series")
def test_a_short_series_learns_and_is_reported_beside_the_paper(tmp_path, where):  # noqa: F811
    require_here("a9a")
    plans = {"c-ula": A9A.plan(1).replace(num_chains=3), "d-ula-5": A9A.plan(5, None, 600).replace(num_chains=3)}
    series.start_series("a9a", plans, tmp_path / "series", lambda plan: None)
    summary = json.loads((tmp_path / "series" / "summary.json").read_text())
    assert [(row["method"], row["num_agents"]) for row in summary["results"]] == [("C-ULA", 1), ("D-ULA", 5)]
    for row in summary["results"]:
        assert row["accuracy_mean"] > 0.80  # always answering "no" scores 0.759
        assert row["predictive_accuracy"] > 0.83
    assert summary["results"][1]["accuracy_range_of_agents"] < 0.02
    assert summary["results"][1]["accuracy_paper"] == 0.8438
    run = cs.Run(tmp_path / "series" / "d-ula-5")
    assert read_accuracy(run)["accuracy"].shape == (3, 5, 300)
    page = series.report_series(tmp_path / "series").read_text()
    assert "D-ULA (5 agents)" in page
    assert "84.38 %" in page


def test_rows_packed_into_words_are_the_same_rows():
    features = np.random.default_rng(0).integers(0, 2, (40, 123))
    words = packed(features)
    assert words.shape == (40, 4)
    np.testing.assert_array_equal(unpacked(words, np.float32), np.pad(features, ((0, 0), (0, 5))))
