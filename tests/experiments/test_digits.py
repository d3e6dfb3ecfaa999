"""The digits series, shortened: three methods, their predictions, the report."""

import json
import re

import numpy as np
import pytest

import consilience as cs
from consilience.deployment.merging import merge
from consilience.experiments import EXPERIMENTS
from consilience.experiments.classification import predictions, read_predictions
from consilience.experiments.digits import _parts
from consilience.sampling.series import report_series, start_series
from tests.engines.peers.running import sample_by_peers

pytestmark = pytest.mark.slow(reason="a series of a neural network")

OPTIMISED = True

DIGITS = EXPERIMENTS["digits"]


@pytest.fixture(scope="module")
def series(tmp_path_factory):
    path = tmp_path_factory.mktemp("digits") / "series"
    start_series("digits", DIGITS.plans(4000), path, lambda plan: None)
    return path


def test_three_methods_learn_the_digits(series):
    """Chance is 10 %; the held-out images are the same for all three."""
    summary = json.loads((series / "summary.json").read_text())
    assert [(row["method"], row["num_agents"]) for row in summary["results"]] == [
        ("SGD", 1), ("C-ULA", 1), ("D-ULA", 5)
    ]  # fmt: skip
    for row in summary["results"]:
        assert row["accuracy_mean"] > 0.95
        assert len(row["agents"]) == row["num_agents"]
        assert np.ptp([agent["accuracy"] for agent in row["agents"]]) <= 0.02
        assert set(row["out_of_distribution"]) == {"inverted", "scrambled"}
        assert 0 <= row["in_distribution"]["ece"] < 0.2


def test_posteriors_are_less_sure_of_other_images_than_sgd(series):
    """And what a point estimate lacks, the draws' disagreement, tells such images apart better than entropy."""
    rows = {row["method"]: row for row in json.loads((series / "summary.json").read_text())["results"]}
    for kind in ("inverted", "scrambled"):
        surest = rows["SGD"]["out_of_distribution"][kind]
        assert surest["confidence_mean"] < rows["SGD"]["in_distribution"]["confidence_mean"]
        for method in ("C-ULA", "D-ULA"):
            found = rows[method]["out_of_distribution"][kind]
            assert found["confidence_mean"] < surest["confidence_mean"] - 0.05
            assert found["auroc_mutual_information"] > surest["auroc"] + 0.01


def test_sgd_is_a_point_estimate(series):
    run = cs.Run(series / "sgd")
    _, test = _parts(run.plan.seed)
    found = predictions(run, DIGITS.network.logits, test.inputs, 0)
    assert found.num_draws == 1
    assert found.epistemic.max() < 1e-5


def test_stored_predictions_are_those_of_the_agents(series):
    run = cs.Run(series / "d-ula-5")
    stored = read_predictions(run)
    assert stored.sizes["agent"] == 5
    right = (stored["predicted"] == stored["label"]).mean("input").to_numpy()
    np.testing.assert_allclose(right, [row["accuracy"] for row in run.summary["agents"]])


def test_reports_show_methods_and_agents(series):
    page = report_series(series).read_text()
    assert re.search(r"The five agents, each with a fifth of the images, are .* SGD", page)
    assert "D-ULA (5 agents)" in page
    assert "agent 4" in (series / "d-ula-5" / "report.html").read_text()
    assert (series / "figures" / "methods.png").stat().st_size > 10_000


def test_held_out_images_are_not_trained_on():
    train, test = _parts(0)
    assert (len(train.labels), len(test.labels)) == (1437, 360)
    split = np.concatenate([shard[0] for shard in DIGITS.problem(5).shards])
    assert len(split) == 1437
    held = {image.tobytes() for image in test.inputs}
    shared = sum(image.tobytes() in held for image in split)
    assert shared <= 1  # an image that occurs twice in the data set itself


def test_other_seeds_hold_out_other_images():
    assert not np.array_equal(_parts(0)[1].inputs, _parts(1)[1].inputs)


def test_nodes_predict_by_themselves_what_the_whole_network_says_of_them(tmp_path):
    plan = DIGITS.plan(2, num_steps=20)
    _, nodes = sample_by_peers(plan, tmp_path / "network", insecure=True)
    whole = merge([node.path for node in nodes], tmp_path / "whole")
    for node, row in zip(nodes, whole.summary["agents"], strict=True):
        assert node.summary["agents"][0]["accuracy"] == row["accuracy"]
        assert node.summary["out_of_distribution"] == row["out_of_distribution"]
    assert nodes[0].summary["accuracy_mean"] != nodes[1].summary["accuracy_mean"]
    assert "Out-of-distribution images" in nodes[1].report().read_text()
