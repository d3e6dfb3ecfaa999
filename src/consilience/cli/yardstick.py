"""`run posteriordb`: its options, and how a table of posteriors is made, continued and shown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

if TYPE_CHECKING:
    from consilience.sampling.targets import Wishes

NAME = "posteriordb"
TITLE = "every method on posteriors with known moments, in one table"
_FILE = "yardstick.json"
_MOST_NAMED = 4
_WHOSE = "Of posteriordb:"

Posteriors = Annotated[
    list[str] | None, typer.Option("--posterior", help=f"{_WHOSE} a posterior, repeatable (by default all).")
]
Methods = Annotated[
    list[str] | None, typer.Option("--method", help=f"{_WHOSE} a method, repeatable (by default all).")
]
Splits = Annotated[
    list[str] | None, typer.Option("--split", help=f"{_WHOSE} natural (the default) or random; repeatable.")
]
Budget = Annotated[
    int | None, typer.Option("--budget", min=100, help=f"{_WHOSE} rounds that a method may take (200,000).")
]
Minutes = Annotated[
    float | None, typer.Option("--minutes", min=0.1, help=f"{_WHOSE} that one attempt at a cell may take (60).")
]
Quick = Annotated[bool, typer.Option("--quick", help=f"{_WHOSE} four posteriors and six methods, in minutes.")]


class Asked(NamedTuple):
    """The options of this table."""

    posteriors: list[str] | None
    methods: list[str] | None
    splits: list[str] | None
    budget: int | None
    minutes: float | None
    quick: bool


def run(asked: Asked, wishes: Wishes, simulated: bool, out: Path | None, as_json: bool) -> None:
    """Make a table, or more of one that is there."""
    from consilience.cli.options import default_path
    from consilience.errors import InputError
    from consilience.yardstick import Request, start_table

    unused = _unused(wishes) if simulated else "--engine"
    if unused is not None:
        raise InputError(
            f"{unused} is not for {NAME}, whose methods are set up alike for all posteriors: it takes --posterior, "
            "--method, --graph, --split, --agents, --budget, --minutes, --seed and --quick"
        )
    request = Request.of(
        quick=asked.quick, posteriors=_listed(asked.posteriors), methods=_listed(asked.methods),
        graphs=_listed([wishes.graph] if wishes.graph else None), splits=_listed(asked.splits),
        num_agents=wishes.num_agents, budget=asked.budget, minutes=asked.minutes, seed=wishes.entries.get("seed"),
    )  # fmt: skip
    if not asked.posteriors and not asked.quick:
        _say_what_lacks()
    path = out or default_path(NAME)
    start_table(request, path)
    resume(path, as_json)


def _say_what_lacks() -> None:
    """Of all posteriors those whose files are not here."""
    from consilience import posteriors

    lacking = sorted(set(posteriors.names()) - set(posteriors.available()))
    if lacking:
        what = f"{', '.join(lacking)} (not inside the package) is left out"
        typer.echo(f"Note: {what}: put its file below a directory and name that in CONSILIENCE_DATA", err=True)


def resume(path: Path, as_json: bool) -> None:
    """Make the cells that a table lacks, and show it."""
    from consilience.cli import display
    from consilience.yardstick import Cell, complete_table

    with display.Display(quiet=as_json) as screen:

        def announce(missing: list[Cell]) -> Any:
            begin = screen.outline([(f"{cell.posterior}: {cell.place}", 1.0) for cell in missing])
            return lambda number, _: begin(number)

        complete_table(path, screen.follow, announce)
    report(path, as_json)


def report(path: Path, as_json: bool) -> None:
    """Draw the page of a table from its directory, and print what it says."""
    from consilience.runs.files import read_json
    from consilience.yardstick import write_page

    page = write_page(path)
    summary = read_json(path / "summary.json")
    from consilience.cli import display

    _warn(summary)
    if as_json:
        typer.echo(json.dumps({**summary, "run": str(path), "report": str(page)}, indent=2))
        return
    from consilience.yardstick.page import errors_table, targets_table

    typer.echo(
        "Largest error of a mean in standard deviations, of several graphs and splits the worst (*: on target)\n"
    )
    display.print_table(errors_table(summary["results"]))
    typer.echo()
    display.print_table(targets_table(summary))
    typer.echo(f"\n{summary['verdict']}\nReport: {page}")


def _warn(summary: Mapping[str, Any]) -> None:
    """A line on standard error for the runs of a table that have not converged."""
    short = summary["not_converged"]
    if short:
        rest = f", and {len(short) - _MOST_NAMED} more" if len(short) > _MOST_NAMED else ""
        runs = {row["directory"] for row in summary["results"]}
        words = f"{len(short)} of {len(runs)} runs ({'; '.join(short[:_MOST_NAMED])}{rest})"
        todo = "read their rows as what the budget buys, or give a larger --budget"
        typer.echo(f"Warning: Not converged: {words}. What to do: {todo}.", err=True)


def is_table(path: Path) -> bool:
    """Whether a directory holds such a table."""
    return (path / _FILE).is_file()


def refuse_elsewhere(target: str, **options: Any) -> None:
    """Check that no option of this table is given for something else."""
    from consilience.errors import InputError

    for name, value in options.items():
        if value:
            raise InputError(f"--{name} is for {NAME}, not for {target}: leave it out, or run {NAME}")


def _listed(given: list[str] | None) -> tuple[str, ...]:
    """Options that are repeated, or separated by commas.

    >>> _listed(["ring,star", "path"])
    ('ring', 'star', 'path')
    """
    return tuple(name for one in given or () for name in one.split(",") if name)


def _unused(wishes: Wishes) -> str | None:
    """An option that was given and has no meaning here."""
    said = {
        "--steps": wishes.num_steps, "--sampler": wishes.sampler, "--auto": wishes.auto, "--allow": wishes.allow,
        "--data": wishes.data,
    }  # fmt: skip
    named = [*wishes.numbers, *(name for name in wishes.entries if name != "seed")]
    said |= {f"--{name.removeprefix('num_').replace('_', '-')}": True for name in named}
    return next((option for option, value in said.items() if value), None)
