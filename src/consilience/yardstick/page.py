"""The page of a table: a heat map, rounds against errors, and all cells to sort, with links to their runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from consilience.posteriors import SPLITS
from consilience.reports import Section, render_page
from consilience.reports.tables import Table, rows, shown
from consilience.reports.yardstick_figures import heat_map, rounds_and_errors
from consilience.runs.files import read_json
from consilience.yardstick.cells import NOWHERE
from consilience.yardstick.methods import METHODS
from consilience.yardstick.targets import Finding

_COLUMNS = {
    "posterior": "posterior", "method": "method", "graph": "graph", "split": "split", "agents": "num_agents",
    "on target": "on_target", "mean error": "mean_error", "beyond noise": "mean_error_beyond_noise",
    "worst parameter": "worst_parameter", "least sd": "sd_ratio_smallest", "largest sd": "sd_ratio_largest",
    "sd beyond noise": "sd_error_beyond_noise", "tails": "tail_error", "converged": "converged",
    "false verdict": "false_verdict", "ESS mean": "ess_mean", "ESS square": "ess_square",
    "rounds/draw": "rounds_per_effective_mean", "rounds/square": "rounds_per_effective_square",
    "bytes/draw": "bytes_per_effective_mean", "bytes/square": "bytes_per_effective_square",
    "gradients/draw": "gradients_per_effective_mean", "gradients/square": "gradients_per_effective_square",
    "warm-up rounds": "warmup_rounds", "rounds": "rounds", "divergences": "divergences", "seconds": "seconds",
}  # fmt: skip
_ERRORS = (
    "mean_error", "mean_error_beyond_noise", "sd_ratio_smallest", "sd_ratio_largest", "sd_error_beyond_noise",
    "tail_error",
)  # fmt: skip
_TEXT = (
    "On target: with errors beyond noise of at most 0.1 standard deviations and 10 % (nuts and pooled: 0.05 and 3 %, "
    "and converged), by at least 5,000 effective draws. "
    "Errors of means are in standard deviations of the reference, those of standard deviations ratios to it, of the "
    "worst parameter at the worst agent. Beyond noise: what is left after four Monte Carlo standard errors, ours and "
    "the reference's. Tails: how far the shares of draws below the reference's 5 % and 95 % quantiles are off. "
    "ESS: effective draws of means and of squares; per draw, or per square, means per effective one. Click a heading "
    "to sort. A posterior's name leads to the cell's run: to its report if there is one, otherwise to its summary."
)


def write_page(path: Path) -> Path:
    """Write `report.html` and the figures of a table, from its `summary.json`."""
    summary = read_json(path / "summary.json")
    found: list[dict[str, Any]] = summary["results"]
    facts = {
        "posteriors": shown(len({row["posterior"] for row in found})),
        "methods": shown(len({row["method"] for row in found})),
        "cells": f"{summary['num_cells']} of {summary['num_wanted']}",
        "failed": shown(summary["num_failed"]),
        "false verdicts": shown(summary["num_false_verdicts"]),
        "budget, rounds": shown(summary["budget"]),
    }
    sections = [
        Section("Verdict", summary["verdict"], table=targets_table(summary)),
        *_figures(found),
        Section("All cells", _TEXT, table=_table(path, found)),
        *_failures(path, found),
        Section("What the methods are", "By the names of the command line.", table=_methods(found)),
    ]
    title = "Posteriors with known moments, sampled without a centre"
    subtitle = "Every method on every graph, nothing tuned by hand"
    return render_page(path, title, subtitle, facts, sections, {})


def _figures(found: Sequence[Mapping[str, Any]]) -> list[Section]:
    if not found:
        return []
    methods, splits = list(METHODS), {row["split"] for row in found}
    heat = (
        "The largest error of a mean; of several graphs the worst. Grey: failed, with the reason below; empty: not "
        "made."
    )
    scatter = (
        "Left is cheap, low is right. Methods without a network hand in once, which is drawn at the left edge; the "
        "dashed line is a tenth of a standard deviation."
    )
    maps, named = [], {split: f"Errors, {split} splits" for split in SPLITS if split in splits}
    for split, title in named.items() or [(NOWHERE, "Errors")]:
        own = [row for row in found if row["split"] in (split, NOWHERE)]
        maps.append(Section(title, heat, {f"errors-{split}": heat_map(own, methods)}))
    return [*maps, Section("Rounds and errors", scatter, {"rounds": rounds_and_errors(found, methods)})]


def _table(path: Path, found: Sequence[Mapping[str, Any]]) -> Table:
    plain = rows([_readable(row) for row in found], _COLUMNS)
    return Table(plain.header, plain.body, tuple(_link(path, row) for row in found), sorts=True)


def _failures(path: Path, found: Sequence[Mapping[str, Any]]) -> list[Section]:
    """What failed, if anything did."""
    lost = [row for row in found if row["failed"]]
    if not lost:
        return []
    columns = {"posterior": "posterior", "method": "method", "graph": "graph", "split": "split", "why": "failed"}
    plain = rows([_readable(row) for row in lost], columns)
    table = Table(plain.header, plain.body, tuple(_link(path, row) for row in lost))
    return [Section("What failed, and why", "These cells stay in the table, and count as off target.", table=table)]


def _readable(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with errors in three decimals, and without what it has none of."""
    found = {name: None if value == NOWHERE else value for name, value in row.items()}
    found |= {name: _short(row[name]) for name in _ERRORS if row.get(name) is not None}
    return {**found, "on_target": "failed" if row["failed"] else row["on_target"]}


def _short(error: float) -> str:
    return f"{error:.3f}" if error < 10 else f"{error:,.1f}"


def errors_table(found: Sequence[Mapping[str, Any]]) -> Table:
    """What a terminal has room for: the largest error of a mean, by posteriors and methods."""
    names = list(dict.fromkeys(row["posterior"] for row in found))
    there = [method for method in METHODS if any(row["method"] == method for row in found)]
    body = [
        (name, *(_worst([row for row in found if (row["posterior"], row["method"]) == (name, one)]) for one in there))
        for name in names
    ]
    return Table(("posterior", *there), tuple(body))


def _worst(own: Sequence[Mapping[str, Any]]) -> str:
    """Of some cells, with a star if all are on target."""
    if not own or any(row["failed"] for row in own):
        return "failed" if own else "–"
    error = max(row["mean_error"] for row in own)
    return (f"{error:.2f}" if error < 10 else f"{error:,.0f}") + (
        "*" if all(row["on_target"] for row in own) else " "
    )


def targets_table(summary: Mapping[str, Any]) -> Table:
    """What became of the targets of the whole table."""
    found = [Finding(**one) for one in summary["targets"]]
    body = tuple((one.target, one.outcome, one.found) for one in found)
    return Table(("target", "outcome", "found"), body)


def _link(path: Path, row: Mapping[str, Any]) -> str:
    """The report of a cell's run, or else the run's summary; of a cell without one, its row."""
    own = [f"{row['directory']}/{row['run']}/{name}" for name in ("report.html", "summary.json") if row.get("run")]
    places = [*own, f"{row['directory']}/result.json"]
    return next((place for place in places if (path / place).is_file()), places[-1])


def _methods(found: Sequence[Mapping[str, Any]]) -> Table:
    there = {row["method"] for row in found}
    return Table(("name", "what it is"), tuple((name, one.title) for name, one in METHODS.items() if name in there))
