"""All experiments of the paper in full, one after the other, and one page that says how they compare with it.

    REPRODUCTION/
      gmm/, a9a/, mnist-seed-0/ …, mnist-scan/, mnist-kinetic-seed-0/ …     series
      summary.json                 their results, and MNIST's means over seeds
      figures/*.png, report.html

Interrupted, it resumes where it was: with the series, the run and the step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from consilience.datasets.availability import fetch
from consilience.errors import RunError
from consilience.experiments import EXPERIMENTS
from consilience.plans import Plan
from consilience.reports import Section, render_page
from consilience.reports.tables import rows
from consilience.reports.verdicts import verdict_section
from consilience.runs.files import disk_errors, read_json, write_json
from consilience.sampling.series import (
    ShowRun,
    continue_series,
    is_series,
    report_series,
    series_runs,
    start_series,
    verdict_of_all,
)

_WITH_SEEDS = ("mnist", "mnist-kinetic")
"""Experiments of which one seed says little: the page shows their means over all of them."""


class Part(NamedTuple):
    """One series of the reproduction."""

    experiment: str
    seed: int = 0
    minutes: float = 1.0
    """About how long it takes on two cores: the weight of its progress."""

    @property
    def directory(self) -> str:
        """Where it is kept."""
        return f"{self.experiment}-seed-{self.seed}" if self.experiment in _WITH_SEEDS else self.experiment


PARTS = (
    Part("gmm", minutes=1),
    Part("a9a", minutes=5),
    *(Part("mnist", seed, minutes=6) for seed in range(5)),
    Part("mnist-scan", minutes=16),
    *(Part("mnist-kinetic", seed, minutes=6) for seed in range(5)),
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
    means = {
        name: mean_over_seeds([one["results"] for part, one in summaries.items() if part.experiment == name])
        for name in _WITH_SEEDS
        if any(part.experiment == name for part in PARTS)
    }
    with disk_errors(out):
        results = {part.directory: summary["results"] for part, summary in summaries.items()}
        averaged = {f"{name.replace('-', '_')}_mean_over_seeds": rows for name, rows in means.items()}
        told = verdict_of_all({part.directory: summary for part, summary in summaries.items()})
        write_json(out / "summary.json", {"format": 1, "results": results, **averaged, **told})
    sections = [*verdict_section(told), Section("Verdict", " ".join(_verdicts(out, means).values()))]
    for part in PARTS:
        if part.seed == 0:
            sections += _sections(out, part, means.get(part.experiment))
    facts = {part.directory: f"{_seconds(out / part.directory):.0f} s" for part in PARTS}
    pages = {"where the single reports are": "\n".join(f"{part.directory}/report.html" for part in PARTS)}
    return render_page(
        out, "The paper's experiments, reproduced", "Seconds of sampling by series", facts, sections, pages
    )


def _seconds(series: Path) -> float:
    return sum(run.summary["timing"]["sampling_seconds"] for run in series_runs(series).values())


def _verdicts(out: Path, means: Mapping[str, list[dict[str, Any]]]) -> dict[str, str]:
    told = {}
    for part in PARTS:
        if part.seed == 0:
            experiment = EXPERIMENTS[part.experiment]
            summaries = {name: run.summary for name, run in series_runs(out / part.directory).items()}
            told[part.experiment] = f"{experiment.title}. {experiment.verdict(summaries)}".rstrip()
            if part.experiment in means:
                told[part.experiment] += f" That is seed 0; {_seeds_in_words(means[part.experiment])}"
    return told


def _seeds_in_words(means: list[dict[str, Any]]) -> str:
    each = "; ".join(
        f"{row['run']} {row['accuracy']:.2f} % (worst agent {row['worst_agent']:.2f} %), confidence "
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
        found.insert(0, _seeds_section(EXPERIMENTS[part.experiment].title, means))
    return found


def _seeds_section(title: str, means: list[dict[str, Any]]) -> Section:
    columns = {
        "Run": "run", "Method": "method", "Agents": "num_agents", "Accuracy, %": "accuracy",
        "worst agent, %": "worst_agent",
        "seeds from … to, %": "range", "Confidence on MNIST": "confidence", "on SVHN": "svhn_confidence",
        "AUROC SVHN": "svhn_auroc", "all draws": "svhn_auroc_pooled",
        "AUROC Fashion": "fashion_auroc", "AUROC KMNIST": "kmnist_auroc",
    }  # fmt: skip
    text = (
        f"Means over {means[0]['num_seeds']} seeds, each with another partition, start, noise and order of images. "
        "The worst agent is the one with the lowest mean over seeds. What follows shows seed 0."
    )
    return Section(f"{title}: mean over seeds", text, table=rows(means, columns))


def mean_over_seeds(series: list[list[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """One row for each run: the means over series with different seeds."""
    means = []
    for runs in zip(*series, strict=True):
        agents = np.array([[agent["accuracy"] for agent in run["agents"]] for run in runs])
        outside = {
            name: [run["out_of_distribution"][name] for run in runs] for name in runs[0]["out_of_distribution"]
        }
        accuracies = [run["accuracy_mean"] for run in runs]
        means.append(
            {
                "run": runs[0].get("run", runs[0]["method"]),
                "method": runs[0]["method"],
                "num_agents": runs[0]["num_agents"],
                "num_seeds": len(runs),
                "accuracy": float(100 * np.mean(accuracies)),
                "worst_agent": float(100 * agents.mean(0).min()),
                "range": f"{100 * min(accuracies):.2f} … {100 * max(accuracies):.2f}",
                "confidence": float(np.mean([run["in_distribution"]["confidence_mean"] for run in runs])),
                "svhn_confidence": float(np.mean([one["confidence_mean"] for one in outside["svhn"]])),
                "svhn_auroc": float(np.mean([one["auroc"] for one in outside["svhn"]])),
                "svhn_auroc_pooled": _pooled_auroc(runs),
                "fashion_auroc": float(np.mean([one["auroc"] for one in outside["fashion-mnist"]])),
                "kmnist_auroc": float(np.mean([one["auroc"] for one in outside["kmnist"]])),
            }
        )
    return means


def _pooled_auroc(runs: Sequence[Mapping[str, Any]]) -> float | None:
    """That of all agents' draws together; none where a series does not have it, or a run has one agent."""
    each = [run.get("pooled") for run in runs]
    return float(np.mean([one["out_of_distribution"]["svhn"]["auroc"] for one in each if one])) if all(each) else None
