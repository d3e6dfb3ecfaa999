"""A first codebook from one site's file, for people to correct and to agree on.

Centre and scale are rounded mean and standard deviation, ranges are wider than the data: no value of a single row is
written, but levels are.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from consilience.errors import DataError
from consilience.studies import files
from consilience.studies.codebook import Category, Codebook, Number, Outcome, rounded

_MOST_LEVELS = 30
_YES = {"1", "yes", "true", "y", "t"}
_NO = {"0", "no", "false", "n", "f"}


class Proposal(NamedTuple):
    """A codebook, and what a person should look at."""

    codebook: Codebook
    notes: list[str]


def propose(path: str | Path) -> Proposal:
    """A codebook for a file as it is."""
    table, commas = files.read_table(path), files.has_decimal_commas(path)
    columns, notes = {}, []
    for name in table.columns:
        found, said = _column(table[name], commas)
        notes += [f"{name}: {one}" for one in said]
        if found is not None:
            columns[name] = found
        lacking = int(table[name].isna().sum())
        if lacking and found is not None:
            notes.append(f"{name}: missing in {lacking:,} of {len(table):,} rows; choose missing = refuse or drop")
    if not columns:
        raise DataError(f"{path} has no column of numbers or levels: {'; '.join(notes)}")
    return Proposal(Codebook(columns=columns), notes)


def _column(column: Any, commas: bool) -> tuple[Number | Category | Outcome | None, list[str]]:
    """What a column seems to be, and what to look at."""
    if column.isna().all():
        return None, ["empty; left out"]
    if files.looks_like_dates(column):
        return None, ["holds dates; left out: make a column of numbers from it, for example days since a fixed day"]
    values, no_numbers = files.as_numbers(column, commas)
    levels = sorted(files.as_text(column).dropna().unique())
    if len(levels) == 2 and (found := _outcome(levels)):
        return found, [f"{found.one!r} counts as 1: check that all sites mean the same"]
    if not no_numbers.any():
        return _number(values[np.isfinite(values)])
    share = no_numbers.sum() / column.notna().sum()
    if share < 0.5:
        return None, [f"numbers, but text in {int(no_numbers.sum()):,} rows; left out: mend the file"]
    if len(levels) > min(_MOST_LEVELS, max(2, len(column) // 2)):
        return None, [f"{len(levels):,} different texts, as of names or notes; left out"]
    said = ["check the levels' order and reference"]
    if len(levels) == 1:
        said = ["one level here; add those of the other sites"]
    return Category(levels=tuple(levels), reference=levels[0]), said


def _outcome(levels: list[str]) -> Outcome | None:
    """Yes and no, or 0 and 1, in the usual writings."""
    ones = [level for level in levels if level.lower() in _YES]
    zeros = [level for level in levels if level.lower() in _NO]
    return Outcome(one=ones[0], zero=zeros[0]) if len(ones) == len(zeros) == 1 else None


def _number(values: np.ndarray) -> tuple[Number, list[str]]:
    spread = float(values.std())
    if not spread > 1e-12 * max(1.0, float(np.abs(values).max())):
        note = "constant here: take centre, scale and range from a site where it varies, or leave it out of formulas"
        return Number(centre=rounded(float(values.mean()), 3)), [note]
    scale = rounded(spread)
    low = (math.floor(values.min() / scale) - 1) * scale
    high = (math.ceil(values.max() / scale) + 1) * scale
    low = 0.0 if values.min() >= 0 > low else rounded(low, 6)
    centre = round(float(values.mean()) / scale, 1) * scale
    return Number(low=low, high=rounded(high, 6), centre=rounded(centre, 6), scale=scale), ["say its unit and range"]
