"""All experiments of the paper in full, one after the other, and one page that says how they compare with it.

    REPRODUCTION/
      gmm/, a9a/, mnist-seed-0/ …, mnist-scan/     series
      summary.json                                  their results, and MNIST's mean over seeds
      figures/*.png, report.html

Interrupted, it resumes where it was: with the series, the run and the step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from consilience.datasets.availability import fetch
from consilience.errors import RunError
from consilience.experiments import EXPERIMENTS
from consilience.plans import Plan
from consilience.reports import Section, render_page
from consilience.reports.tables import rows
from consilience.runs.files import disk_errors, read_json, write_json
from consilience.sampling.series import ShowRun, continue_series, is_series, report_series, series_runs, start_series


class Part(NamedTuple):
    """One series of the reproduction."""

    experiment: str
    seed: int = 0
    minutes: float = 1.0
    """About how long it takes on two cores: the weight of its progress."""

    @property
    def directory(self) -> str:
        """Where it is kept."""
        return f"{self.experiment}-seed-{self.seed}" if self.experiment == "mnist" else self.experiment


PARTS = (
    Part("gmm", minutes=1),
    Part("a9a", minutes=5),
    *(Part("mnist", seed, minutes=6) for seed in range(5)),
    Part("mnist-scan", minutes=16),
)
_DATA = ["a9a", "mnist", "svhn", "fashion-mnist", "kmnist"]
Announce = Callable[[int, Part], None]


def reproduce(out: Path, show: ShowRun, announce: Announce, num_steps: int | None = None) -> Path:
    """Do what is left of the reproduction, and write its page.

    Args:
        out: the directory, new or one that was interrupted.
        show: called before each run; returns what shows its progress.
        announce: called with the number of each part and the part before it begins.
        num_steps: of every run, to try it out in less time; then nothing compares with the paper.
    """
    if out.exists() and any(out.iterdir()) and not (out / "reproduction.json").is_file():
        raise RunError(f"{out} is not empty and holds no reproduction: choose a new directory")
    _require_same_steps(out, num_steps)
    fetch(_DATA)  # what is missing is told now, not after an hour
    with disk_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        write_json(out / "reproduction.json", {"format": 1, "num_steps": num_steps})
    for number, part in enumerate(PARTS):
        announce(number, part)
        where = out / part.directory
        if not is_series(where):
            start_series(part.experiment, _plans(part, num_steps), where, show)
        elif not (where / "summary.json").is_file():
            continue_series(where, show)
        report_series(where)
    return _page(out)


def _require_same_steps(out: Path, num_steps: int | None) -> None:
    """Runs of different lengths must not stand on one page."""
    place = out / "reproduction.json"
    if place.is_file() and read_json(place).get("num_steps") != num_steps:
        before = read_json(place).get("num_steps")
        raise RunError(
            f"{out} was begun with {'the full number of' if before is None else before} steps: continue it so, or "
            "choose a new directory"
        )


def _plans(part: Part, num_steps: int | None) -> dict[str, Plan]:
    plans = EXPERIMENTS[part.experiment].plans(num_steps)
    return {name: plan.replace(seed=part.seed) for name, plan in plans.items()}


def _page(out: Path) -> Path:
    summaries = {part: read_json(out / part.directory / "summary.json") for part in PARTS}
    seeds = [summary["results"] for part, summary in summaries.items() if part.experiment == "mnist"]
    means = mean_over_seeds(seeds)
    with disk_errors(out):
        results = {part.directory: summary["results"] for part, summary in summaries.items()}
        write_json(out / "summary.json", {"format": 1, "results": results, "mnist_mean_over_seeds": means})
    sections = [Section("Verdict", " ".join(_verdicts(out, means).values()))]
    for part in PARTS:
        if part.seed == 0:
            sections += _sections(out, part, means if part.experiment == "mnist" else None)
    facts = {part.directory: f"{_seconds(out / part.directory):.0f} s" for part in PARTS}
    pages = {"where the single reports are": "\n".join(f"{part.directory}/report.html" for part in PARTS)}
    return render_page(
        out, "The paper's experiments, reproduced", "Seconds of sampling by series", facts, sections, pages
    )


def _seconds(series: Path) -> float:
    return sum(run.summary["timing"]["sampling_seconds"] for run in series_runs(series).values())


def _verdicts(out: Path, means: list[dict[str, Any]]) -> dict[str, str]:
    told = {}
    for part in PARTS:
        if part.seed == 0:
            experiment = EXPERIMENTS[part.experiment]
            summaries = {name: run.summary for name, run in series_runs(out / part.directory).items()}
            told[part.experiment] = f"{experiment.title}. {experiment.verdict(summaries)}"
            if part.experiment == "mnist":
                told["mnist"] += f" That is seed 0; {_seeds_in_words(means)}"
    return told


def _seeds_in_words(means: list[dict[str, Any]]) -> str:
    each = "; ".join(
        f"{row['method']} {row['accuracy']:.2f} % (worst agent {row['worst_agent']:.2f} %), confidence "
        f"{row['confidence']:.3f} on MNIST and {row['svhn_confidence']:.3f} on SVHN, AUROC {row['svhn_auroc']:.3f}"
        for row in means
    )
    return f"over {means[0]['num_seeds']} seeds: {each}."


def _sections(out: Path, part: Part, means: list[dict[str, Any]] | None) -> list[Section]:
    """The sections of one series, its figures under names of their own; MNIST's begin with the mean over seeds."""
    found = []
    for section in EXPERIMENTS[part.experiment].series_sections(series_runs(out / part.directory)):
        figures = {f"{part.experiment}-{name}": figure for name, figure in section.figures.items()}
        title = f"{EXPERIMENTS[part.experiment].title}: {section.title.lower()}"
        found.append(Section(title, section.text, figures, section.table))
    if means is not None:
        found.insert(0, _seeds_section(means))
    return found


