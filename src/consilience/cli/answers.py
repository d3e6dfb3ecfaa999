"""The commands that ask finished runs: `predict` and `compare`."""

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
Compared = Annotated[
    list[Path], typer.Argument(help="Directories of runs of the same rows, or files that sites wrote with --out.")
]
SumsOut = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="Write the sums to this file; several sites' add up to the network's."),
]
ModelNames = Annotated[
    list[str] | None, typer.Option("--name", help="What a model is called, in the order of the runs; repeatable.")
]
BySite = Annotated[bool, typer.Option("--by-site", help="A table for each site too.")]
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


def compare(
    paths: Compared,
    out: SumsOut = None,
    name: ModelNames = None,
    by_site: BySite = False,
    allow: Allow = None,
    as_json: Json = False,
) -> None:
    """Compare models of the same rows by how well they predict rows left out (PSIS-LOO), from sums over sites."""
    from consilience.cli import answers_display, display
    from consilience.errors import InputError
    from consilience.runs.answers import has_scores
    from consilience.runs.files import disk_errors, write_json
    from consilience.sampling.comparing import comparison_of, read_comparisons
    from consilience.sampling.run import Run

    files = [path for path in paths if path.suffix == ".json" and path.is_file()]
    if files and len(files) < len(paths):
        raise InputError("give directories of runs, or files that sites wrote with --out, not both")
    with display.Display(quiet=as_json):
        if files:
            found = read_comparisons(files)
        else:
            runs = [Run(path) for path in paths]
            for run in runs:
                if not has_scores(run):
                    problem_for(run, None, allow or ())
            found = comparison_of(runs, name or ())
    if out is not None:
        with disk_errors(out.parent):
            write_json(out, found.to_dict())
    if as_json:
        table = found.table_by_site() if by_site else found.table()
        typer.echo(table.reset_index().to_json(orient="records", indent=2))
    else:
        answers_display.print_comparison(found, by_site)
        if out is not None:
            typer.echo(f"\nSums of {len(found.sites)} site{'s' if len(found.sites) > 1 else ''}: {out}")


def problem_for(run: Run, name: str | None, allow: Any) -> Problem | None:
    """The problem that the user named; a module that a node's plan names must be allowed: it came from elsewhere."""
    from consilience.experiments import import_problem, require_allowed

    if name is not None:
        return import_problem(name, run.plan.num_agents)
    if run.status["engine"] == "peers":
        require_allowed(run.plan.problem, allow, "add --allow {}")
    return None
