"""a9a, shortened: repetitions with data of their own, accuracies, the report."""

import json

import numpy as np
import pytest

import consilience as cs
from consilience.experiments import EXPERIMENTS, a9a
from consilience.experiments.a9a import _split, label_split, packed, read_accuracy, unpacked
from consilience.experiments.references import Reference, pooled_logistic, pooled_reference, posterior_error
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


def test_shards_by_label_are_of_the_same_sizes_in_all_repetitions_and_hold_a_minibatch():
    rng, counts = np.random.default_rng(0), (19_776, 6_273)
    for num_agents in (5, 25):
        splits = [label_split(num_agents, rng.permutation(np.repeat((0, 1), counts))) for _ in range(2)]
        sizes = [[len(rows) for rows in split] for split in splits]
        assert sizes[0] == sizes[1]
        assert min(sizes[0]) >= 10
        assert max(sizes[0]) > 2 * sum(counts) / num_agents  # they differ a lot
        assert np.array_equal(np.sort(np.concatenate(splits[0])), np.arange(sum(counts)))
    by_label, usual = EXPERIMENTS["a9a-by-label"].plan(5), A9A.plan(5)
    assert by_label.problem == "a9a-by-label"
    assert by_label.num_steps == usual.num_steps
    assert float(by_label.sampler.step_size(0)) < 0.6 * float(usual.sampler.step_size(0))


def test_errors_of_a_posterior_are_in_its_own_units():
    rng = np.random.default_rng(1)
    known = Reference(np.array([1.0, -2.0]), np.array([4.0, 0.25]), np.ones(2))
    draws = known.mean + np.sqrt(known.variance) * rng.normal(size=(4, 3, 5000, 2))
    right = posterior_error(draws, known)
    assert right.mean < 0.05  # seven standard errors at every agent and parameter: a false alarm in 1e10
    assert right.variance < 0.08
    off = posterior_error(draws + 0.5 * np.sqrt(known.variance), known)
    assert abs(off.mean - 0.5) < 0.05
    wide = posterior_error(known.mean + 1.5 * (draws - known.mean), known)
    assert abs(wide.variance - 1.25) < 0.18
    half = np.concatenate([np.ones(2500), np.zeros(2500)])
    mixed = np.concatenate([draws[:, :, :2500], draws[:, :, 2500:] + 9], 2)
    assert posterior_error(mixed, known, half).mean < 0.07  # draws that do not count


@pytest.mark.slow(reason="a run of NUTS, compiled")
def test_the_reference_is_the_posterior():
    """Two features that are the same, so that only the prior's kink holds their difference; against a grid."""
    rng = np.random.default_rng(3)
    one = rng.integers(0, 2, (300, 1)).astype(float)
    features, labels = np.hstack([one, one]), (rng.random(300) < 0.3 + 0.4 * one[:, 0]).astype(int)
    found = pooled_reference(pooled_logistic(features, labels), 400)
    axis = np.linspace(-7, 7, 561)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    logits = grid.sum(1)
    yes, no = labels[one[:, 0] == 1].sum(), (1 - labels[one[:, 0] == 1]).sum()
    value = -yes * np.logaddexp(0, -logits) - no * np.logaddexp(0, logits) - np.abs(grid).sum(1)
    weights = np.exp(value - value.max())
    weights /= weights.sum()
    mean = weights @ grid
    variance = weights @ (grid - mean) ** 2
    chance = np.sqrt(variance / found.effective)
    assert (np.abs(found.mean - mean) < 6 * chance).all()  # false-alarm rate 4e-9
    assert (np.abs(found.mean - mean - np.sqrt(variance)) > 6 * chance).all()
    assert (np.abs(found.variance / variance - 1) < 0.6).all()


@pytest.mark.slow(reason="a series")
def test_a_short_series_learns_and_is_reported_beside_the_paper(tmp_path, where, monkeypatch):  # noqa: F811
    require_here("a9a")
    known = Reference(np.zeros(123), np.ones(123), np.ones(123))
    monkeypatch.setattr(a9a, "_reference", lambda by_label, seed: known)  # a long run of its own
    plans = {"c-ula": A9A.plan(1).replace(num_chains=3), "d-ula-5": A9A.plan(5, None, 600).replace(num_chains=3)}
    series.start_series("a9a", plans, tmp_path / "series", lambda plan: None)
    summary = json.loads((tmp_path / "series" / "summary.json").read_text())
    assert [(row["method"], row["num_agents"]) for row in summary["results"]] == [("C-ULA", 1), ("D-ULA", 5)]
    for row in summary["results"]:
        assert row["accuracy_mean"] > 0.80  # always answering "no" scores 0.759
        assert row["predictive_accuracy"] > 0.83
    assert summary["results"][1]["accuracy_range_of_agents"] < 0.02
    assert summary["results"][1]["accuracy_paper"] == 0.8438
    assert 0.1 < summary["results"][1]["posterior_error"]["mean"] < 1
    run = cs.Run(tmp_path / "series" / "d-ula-5")
    assert read_accuracy(run)["accuracy"].shape == (3, 5, 300)
    page = series.report_series(tmp_path / "series").read_text()
    assert "D-ULA (5 agents)" in page
    assert "84.38 %" in page
    assert "Error of means, sd" in page


def test_rows_packed_into_words_are_the_same_rows():
    features = np.random.default_rng(0).integers(0, 2, (40, 123))
    words = packed(features)
    assert words.shape == (40, 4)
    np.testing.assert_array_equal(unpacked(words, np.float32), np.pad(features, ((0, 0), (0, 5))))
