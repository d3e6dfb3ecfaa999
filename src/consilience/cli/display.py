"""What the terminal shows: progress, notes, findings, results."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, Task, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from consilience.experiments import Experiment
from consilience.planning.checks import counted
from consilience.planning.suggestions import SuggestedPlan
from consilience.plans import Plan
from consilience.reports import tables
from consilience.runs.convergence import ESS_GOAL, RHAT_GOAL
from consilience.runs.loop import Progress as Step
from consilience.runs.loop import ShowProgress
from consilience.samplers import Finding
from consilience.sampling.targets import Resolved

_MARKS = {"ok": "[green]✓[/]", "warning": "[yellow]![/]", "error": "[red]✗[/]"}

_WATCHED = {
    "consensus_error": "consensus error {:.3g}", "distance_to_neighbours": "distance to neighbours {:.3g}",
    "worst_rhat": "R-hat {:.3f}", "fewest_effective": "{:,.0f} effective draws",
    "acceptance_rate": "acceptance {:.2f}", "step_size": "step size {:.2g}",
}  # fmt: skip
"""What is shown of a run while it samples, and how."""


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
                _TimeLeft(),
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
        comparing = bar.add_task("  predictions", total=1.0, rate="", error="", visible=False)

        def show(step: Step) -> None:
            if step.evaluated:
                bar.update(comparing, completed=step.evaluated, visible=True)
                return
            with_facts = plan.num_agents > 1 or plan.sampler.tunes_itself
            bar.update(task, **_place(plan, step), error=_measured(step) if with_facts else "")
            if step.step == step.num_steps:
                done = f"{step.steps_per_second:,.0f} steps/s" if not plan.sampler.tunes_itself else "sampled"
                bar.update(task, rate=f"{done}, comparing …")

        return show

    def follow_run(self, path: Path) -> ShowProgress | None:
        """Begin to show a run that is resumed."""
        return self.follow(Plan.load(path / "plan.toml")) if (path / "plan.toml").is_file() else None

    def outline(self, parts: Sequence[tuple[str, float]]) -> Callable[[int], None]:
        """Show how far a sequence of parts is, each with its weight; the function takes the number that begins."""
        bar = self._progress
        total = sum(weight for _, weight in parts)
        task = None if bar is None else bar.add_task("all parts", total=total, rate="", error="")

        def begin(number: int) -> None:
            name = f"part {number + 1} of {len(parts)}: {parts[number][0]}"
            if bar is None or task is None:
                self.console.print(name, highlight=False)
                return
            for other in bar.task_ids:
                bar.update(other, visible=other == task)
            bar.update(task, completed=sum(weight for _, weight in parts[:number]), rate=name)

        return begin

    def _warning(self, message: Warning | str, *_: Any) -> None:
        from consilience.errors import PlanWarning

        if isinstance(message, PlanWarning):
            self._remarks.add(message.topic)


def _place(plan: Plan, step: Step) -> dict[str, Any]:
    """How far a run is, for its bar, and in words."""
    if not plan.sampler.tunes_itself:
        return {"completed": step.step, "rate": f"{step.steps_per_second:,.0f} steps/s"}
    if step.step < plan.burn_in:
        words = f"warming up, {step.step:,} of {plan.burn_in:,}"
        return {"completed": step.step, "total": plan.burn_in, "rate": words}
    drawn = (step.step - plan.burn_in) // plan.store_every
    if not plan.stops_itself:
        return {"completed": drawn, "total": plan.num_draws, "rate": f"{drawn:,} of {plan.num_draws:,} draws"}
    mixed = step.metrics.get("worst_rhat", RHAT_GOAL) <= RHAT_GOAL
    reached = min(step.metrics.get("fewest_effective", 0.0), ESS_GOAL if mixed else 0.95 * ESS_GOAL)
    return {"completed": reached, "total": ESS_GOAL, "rate": f"{drawn:,} draws, until converged", "open_ended": True}


def _measured(step: Step) -> str:
    shown = [text.format(step.metrics[name]) for name, text in _WATCHED.items() if name in step.metrics]
    return ", ".join(shown[:3])


class _TimeLeft(TimeRemainingColumn):
    """How long it will take, unless nobody can know."""

    def render(self, task: Task) -> Text:
        """The time, or nothing."""
        return Text("") if task.fields.get("open_ended") else super().render(task)


def length_of(plan: Plan) -> str:
    """How long a plan samples, and by what, in words."""
    if not plan.sampler.tunes_itself:
        return f"{plan.num_steps:,} steps of {plan.sampler.kind}"
    draws = f"{plan.num_draws:,} draws" if plan.num_draws else f"until converged (at most {plan.max_draws:,} draws)"
    chains = f"{plan.num_chains} chain{'s' if plan.num_chains > 1 else ''}"
    warmup = f"{plan.num_warmup:,} moves" if plan.is_unison else f"at most {plan.num_warmup:,} steps"
    return f"{plan.sampler.method(plan.num_agents)}, {chains}, {warmup} of warm-up, then {draws}"


@contextmanager
def working(quiet: bool) -> Iterator[Callable[[str], None]]:
    """A line that says what is being done; it takes the words."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda _: None
        return
    with console.status("…") as status:
        yield lambda words: status.update(f"{words} …")