def _seeds_section(means: list[dict[str, Any]]) -> Section:
    columns = {
        "Method": "method", "Agents": "num_agents", "Accuracy, %": "accuracy", "worst agent, %": "worst_agent",
        "seeds from … to, %": "range", "Confidence on MNIST": "confidence", "on SVHN": "svhn_confidence",
        "AUROC SVHN": "svhn_auroc", "AUROC Fashion": "fashion_auroc", "AUROC KMNIST": "kmnist_auroc",
    }  # fmt: skip
    text = (
        f"Means over {means[0]['num_seeds']} seeds, each with another partition, start, noise and order of images. "
        "The worst agent is the one with the lowest mean over seeds. What follows shows seed 0."
    )
    return Section("LeNet-5 on MNIST: mean over seeds", text, table=rows(means, columns))


def mean_over_seeds(series: list[list[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """One row for each method: the means over series with different seeds."""
    means = []
    for runs in zip(*series, strict=True):
        agents = np.array([[agent["accuracy"] for agent in run["agents"]] for run in runs])
        outside = {
            name: [run["out_of_distribution"][name] for run in runs] for name in runs[0]["out_of_distribution"]
        }
        accuracies = [run["accuracy_mean"] for run in runs]
        means.append(
            {
                "method": runs[0]["method"],
                "num_agents": runs[0]["num_agents"],
                "num_seeds": len(runs),
                "accuracy": float(100 * np.mean(accuracies)),
                "worst_agent": float(100 * agents.mean(0).min()),
                "range": f"{100 * min(accuracies):.2f} … {100 * max(accuracies):.2f}",
                "confidence": float(np.mean([run["in_distribution"]["confidence_mean"] for run in runs])),
                "svhn_confidence": float(np.mean([one["confidence_mean"] for one in outside["svhn"]])),
                "svhn_auroc": float(np.mean([one["auroc"] for one in outside["svhn"]])),
                "fashion_auroc": float(np.mean([one["auroc"] for one in outside["fashion-mnist"]])),
                "kmnist_auroc": float(np.mean([one["auroc"] for one in outside["kmnist"]])),
            }
        )
    return means
