"""What the terminal shows of a finished run: the table of results, the verdict, and then where the report is."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from consilience.cli.display import print_table, wide_console
from consilience.reports import tables, unison_report, warmup_report
from consilience.reports.posterior_table import posterior_table

_MOST_ROWS = 30
_WIDTH = 100  # of a line where nobody looks at a terminal
_SHOWN_INSIDE = ("confidence_mean", "ece", "auroc")
_SHORT = {"in_distribution": "held out", "out_of_distribution": "", "confidence_mean": "confidence"}


def print_result(summary: Mapping[str, Any], run: Path, every: bool = False) -> None:
    """A table of the results, the first rows or every one, and the verdict: all that is known before the report."""
    console = wide_console()
    if "results" in summary:
        records = [_flat(record) for record in summary["results"]]
        print_table(tables.rows(records, {key.replace("_", " "): key for key in records[0]}))
    elif "accuracy" in summary["agents"][0]:
        print_table(tables.classifiers(summary))
    elif isinstance(summary.get("posterior"), list) and not _has_measures(summary):
        print_posterior(summary["posterior"], run, every)
    else:  # of an experiment that measures agents, or of an older version
        extra = tuple(key for key in ("sinkhorn", "kl") if key in summary["agents"][0])
        _print_some(tables.agents(summary, extra), every, "in the report")
    if "sinkhorn_floor" in summary and "results" not in summary:
        paper = (summary.get("paper") or {}).get("sinkhorn")
        beside = f", the paper reports {paper}" if paper else ""
        floor = f"Sinkhorn distance {summary['sinkhorn']:.3f}; exact draws score {summary['sinkhorn_floor']:.3f}"
        console.print(f"\n{floor}{beside}.", highlight=False)
    if "adaptation" in summary and "results" not in summary:
        console.print()
        in_words = unison_report.sampler_in_words if "divergences" in summary else warmup_report.warmup_in_words
        for line in in_words(summary):
            console.print(line, highlight=False)
    print_verdict(summary)


def print_report(page: Path, place: Path | None = None) -> None:
    """What opens the live page, and where the report is.

    Args:
        page: the report.
        place: what the live page is opened of; by default the run of the report.
    """
    console = wide_console()
    watched = shlex.quote(str(place or page.parent))
    console.print(f"\nWatch: {_command()} watch {watched}", highlight=False, soft_wrap=True)
    console.print(f"Report: {page}", highlight=False, soft_wrap=True)


def _command() -> str:
    """What this program is called where it was called: that of an environment that is not active has a path."""
    called = Path(sys.argv[0])
    return "consilience" if called.name != "consilience" or shutil.which("consilience") else shlex.quote(str(called))


def print_verdict(summary: Mapping[str, Any]) -> None:
    """Whether it has converged; if not, why and what to do, also on standard error unless that is the same screen."""
    if "verdict" not in summary:  # of an older version
        return
    console, colour = wide_console(), "green" if summary["converged"] else "yellow"
    console.print(f"\n{summary['verdict']}", style=colour, highlight=False, soft_wrap=not console.is_terminal)
    if summary.get("remedy"):
        console.print(f"What to do: {summary['remedy']}.", highlight=False, soft_wrap=not console.is_terminal)
    for warning in summary.get("warnings", ()):
        console.print(f"Note: {warning}.", style="yellow", highlight=False)
    if not (console.is_terminal and sys.stderr.isatty()):
        warn_unless_converged(summary)


def warn_unless_converged(summary: Mapping[str, Any]) -> None:
    """A line on standard error for a result that has not converged."""
    if summary.get("converged") is False:
        todo = f" What to do: {summary['remedy']}." if summary.get("remedy") else ""
        print(f"Warning: {summary['verdict']}{todo}", file=sys.stderr)


def print_posterior(rows: Sequence[Mapping[str, Any]], run: Path, every: bool = False) -> None:
    """The posterior, a row for each parameter, in as many columns as fit."""
    console = wide_console()
    shown = posterior_table(rows, console.width if console.is_terminal else _WIDTH)
    _print_some(shown, every, f"consilience report {run} --all, or {run / 'summary.csv'}")


def _print_some(shown: tables.Table, every: bool, rest: str) -> None:
    console = wide_console()
    most = len(shown.body) if every else _MOST_ROWS
    print_table(tables.Table(shown.header, shown.body[:most]))
    if len(shown.body) > most:
        console.print(f"  … and {len(shown.body) - most:,} more: {rest}", highlight=False, soft_wrap=True)


def _has_measures(summary: Mapping[str, Any]) -> bool:
    """Whether an experiment has measured agents, which is then what a table shows."""
    return any(key in summary["agents"][0] for key in ("sinkhorn", "kl"))


def _flat(record: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The single values of a record, and of those inside it the ones that fit a table."""
    flat: dict[str, Any] = {}
    for key, value in record.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{_SHORT.get(key, key)} ")
        elif not isinstance(value, list) and (not prefix or key in _SHOWN_INSIDE):
            flat[prefix + _SHORT.get(key, key)] = value
    return flat
