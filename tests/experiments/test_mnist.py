"""MNIST, shortened and with few images: the series, its tables beside the paper's, the scan, the reproduction."""

import json
import os

import numpy as np
import pytest

import consilience as cs
from consilience.errors import RunError
from consilience.experiments import EXPERIMENTS, classification, mnist, mnist_report
from consilience.experiments.classification import read_predictions
from consilience.models import mlp
from consilience.sampling import reproduction
from consilience.sampling.series import report_series, series_runs, start_series
from tests.datasets.test_loaders import BESIDE, require_here

pytestmark = pytest.mark.slow(reason="series of a neural network")

MNIST = EXPERIMENTS["mnist"]


@pytest.fixture(scope="module")
def few_images():
    """The first images of every set and a small network that compiles quickly, so that a series takes seconds.

    LeNet-5's own gradients are checked in `tests/models`, its figures come from `make reproduce`.
    """
    whole = mnist._images

    def first(name, part):
        found = whole(name, part)
        count = 2000 if part == "train" else 300
        return found._replace(inputs=found.inputs[:count], labels=found.labels[:count])

    with pytest.MonkeyPatch.context() as patch:
        if "CONSILIENCE_DATA" not in os.environ and BESIDE.is_dir():
            patch.setenv("CONSILIENCE_DATA", str(BESIDE))
        for name in ("mnist", "svhn", "fashion-mnist", "kmnist"):
            require_here(name)
        patch.setattr(mnist, "_images", first)
        patch.setattr(mnist, "_NETWORK", mlp(32 * 32, [16], 10))
        yield


@pytest.fixture(scope="module")
def series(few_images, tmp_path_factory):
    path = tmp_path_factory.mktemp("mnist") / "series"
    step_size = cs.FromTo(start=6e-4, end=6e-5, num_steps=120, exponent=0.55)  # for a thirtieth of the images
    plans = {
        name: plan.replace(sampler=plan.sampler.model_copy(update={"step_size": step_size}))
        for name, plan in MNIST.plans(num_steps=120).items()
    }
    start_series("mnist", plans, path, lambda plan: None)
    return path


def test_results_stand_beside_the_paper(series):
    summary = json.loads((series / "summary.json").read_text())
    rows = {row["method"]: row for row in summary["results"]}
    assert list(rows) == ["SGD", "C-ULA", "D-ULA"]
    assert summary["paper"]["D-ULA"]["accuracy"][2] == 0.9839
    assert len(rows["D-ULA"]["agents"]) == 5
    for row in rows.values():
        assert row["accuracy_mean"] > 0.5  # 120 steps of 2,000 images are enough to be far from chance, 0.1
        assert set(row["out_of_distribution"]) == {"svhn", "fashion-mnist", "kmnist"}
        for scores in row["out_of_distribution"].values():
            assert 0 <= scores["auroc"] <= 1
            assert 0.1 <= scores["confidence_mean"] <= 1
            assert 0 <= scores["ece"] <= 1
        assert "accuracy" in row["out_of_distribution"]["svhn"]
        assert "accuracy" not in row["out_of_distribution"]["kmnist"]  # its classes are not digits
        assert row["in_distribution"]["confidence_std"] > 0
    assert "temperature" in summary["settings"]
    assert "rebuilt" in " ".join(summary["data"]) or "official" in " ".join(summary["data"])


def test_confusion_counts_every_image_once(series):
    run = cs.Run(series / "d-ula-5")
    found = read_predictions(run)
    labels = found["label"].to_numpy()
    for agent in range(5):
        counts = found["confusion"].to_numpy()[agent]
        np.testing.assert_array_equal(counts.sum(1), np.bincount(labels, minlength=10))
        assert np.trace(counts) / 300 == pytest.approx(run.summary["agents"][agent]["accuracy"])
        np.testing.assert_allclose(found["probability"].to_numpy()[agent].sum(1), 1, atol=1e-4)


def test_the_report_has_the_papers_tables_and_figures(series):
    page = report_series(series).read_text()
    titles = ("Verdict", "Confusion", "Average probabilities", "Single images", "SVHN, low", "agent 4")
    for words in (*titles, "98.52 %", "0.849 (0.154)", "starts at a random network of its own"):
        assert words in page, words
    for name in ("methods", "confusion", "probabilities", "examples"):
        assert (series / "figures" / f"{name}.png").stat().st_size > 5_000
    assert "Images from elsewhere" in (series / "c-ula" / "report.html").read_text()


def test_examples_are_the_images_that_agents_are_sure_less_sure_and_unsure_of(series):
    run = cs.Run(series / "d-ula-5")
    examples, found = mnist_report._read_examples(run), read_predictions(run)
    about = examples.attrs["about"]
    assert [one["kind"] for one in about] == ["MNIST"] * 3 + ["SVHN"] * 3
    sure = found["confidence"].mean("agent").to_numpy()[[one["place"] for one in about[:3]]]
    assert sure[0] > sure[1] > sure[2]
    image = mnist._images("mnist", "test").inputs[about[1]["place"]]
    np.testing.assert_array_equal(examples["image"].to_numpy()[1], image)


def test_verdicts_follow_the_numbers(series):
    summaries = {name: run.summary for name, run in series_runs(series).items()}
    assert "worse by" in MNIST.verdict(summaries)
    for summary in summaries.values():
        paper = mnist_report.PAPER[summary["method"]]
        summary["accuracy_mean"] = float(np.mean(paper["accuracy"]))
    assert MNIST.verdict(summaries).count("reproduced") == 3


def test_a_step_looks_at_as_many_images_in_every_network():
    one, five = MNIST.plan(1), MNIST.plan(5)
    assert one.batch_size == 5 * five.batch_size
    assert one.num_steps == five.num_steps
    assert five.num_steps * five.batch_size == pytest.approx(10 * 12_000, rel=0.01)  # 10 epochs


