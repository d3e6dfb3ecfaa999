"""The table on disk: which cells are wanted, those that are done, and all of them together.

    TABLE/
      yardstick.json                 what was asked for
      cells/POSTERIOR/CELL/          result.json, and the run
      cells/POSTERIOR/alone-…/       what every agent sampled alone, for the methods that combine it
      summary.json, table.csv        all cells that are done
      figures/*.png, report.html

A cell that fails stays in the table with its reason. Interrupted, the table is continued with the cells that are not
done, and asked for more of it gets the cells that it lacks. What took too long continues if it may take longer.
"""

from __future__ import annotations

import csv
import io
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from consilience import posteriors
from consilience.errors import Interrupted, RunError, StorageError
from consilience.runs.files import disk_errors, read_json, write_json, write_text
from consilience.version import __version__
from consilience.yardstick.alone import alone, combined, directory_of_draws, takes_draws
from consilience.yardstick.cells import Cell, Request
from consilience.yardstick.limits import OverdueError, clocked, deaths_counted, ended_after, seconds_in
from consilience.yardstick.measures import is_false
from consilience.yardstick.methods import METHODS
from consilience.yardstick.sampled import ShowRun, sampled
from consilience.yardstick.sharing import over_its_graph, source_of_draws
from consilience.yardstick.targets import findings, in_words, targets_met

NAME = "posteriordb"
"""What the command line calls the table."""
_FORMAT = 1
log = logging.getLogger("consilience")

Announce = Callable[[int, Cell], None]


def start_table(request: Request, path: Path) -> list[Cell]:
    """Lay out a table, or ask one that is there for more; the cells that are not done."""
    if path.exists() and any(path.iterdir()) and not is_table(path):
        raise RunError(f"{path} is not empty and holds no table of posteriors: choose a new directory")
    before = _requests(path) if is_table(path) else []
    if any((one.budget, one.seed) != (request.budget, request.seed) for one in before):
        raise RunError(
            f"{path} was begun with a budget of {before[0].budget:,} rounds and seed {before[0].seed}: cells of one "
            "table must be alike; ask for the same, or choose a new directory"
        )
    with disk_errors(path):
        path.mkdir(parents=True, exist_ok=True)
        requests = [*(one for one in before if one != request), request]  # the last one's minutes count
        every = [one.model_dump(mode="json", exclude_none=True) for one in requests]
        write_json(path / "yardstick.json", {"format": _FORMAT, "version": __version__, "requests": every})
    return _lacking(path)


def complete_table(path: Path, show: ShowRun, announce: Callable[[list[Cell]], Announce]) -> dict[str, Any]:
    """Make the cells that are not done; the summary of the whole table.

    Args:
        path: the table's directory.
        show: called before each run; returns what shows its progress.
        announce: given the cells that are to be made, returns what is called before each of them, with its number.
    """
    request, missing = _requests(path)[-1], _lacking(path)
    done = [cell for cell in _cells(path) if cell not in missing]
    known = {source_of_draws(cell): cell for cell in done if read_json(_result(path, cell))["failed"] is None}
    begin = announce(missing)
    for number, cell in enumerate(missing):
        begin(number, cell)
        twin = known.setdefault(source_of_draws(cell), cell)
        row = (
            _made(path, cell, request, show) if twin is cell else over_its_graph(read_json(_result(path, twin)), cell)
        )
        with disk_errors(path):
            _result(path, cell).parent.mkdir(parents=True, exist_ok=True)
            write_json(_result(path, cell), row)
        gather(path)
    return gather(path)


def is_table(path: Path) -> bool:
    """Whether a directory holds a table."""
    return (path / "yardstick.json").is_file()


def gather(path: Path) -> dict[str, Any]:
    """All cells that are done, as `summary.json` and `table.csv`."""
    wanted = _cells(path)
    rows = [read_json(_result(path, cell)) for cell in wanted if _result(path, cell).is_file()]
    rows = [{**row, "false_verdict": is_false(row), **targets_met(row)} for row in rows]
    summary = {
        "format": _FORMAT,
        "problem": NAME,
        "budget": _requests(path)[0].budget,
        "num_cells": len(rows),
        "num_wanted": len(wanted),
        "num_failed": sum(row["failed"] is not None for row in rows),
        "num_false_verdicts": sum(row["false_verdict"] for row in rows),
        "verdict": in_words(rows),
        "targets": [one._asdict() for one in findings(rows)],
        "not_converged": list(dict.fromkeys(row["directory"] for row in rows if row.get("converged") is False)),
        "results": rows,
    }
    with disk_errors(path):
        write_json(path / "summary.json", summary)
        write_text(path / "table.csv", _as_csv(rows))
    return summary


def _requests(path: Path) -> list[Request]:
    return [Request(**one) for one in read_json(path / "yardstick.json")["requests"]]


def _cells(path: Path) -> list[Cell]:
    return list(dict.fromkeys(cell for request in _requests(path) for cell in request.cells()))


def _lacking(path: Path) -> list[Cell]:
    """The cells that are not done; one that took too long is not if it may take longer now."""
    minutes = _requests(path)[-1].minutes

    def is_done(cell: Cell) -> bool:
        place = _result(path, cell)
        return place.is_file() and read_json(place).get("minutes", minutes) >= minutes

    return [cell for cell in _cells(path) if not is_done(cell)]


def _result(path: Path, cell: Cell) -> Path:
    return path / cell.directory / "result.json"


def _made(path: Path, cell: Cell, request: Request, show: ShowRun) -> dict[str, Any]:
    """The row of a cell. Whatever a method does on a posterior, the others are made too."""
    where, kind = path / cell.directory, METHODS[cell.method]
    places = [where, directory_of_draws(where, cell)] if takes_draws(cell) else [where]
    row = {**cell._asdict(), "title": kind.title, "directory": cell.directory, "failed": None}
    make = sampled if kind.plan is not None else combined
    try:
        with deaths_counted(where), ended_after(request.minutes):
            posterior = posteriors.load(cell.posterior)
            if takes_draws(cell):
                with clocked(places[-1]):
                    alone(posterior, cell, request, where, show)
            with clocked(where):
                row |= make(posterior, cell, request, where, show)
    except (Interrupted, StorageError):
        raise
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        log.warning("%s of %s failed: %s", cell.place, cell.posterior, reason)
        row |= {"failed": reason, "error": type(error).__name__}
        if isinstance(error, OverdueError):
            row["minutes"] = request.minutes
    return {**row, "seconds": seconds_in(places)}


def _as_csv(rows: list[dict[str, Any]]) -> str:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