def print_suggestions(suggestions: Sequence[SuggestedPlan], why_not: str = "") -> None:
    """Each plan's step sizes with the reasons."""
    for suggestion in suggestions:
        _print_reasons(f"{suggestion.name}: ", suggestion.plan, suggestion.reasons)
    if why_not:
        Console().print(f"No plan inside the theorems: {why_not}", highlight=False, soft_wrap=True)


def print_reasons(plans: Iterable[Resolved]) -> None:
    """The numbers that were chosen for plans, with the reasons; nothing of those that had their own."""
    for one in plans:
        if one.reasons:
            _print_reasons("", one.plan, one.reasons)


def _print_reasons(title: str, plan: Plan, reasons: Sequence[str]) -> None:
    console = Console()
    title += f"{counted(plan.num_agents)} on a {plan.graph.name}, {length_of(plan)}"
    for line in (f"[bold]{title}[/]", f"  {plan.sampler.describe(plan.num_steps)}"):
        console.print(line, highlight=False, soft_wrap=True)
    for reason in reasons:
        console.print(f"  · {reason}", highlight=False, soft_wrap=True)


def print_nothing_to_suggest(plan: Plan) -> None:
    """What `suggest` says of a sampler that tunes itself."""
    console = Console()
    console.print(f"[bold]{counted(plan.num_agents)} on a {plan.graph.name}[/]", highlight=False)
    text = f"Nothing to suggest: {plan.sampler.kind} tunes itself. The plan: {length_of(plan)}."
    console.print(text, highlight=False, soft_wrap=True)


def print_theory(described: Mapping[str, Any], page: Path) -> None:
    """The conditions, the constants, the answers and the path of the page."""
    from consilience.reports import theory_report

    console = wide_console()
    console.print(theory_report.conditions_in_words(described), highlight=False, soft_wrap=True)
    shown = [theory_report.problem_table(described)]
    if described["theorem_constants"]:
        shown.append(theory_report.theorem_table(described))
    shown.append(theory_report.answer_table(described))
    if described["comparisons"]:
        shown.append(theory_report.comparison_table(described))
    for table in shown:
        console.print()
        console.print(_rich(table))
    console.print()
    if described["num_agents"] > 1:
        console.print(theory_report.slopes_in_words(described["plans"][0]), highlight=False, soft_wrap=True)
    if described["comparisons"]:
        console.print(theory_report.comparison_in_words(described), highlight=False, soft_wrap=True)
    console.print(f"\nReport: {page}", highlight=False, soft_wrap=True)


def print_findings(results: Sequence[tuple[Plan, list[Finding]]]) -> None:
    """The findings about each plan, with remedies."""
    console = Console()
    for plan, findings in results:
        console.print(f"[bold]{counted(plan.num_agents)}, {length_of(plan)}[/]", highlight=False, soft_wrap=True)
        for finding in findings:
            text = f"  {_MARKS[finding.level]} {finding.topic}: {finding.message}"
            console.print(text, highlight=False, soft_wrap=True)
            if finding.remedy:
                console.print(f"      → {finding.remedy}", highlight=False, soft_wrap=True)


def print_experiments(known: Mapping[str, Experiment]) -> None:
    """A table of the experiments."""
    table = Table("name", "what", "runs", box=None, padding=(0, 2))
    for name, experiment in known.items():
        table.add_row(name, experiment.title, ", ".join(experiment.plans()))
    Console().print(table)


def print_datasets(rows: Sequence[Mapping[str, Any]]) -> None:
    """A table of the data sets."""
    shown = [{**row, "megabytes": f"{row['bytes'] / 1e6:.1f}" if row["bytes"] else "–"} for row in rows]
    columns = {"name": "name", "what": "title", "MB": "megabytes", "here": "here", "terms": "terms"}
    wide_console().print(_rich(tables.rows(shown, columns)))


def wide_console() -> Console:
    """A console that does not clip tables where nobody looks at a terminal."""
    console = Console()
    if not console.is_terminal:
        console.width = 200
    return console


def print_table(shown: tables.Table) -> None:
    """Print a table; one that is wider than the terminal in parts, so that nothing is cut off."""
    console = wide_console()
    for number, part in enumerate(tables.in_parts(shown, console.width)):
        if number:
            console.print()
        console.print(_rich(part))


def _rich(shown: tables.Table) -> Table:
    """A table for the terminal; numbers stand on the right."""
    table = Table(box=None, padding=(0, 1), header_style="bold")
    for place, (title, words) in enumerate(zip(shown.header, shown.word_columns, strict=True)):
        on_left = words or place == 0
        table.add_column(title, justify="left" if on_left else "right", no_wrap=not on_left)
    for row in shown.body:
        table.add_row(*map(Text, row))  # `sex[male]` is no markup
    return table
