"""The commands that ask a finished run: `predict`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from consilience.cli.options import Json

if TYPE_CHECKING:
    from consilience.problems import Problem
    from consilience.sampling.run import Run

RunPath = Annotated[Path, typer.Argument(help="The directory of a run; of a node's, at that node.")]
NewRows = Annotated[Path, typer.Argument(help="The rows to predict: .csv or .parquet, or arrays in .npz or .npy.")]
Predictions = Annotated[
    Path | None, typer.Option("--out", "-o", help="Write the predictions to this CSV file, not to standard output.")
]
Site = Annotated[int | None, typer.Option("--site", min=0, help="Of which site the rows are, where that matters.")]
NewSite = Annotated[bool, typer.Option("--new-site", help="The rows are of a site that nobody has seen.")]
Interval = Annotated[float, typer.Option("--interval", help="How much of the probability the intervals hold.")]
ProblemName = Annotated[
    str | None, typer.Option("--problem", help="module:attribute with the run's problem, if its plan names none.")
]
Allow = Annotated[
    list[str] | None,
    typer.Option("--allow", help="A module that a node's plan may name as its problem, which runs it; repeatable."),
]


def predict(
    path: RunPath,
    new: NewRows,
    out: Predictions = None,
    site: Site = None,
    new_site: NewSite = False,
    interval: Interval = 0.95,
    problem: ProblemName = None,
    allow: Allow = None,
    as_json: Json = False,
) -> None:
    """Predict the outcomes of new rows from a run: mean and interval for each."""
    from consilience.cli import display
    from consilience.errors import InputError
    from consilience.runs.files import disk_errors, write_text
    from consilience.sampling.run import Run

    if site is not None and new_site:
        raise InputError("--site and --new-site exclude each other: the rows are of one site, or of a new one")
    run = Run(path)
    with display.Display(quiet=False):
        known = problem_for(run, problem, allow or ())
        whose: int | str | None = "new" if new_site else site
        table = run.predict(new, agent=whose, problem=known, interval=interval)
    if as_json:
        typer.echo(table.reset_index().to_json(orient="records", indent=2))
    elif out is None:
        typer.echo(table.to_csv(), nl=False)
    if out is not None:
        with disk_errors(out.parent):
            write_text(out, table.to_csv())
        typer.echo(f"{len(table):,} predictions: {out}", err=as_json)


def problem_for(run: Run, name: str | None, allow: Any) -> Problem | None:
    """The problem that the user named; a module that a node's plan names must be allowed: it came from elsewhere."""
    from consilience.experiments import import_problem, require_allowed

    if name is not None:
        return import_problem(name, run.plan.num_agents)
    if run.status["engine"] == "peers":
        require_allowed(run.plan.problem, allow, "add --allow {}")
    return None