def test_reproduction_continues_and_averages_over_seeds(few_images, tmp_path, monkeypatch):
    parts = [reproduction.Part("mnist", 0), reproduction.Part("mnist", 1), reproduction.Part("mnist-scan")]
    monkeypatch.setattr(reproduction, "PARTS", tuple(parts))
    monkeypatch.setattr(type(EXPERIMENTS["mnist-scan"]), "temperatures", (1.0,))
    monkeypatch.setattr(type(MNIST), "plans", lambda self, num_steps: {"d-ula-5": self.plan(5, None, num_steps)})
    monkeypatch.setattr(cs.Run, "report", lambda self: self.path)  # tested above
    begun = []

    def stop_at_second(number, part):
        begun.append(part.directory)
        if len(begun) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reproduction.reproduce(tmp_path / "all", lambda plan: None, stop_at_second, num_steps=24)
    first = (tmp_path / "all/mnist-seed-0/d-ula-5/status.json").stat().st_mtime_ns
    with pytest.raises(RunError, match="was begun with 24 steps"):
        reproduction.reproduce(tmp_path / "all", lambda plan: None, lambda *_: None)
    page = reproduction.reproduce(tmp_path / "all", lambda plan: None, lambda *_: None, num_steps=24)
    assert (tmp_path / "all/mnist-seed-0/d-ula-5/status.json").stat().st_mtime_ns == first  # not sampled again
    found = json.loads((tmp_path / "all/summary.json").read_text())
    assert found["converged"] is not True  # 24 steps
    assert found["verdict"].startswith("Not ")
    means = {row["method"]: row for row in found["mnist_mean_over_seeds"]}
    both = [found["results"][f"mnist-seed-{seed}"][0]["accuracy_mean"] for seed in (0, 1)]
    assert means["D-ULA"]["accuracy"] == pytest.approx(100 * np.mean(both))
    assert means["D-ULA"]["num_seeds"] == 2
    text = page.read_text()
    for words in ("mean over seeds", "Nearest to the paper", "over 2 seeds", "uniform prior", "temperature"):
        assert words in text
    assert (tmp_path / "all/figures/mnist-scan-trade-off.png").exists()


def test_reproduction_leaves_other_directories_alone(tmp_path):
    (tmp_path / "letter.txt").write_text("mine")
    with pytest.raises(RunError, match="holds no reproduction"):
        reproduction.reproduce(tmp_path, lambda plan: None, lambda *_: None)


@pytest.fixture(scope="module")
def corrected(few_images, tmp_path_factory):
    path = tmp_path_factory.mktemp("mnist") / "corrected"
    start_series("mnist-kinetic", EXPERIMENTS["mnist-kinetic"].plans(num_steps=24), path, lambda plan: None)
    return path


def test_a_corrected_sampler_stands_beside_the_others(corrected):
    page, runs = report_series(corrected).read_text(), series_runs(corrected)
    rows = {row["run"]: row for row in json.loads((corrected / "summary.json").read_text())["results"]}
    assert list(rows) == list(runs) == ["c-ula", "d-ula-5", "kinetic-5", "d-ula-5-skewed", "kinetic-5-skewed"]
    assert rows["c-ula"]["pooled"] is None
    for words in (
        "held out",
        "looked at once",
        "worst agent",
        "all draws",
        "kinetic-5-skewed",
        "Few labels at each agent",
    ):
        assert words in page, words
    summary = runs["kinetic-5"].summary
    labels, found = read_predictions(runs["kinetic-5"])["label"].to_numpy(), []
    for agent in range(5):
        found.append(classification.predictions(runs["kinetic-5"], mnist.network().logits, _test_inputs(), agent))
    together = np.mean([one.probabilities for one in found], 0)
    assert summary["pooled"]["accuracy"] == pytest.approx((together.argmax(1) == labels).mean())
    assert rows["kinetic-5"]["pooled"] == summary["pooled"]


def _test_inputs():
    return mnist._images("mnist", "test").inputs


def test_verdict_on_the_corrected_sampler_follows_the_numbers(corrected):
    summaries = {name: run.summary for name, run in series_runs(corrected).items()}
    experiment = EXPERIMENTS["mnist-kinetic"]
    summaries["c-ula"]["accuracy_mean"] = 0.0
    assert "as accurate as C-ULA" in experiment.verdict(summaries)
    summaries["c-ula"]["accuracy_mean"] = 1.0
    assert "less accurate than C-ULA" in experiment.verdict(summaries)
    summaries["kinetic-5"]["accuracy_mean"] = summaries["kinetic-5-skewed"]["accuracy_mean"] + 0.0123
    assert "cost the corrected sampler 1.23 points" in experiment.verdict(summaries)


def test_settings_are_chosen_on_images_held_out_alone(few_images, tmp_path, monkeypatch):
    experiment, images, seen = EXPERIMENTS["mnist-choice"], mnist._images, []
    monkeypatch.setattr(mnist, "_images", lambda name, part: seen.append((name, part)) or images(name, part))
    plans = experiment.plans(num_steps=24)
    some = {name: plans[name] for name in ("c-ula-1e-05-1e-06", "kinetic-0.001-100", "kinetic-0.001-300")}
    start_series("mnist-choice", some, tmp_path / "choice", lambda plan: None)
    assert set(seen) == {("mnist", "train")}
    summaries = {name: run.summary for name, run in series_runs(tmp_path / "choice").items()}
    best = min(list(some)[1:], key=lambda name: summaries[name]["in_distribution"]["log_loss"])
    assert f"with {best}." in report_series(tmp_path / "choice").read_text()
    assert "log_loss" in summaries[best]["agents"][0]["in_distribution"]
