"""The page of a table: a heat map, rounds against errors, and all cells to sort, with links to their runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from consilience.reports import Section, render_page
from consilience.reports.tables import Table, rows, shown
from consilience.reports.yardstick_figures import heat_map, rounds_and_errors
from consilience.runs.files import read_json
from consilience.yardstick.methods import METHODS
from consilience.yardstick.targets import Finding

_COLUMNS = {
    "posterior": "posterior", "method": "method", "graph": "graph", "split": "split", "agents": "num_agents",
    "mean error": "mean_error", "beyond noise": "mean_error_beyond_noise", "of": "worst_parameter",
    "least sd": "sd_ratio_smallest", "largest sd": "sd_ratio_largest", "sd beyond noise": "sd_error_beyond_noise",
    "tails": "tail_error", "converged": "converged", "false verdict": "false_verdict", "on target": "on_target",
    "ESS mean": "ess_mean", "ESS square": "ess_square", "rounds/draw": "rounds_per_effective_mean",
    "rounds/square": "rounds_per_effective_square", "bytes/draw": "bytes_per_effective_mean",
    "bytes/square": "bytes_per_effective_square", "gradients/draw": "gradients_per_effective_mean",
    "gradients/square": "gradients_per_effective_square", "warm-up rounds": "warmup_rounds", "rounds": "rounds",
    "divergences": "divergences", "seconds": "seconds", "failed": "failed",
}  # fmt: skip
_TEXT = (
    "Errors of means are in standard deviations of the reference, those of standard deviations ratios to it, of the "
    "worst parameter at the worst agent. Beyond noise: what is left after four Monte Carlo standard errors, ours and "
    "the reference's. Tails: how far the shares of draws below the reference's 5 % and 95 % quantiles are off. "
    "ESS: effective draws of means and of squares; per draw, or per square, means per effective one. Click a heading "
    "to sort. A posterior's name leads to the report of the cell's run if `consilience report` drew one, and "
    "otherwise to its summary."
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
        Section("What the methods are", "By the names of the command line.", table=_methods(found)),
    ]
    title = "Posteriors with known moments, sampled without a centre"
    subtitle = "Every method on every graph, nothing tuned by hand"
    return render_page(path, title, subtitle, facts, sections, {})


def _figures(found: Sequence[Mapping[str, Any]]) -> list[Section]:
    if not found:
        return []
    methods = list(METHODS)
    heat = (
        "The largest error of a mean; of several graphs and splits the worst. Grey: failed, with the reason below; "
        "empty: not made."
    )
    scatter = (
        "Left is cheap, low is right. Methods without a network hand in once, which is drawn at the left edge; the "
        "dashed line is a tenth of a standard deviation."
    )
    return [
        Section("Errors", heat, {"errors": heat_map(found, methods)}),
        Section("Rounds and errors", scatter, {"rounds": rounds_and_errors(found, methods)}),
    ]


def _table(path: Path, found: Sequence[Mapping[str, Any]]) -> Table:
    plain = rows(found, _COLUMNS)
    return Table(plain.header, plain.body, tuple(_link(path, row) for row in found), sorts=True)


def short_table(found: Sequence[Mapping[str, Any]]) -> Table:
    """What a terminal has room for."""
    wanted = (
        "posterior", "method", "graph", "agents", "mean error", "least sd", "largest sd", "converged", "on target",
        "ESS mean", "rounds/draw", "gradients/draw",
    )  # fmt: skip
    return rows(
        [{**row, "method": row["method"] + (" (failed)" if row["failed"] else "")} for row in found],
        {title: _COLUMNS[title] for title in wanted},
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
