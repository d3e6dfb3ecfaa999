"""What the terminal shows: progress, notes, findings, results."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from consilience.checks import Finding, counted
from consilience.experiments import Experiment
from consilience.plans import Plan
from consilience.reports import tables
from consilience.sampling import Progress as Step
from consilience.sampling import ShowProgress

_MARKS = {"ok": "[green]✓[/]", "warning": "[yellow]![/]", "error": "[red]✗[/]"}


class Display:
    """Live progress and notes on standard error; without a terminal only the notes, and none if `quiet`."""

    def __init__(self, quiet: bool) -> None:
        self.console = Console(stderr=True)
        self.quiet = quiet
        self._remarks: set[str] = set()
        self._progress: Progress | None = None

    def __enter__(self) -> Display:
        self._warnings = warnings.catch_warnings()
        self._warnings.__enter__()
        warnings.simplefilter("always")
        warnings.showwarning = self._warning  # type: ignore[assignment]
        self._handler = logging.StreamHandler(sys.stderr)
        self._handler.setFormatter(logging.Formatter("Note: %(message)s"))
        logging.getLogger("consilience").addHandler(self._handler)
        logging.getLogger("consilience").propagate = False
        if self.console.is_terminal and not self.quiet:
            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TaskProgressColumn(),
                TextColumn("{task.fields[rate]}"),
                TimeRemainingColumn(),
                TextColumn("[dim]{task.fields[error]}"),
                console=self.console,
            )
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()
        logging.getLogger("consilience").removeHandler(self._handler)
        logging.getLogger("consilience").propagate = True
        self._warnings.__exit__(kind, error, trace)
        if kind is None and self._remarks and not self.quiet:
            topics = ", ".join(sorted(self._remarks))
            note = f"[yellow]Note:[/] this plan is at or beyond a limit of the theorems ({topics})"
            self.console.print(f"{note}; `consilience check` says more.\n", highlight=False, soft_wrap=True)

    def follow(self, plan: Plan) -> ShowProgress | None:
        """Begin to show one run; the function that it returns takes its progress."""
        bar = self._progress
        if bar is None:
            return None
        task = bar.add_task(counted(plan.num_agents), total=plan.num_steps, rate="compiling …", error="")

        def show(step: Step) -> None:
            bar.update(
                task,
                completed=step.step,
                rate=f"{step.steps_per_second:,.0f} steps/s",
                error=f"consensus error {step.consensus_error:.3g}" if plan.num_agents > 1 else "",
            )
            if step.step == step.num_steps:
                bar.update(task, rate=f"{step.steps_per_second:,.0f} steps/s, comparing …")

        return show

    def _warning(self, message: Warning | str, *_: Any) -> None:
        from consilience.errors import PlanWarning

        if isinstance(message, PlanWarning):
            self._remarks.add(message.topic)


def print_findings(results: Sequence[tuple[Plan, list[Finding]]]) -> None:
    """The findings about each plan, with remedies."""
    console = Console()
    for plan, findings in results:
        console.print(f"[bold]{counted(plan.num_agents)}, {plan.num_steps:,} steps[/]", highlight=False)
        for finding in findings:
            text = f"  {_MARKS[finding.level]} {finding.topic}: {finding.message}"
            console.print(text, highlight=False, soft_wrap=True)
            if finding.remedy:
                console.print(f"      → {finding.remedy}", highlight=False, soft_wrap=True)


def print_experiments(known: Mapping[str, Experiment]) -> None:
    """A table of the experiments."""
    table = Table("name", "what", "agents", box=None, padding=(0, 2))
    for name, experiment in known.items():
        table.add_row(name, experiment.title, ", ".join(map(str, experiment.networks)))
    Console().print(table)


def print_result(summary: Mapping[str, Any], page: Path) -> None:
    """A short table of the results and the path of the report."""
    if "results" in summary:
        records = summary["results"]
        columns = {key.replace("_", " "): key for key in records[0]}
        shown = tables.rows(records, columns)
    else:
        extra = tuple(key for key in ("sinkhorn", "kl") if key in summary["agents"][0])
        shown = tables.agents(summary, extra)
    table = Table(*shown.header, box=None, padding=(0, 2), header_style="bold")
    for column in table.columns[1:]:
        column.justify = "right"
    for row in shown.body[:16]:
        table.add_row(*row)
    console = Console()
    if not console.is_terminal:
        console.width = 200
    console.print(table)
    if len(shown.body) > 16:
        console.print(f"  … and {len(shown.body) - 16} more")
    if "sinkhorn_floor" in summary and "results" not in summary:
        paper = (summary.get("paper") or {}).get("sinkhorn")
        beside = f", the paper reports {paper}" if paper else ""
        floor = f"Sinkhorn distance {summary['sinkhorn']:.3f}; exact draws score {summary['sinkhorn_floor']:.3f}"
        console.print(f"\n{floor}{beside}.", highlight=False)
    console.print(f"\nReport: {page}", highlight=False, soft_wrap=True)
