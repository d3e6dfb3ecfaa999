"""`consilience data`: which data sets are known, which are here, and how to get them."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from consilience.cli.options import Json

app = typer.Typer(help="Data sets: list what is known, get what is not here.", no_args_is_help=True)
Names = Annotated[list[str], typer.Argument(help="Names of data sets, or all.")]


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List the data sets, and whether their files are here."""
    from consilience.cli import display
    from consilience.datasets.availability import availability

    rows = availability()
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    else:
        display.print_datasets(rows)


@app.command()
def get(names: Names, as_json: Json = False) -> None:
    """Find or download data sets into the user's cache, and check them."""
    from consilience.cli import display
    from consilience.datasets.availability import fetch

    with display.working(quiet=as_json) as show:
        places = fetch(names, show)
    if as_json:
        typer.echo(json.dumps(places, indent=2))
    else:
        for place in places:
            typer.echo(place)
