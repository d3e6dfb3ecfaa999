"""How a file fits a codebook: what does not, in numbers of rows and never rows; and its columns as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from consilience.errors import DataError
from consilience.studies import files
from consilience.studies.codebook import FROM_SITES, Category, Codebook, Number, Outcome

_MOST_SHOWN = 5
_MOST_LEVELS = 1000


class Misfit(NamedTuple):
    """Something of a file that does not fit the codebook."""

    column: str
    what: str
    rows: int | None = None
    """How many rows it concerns; `None` if it is the whole column."""

    def __str__(self) -> str:
        where = "" if self.rows is None else f" in {self.rows:,} row{'' if self.rows == 1 else 's'}"
        return f"{self.column}: {self.what}{where}"


@dataclass(frozen=True)
class Columns:
    """Columns of a file that fit their codebook.

    Attributes:
        values: by name; numbers as they are, levels as their place in `ordered_levels`.
        num_rows: how many rows are used.
        num_dropped: how many had a missing value and were left out.
    """

    values: dict[str, np.ndarray]
    num_rows: int
    num_dropped: int


def check(path: str | Path, codebook: Codebook) -> list[Misfit]:
    """All that does not fit; missing values too, if the codebook refuses them."""
    return _looked_at(path, codebook, list(codebook.columns))[2]


def read_columns(path: str | Path, codebook: Codebook, names: Sequence[str]) -> Columns:
    """Some columns of a file as arrays; refused if anything does not fit."""
    values, missing, misfits = _looked_at(path, codebook, names)
    _require_none(path, misfits)
    kept = ~missing
    if not kept.any():
        raise DataError(f"{path} has a missing value in every row: a site needs at least one complete row")
    dropped = int(missing.sum())
    return Columns({name: column[kept] for name, column in values.items()}, len(missing) - dropped, dropped)


def read_numbers(path: str | Path, codebook: Codebook, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Of some columns of numbers, the values that are there."""
    if not names:
        return {}
    values, _, misfits = _looked_at(path, codebook, names)
    _require_none(path, misfits)
    return {name: column[np.isfinite(column)] for name, column in values.items()}


def read_levels(path: str | Path, codebook: Codebook, names: Sequence[str]) -> dict[str, list[str]]:
    """The levels that a file has in some columns, sorted."""
    if not names:
        return {}
    table = files.read_table(path, names)
    found = {name: sorted(files.as_text(table[name]).dropna().unique().tolist()) for name in names}
    for name, levels in found.items():
        if len(levels) > _MOST_LEVELS:
            raise DataError(
                f"{path}: {name} has {len(levels):,} different texts, and a category has at most {_MOST_LEVELS:,} "
                "levels: is it one? List the levels in the codebook"
            )
    return found


def _require_none(path: str | Path, misfits: Sequence[Misfit]) -> None:
    if misfits:
        more = f", and {len(misfits) - _MOST_SHOWN} more" if len(misfits) > _MOST_SHOWN else ""
        raise DataError(
            f"{path} does not fit the codebook: {'; '.join(map(str, misfits[:_MOST_SHOWN]))}{more}. Mend the file, "
            "or change the codebook at all sites"
        )


def _looked_at(
    path: str | Path, codebook: Codebook, names: Sequence[str]
) -> tuple[dict[str, np.ndarray], np.ndarray, list[Misfit]]:
    """Values of the columns that are there, which rows lack one, and what does not fit."""
    there = set(files.column_names(path))
    misfits = [Misfit(name, "the file has no such column") for name in names if name not in there]
    wanted = [name for name in names if name in there]
    if not wanted:
        raise DataError(f"{path} has none of the columns {', '.join(names)}: it has {', '.join(sorted(there))}")
    kinds = {name: codebook.column(name) for name in wanted}
    levels = {level for kind in kinds.values() for level in _known_levels(kind)}
    table, commas = files.read_table(path, wanted, levels), files.has_decimal_commas(path)
    values, missing = {}, np.zeros(len(table), bool)
    for name, kind in kinds.items():
        column = table[name]
        if isinstance(kind, Number):
            values[name], wrong = _numbers(name, kind, column, commas)
        else:
            values[name], wrong = _levels(name, kind, column)
        misfits += wrong
        lacking = column.isna().to_numpy()
        missing |= lacking
        if lacking.any() and codebook.missing == "refuse":
            misfits.append(Misfit(name, "missing values, and the codebook says `refuse`,", int(lacking.sum())))
    return values, missing, misfits


def _numbers(name: str, kind: Number, column: Any, commas: bool) -> tuple[np.ndarray, list[Misfit]]:
    values, no_numbers = files.as_numbers(column, commas)
    unit = f" {kind.unit}" if kind.unit else ""
    found = []
    if no_numbers.any():
        what = "dates where numbers belong" if files.looks_like_dates(column) else "text where numbers belong"
        found.append(Misfit(name, what, int(no_numbers.sum())))
    for bound, outside, word in ((kind.low, np.less, "below"), (kind.high, np.greater, "above")):
        if bound is not None and (count := int(outside(values, bound).sum())):
            found.append(Misfit(name, f"values {word} {bound:g}{unit} (another unit?)", count))
    return values, found


def _known_levels(kind: Number | Category | Outcome) -> tuple[str, ...]:
    """The levels that a column may have; none of numbers, and none if they are to come from the sites."""
    return () if isinstance(kind, Number) or getattr(kind, "levels", None) == FROM_SITES else kind.ordered_levels


def _levels(name: str, kind: Category | Outcome, column: Any) -> tuple[np.ndarray, list[Misfit]]:
    """Places among the levels, −1 where there is none; levels are no rows, so unknown ones are named."""
    text = files.as_text(column)
    if isinstance(kind, Category) and kind.levels == FROM_SITES:
        return np.full(len(text), -1), []
    known = {level: place for place, level in enumerate(kind.ordered_levels)}
    places = text.map(known).fillna(-1).to_numpy(dtype=np.int64)
    unknown = text[(places < 0) & text.notna().to_numpy()].value_counts()
    what = "unknown level" if isinstance(kind, Category) else f"neither {kind.zero!r} nor {kind.one!r} but"
    shown = [Misfit(name, f"{what} {str(level)[:40]!r}", int(count)) for level, count in unknown.items()]
    if len(shown) > _MOST_SHOWN:
        rest = int(unknown.iloc[_MOST_SHOWN:].sum())
        others = Misfit(name, f"{len(shown) - _MOST_SHOWN} other unknown levels", rest)
        shown = [*shown[:_MOST_SHOWN], others]
    return places, shown
