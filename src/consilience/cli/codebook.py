"""`consilience codebook`: what all sites of a study agree on about their columns; propose and check it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from consilience.cli.options import Json

app = typer.Typer(
    help="Codebooks of studies: propose one from a file, check a file against one.", no_args_is_help=True
)
DataFile = Annotated[Path, typer.Argument(help="A CSV or Parquet file of one site.")]
CodebookOut = Annotated[Path, typer.Option("--out", "-o", help="The codebook's file; must not be there yet.")]
CodebookFile = Annotated[Path, typer.Option("--codebook", help="The codebook, or a study with one.")]


@app.command()
def propose(path: DataFile, out: CodebookOut = Path("codebook.toml"), as_json: Json = False) -> None:
    """Write a first codebook from a file: kinds, levels, rounded centre and scale, wide ranges; no row is written."""
    from consilience.errors import DataError
    from consilience.runs.files import disk_errors, write_text
    from consilience.studies import require_packages
    from consilience.studies.proposing import propose as proposal_of

    require_packages()
    if out.exists():
        raise DataError(f"{out} is there already: choose another file with --out, or remove it")
    found = proposal_of(path)
    with disk_errors(out.parent):
        write_text(out, found.codebook.to_toml())
    if as_json:
        typer.echo(json.dumps({"codebook": str(out), "notes": found.notes}, indent=2))
        return
    for note in found.notes:
        typer.echo(f"  {note}")
    typer.echo(f"Codebook: {out}. Read it, correct it, and give the same file to all sites.")


@app.command()
def check(path: DataFile, codebook: CodebookFile = Path("codebook.toml"), as_json: Json = False) -> None:
    """Say what of a file does not fit a codebook, in numbers of rows and never rows."""
    from consilience.studies import Codebook, Study, is_study, require_packages
    from consilience.studies.checking import check as misfits_of

    require_packages()
    book = Study.load(codebook).used_codebook if is_study(codebook) else Codebook.load(codebook)
    misfits = misfits_of(path, book)
    if as_json:
        typer.echo(json.dumps([misfit._asdict() for misfit in misfits], indent=2))
    else:
        for misfit in misfits:
            typer.echo(f"  {misfit}")
        typer.echo(
            f"{path} does not fit {codebook}."
            if misfits
            else f"{path} fits {codebook} (digest {book.digest()[:12]})."
        )
    if misfits:
        raise typer.Exit(2)
