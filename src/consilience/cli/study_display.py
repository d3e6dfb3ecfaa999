"""What the terminal shows of a study: formula, columns and the prior of every parameter."""

from __future__ import annotations

import json
from pathlib import Path

from rich.table import Table

from consilience.cli.display import wide_console
from consilience.errors import DataError
from consilience.plans import Plan
from consilience.studies import Study, of_run


def print_study_file(path: str | Path, as_json: bool) -> None:
    """A study's file, before anybody says how many sites there are."""
    study = Study.load(path)
    if as_json:
        print(json.dumps(study.entries(), indent=2))
    else:
        _print(study)


def print_study(plan: Plan) -> None:
    """The study of a plan."""
    study = of_run(plan)
    if study is None:
        raise DataError("the plan has no study")
    _print(study)


def _print(study: Study) -> None:
    console = wide_console()
    console.print(f"[bold]{study.name}[/]: {study.family} regression", highlight=False)
    console.print(f"  {study.formula}", highlight=False, markup=False, soft_wrap=True)
    if study.unfilled:
        words = f"  {', '.join(study.unfilled)} will come from the sites, and then the priors."
        console.print(words, highlight=False, markup=False, soft_wrap=True)
        return
    table = Table("parameter", "prior", box=None, padding=(0, 2), header_style="bold")
    for row in study.priors_table():
        table.add_row(row["parameter"].replace("[", "\\["), row["prior"])
    console.print(table)
