"""Entries of a codebook that the sites find together: centre and scale from sums over them, levels by their union.

    centre = Σ_i Σ_rows x / Σ_i m_i,      scale² = Σ_i Σ_rows (x − centre)² / Σ_i m_i

Two sums, the mean first: squares of what is far from zero would lose all digits. Both are rounded to what is shown,
and what is shown is used. A site gives away, for each column, how many values it has, their sum, and the sum of
squares around the common mean, all added to those of the others; and its levels, where those are asked for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from consilience.errors import DataError
from consilience.studies.checking import read_levels, read_numbers
from consilience.studies.codebook import FROM_SITES, Category, Codebook, Number, rounded

Levels = dict[str, list[str]]
_MOST_CHARACTERS = 200


class Together(Protocol):
    """What all sites have, put together."""

    def union(self, levels: Levels) -> Levels:
        """The levels of all sites, from those of this one."""

    def total(self, values: np.ndarray) -> np.ndarray:
        """The sums over all sites, from the numbers of this one."""


class Filled(NamedTuple):
    """A codebook without open entries, and each value that was found, in words."""

    codebook: Codebook
    found: tuple[str, ...]


class SiteFacts:
    """What one site's file says about the open entries of a codebook.

    Args:
        path: the site's file.
        codebook: with open entries.
    """

    def __init__(self, path: str | Path, codebook: Codebook) -> None:
        self._numbers = read_numbers(path, codebook, open_numbers(codebook))
        self.levels: Levels = read_levels(path, codebook, open_categories(codebook))
        for name, levels in self.levels.items():
            if any(len(level) > _MOST_CHARACTERS for level in levels):
                raise DataError(f"{path}: {name} has a level of more than {_MOST_CHARACTERS} characters")

    def sums(self) -> np.ndarray:
        """For each open column, how many values there are and their sum: `(2 columns,)`."""
        return np.array([number for x in self._numbers.values() for number in (len(x), math.fsum(x))], float)

    def squares(self, means: Mapping[str, float]) -> np.ndarray:
        """For each open column, the sum of squares around the common mean: `(columns,)`."""
        return np.array([math.fsum((x - means[name]) ** 2) for name, x in self._numbers.items()], float)


def fill_here(codebook: Codebook, paths: Sequence[str | Path]) -> Filled:
    """Fill a codebook's open entries from files that are all here; the same values as over a network."""
    if not codebook.unfilled:
        return Filled(codebook, ())
    facts = [SiteFacts(path, codebook) for path in paths]
    levels = {name: sorted({level for one in facts for level in one.levels[name]}) for name in facts[0].levels}
    counted = _summed([one.sums() for one in facts])
    means = means_of(codebook, counted)
    return filled(codebook, len(facts), levels, counted, _summed([one.squares(means) for one in facts]))


def fill_together(codebook: Codebook, path: str | Path, num_sites: int, others: Together) -> Filled:
    """Fill a codebook's open entries together with the other sites, each of which reads its own file alone."""
    own = SiteFacts(path, codebook)
    levels = others.union(own.levels)
    counted = others.total(own.sums())
    squares = others.total(own.squares(means_of(codebook, counted)))
    return filled(codebook, num_sites, levels, counted, squares)


def open_numbers(codebook: Codebook) -> list[str]:
    """The columns of numbers that have an open entry, in order."""
    return [
        name
        for name, kind in codebook.columns.items()
        if isinstance(kind, Number) and FROM_SITES in (kind.centre, kind.scale)
    ]


def open_categories(codebook: Codebook) -> list[str]:
    """The categories whose levels are open, in order."""
    return [
        name for name, kind in codebook.columns.items() if isinstance(kind, Category) and kind.levels == FROM_SITES
    ]


def means_of(codebook: Codebook, counted: np.ndarray) -> dict[str, float]:
    """The mean of each open column, from counts and sums over all sites."""
    pairs = counted.reshape(-1, 2)
    return {
        name: float(total / count) if count else 0.0
        for name, (count, total) in zip(open_numbers(codebook), pairs, strict=True)
    }


def _summed(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Sums over sites, rounded once, as those of a network are."""
    return np.array([math.fsum(each) for each in zip(*parts, strict=True)], float)


def filled(codebook: Codebook, num_sites: int, levels: Levels, counted: np.ndarray, squares: np.ndarray) -> Filled:
    """The codebook with what sums and levels of all sites say in place of its open entries."""
    columns, found = dict(codebook.columns), []
    for (name, mean), (count, _), square in zip(
        means_of(codebook, counted).items(), counted.reshape(-1, 2), squares, strict=True
    ):
        kind = columns[name]
        assert isinstance(kind, Number)
        spread = math.sqrt(square / count) if count else 0.0
        if not spread > 1e-12 * max(1.0, abs(mean)):
            raise DataError(
                f"{name!r} is the same in all rows of all sites, so it has no scale: write centre and scale into the "
                "codebook, or leave the column out of it"
            )
        values: dict[str, float] = {}
        if kind.scale == FROM_SITES:
            values["scale"] = rounded(spread)
        if kind.centre == FROM_SITES:
            values["centre"] = _near(mean, spread)
        unit = f" {kind.unit}" if kind.unit else ""
        shown = ", ".join(f"{entry} {values[entry]:g}{unit}" for entry in ("centre", "scale") if entry in values)
        found.append(f"{name}: {shown}, from {int(count):,} values at {num_sites} sites")
        columns[name] = kind.model_copy(update=values)
    for name in open_categories(codebook):
        kind = columns[name]
        assert isinstance(kind, Category)
        columns[name] = full = Category(levels=tuple(levels[name]), reference=kind.reference)
        told = " (the reference)"
        shown = ", ".join(one + told * (one == full.ordered_levels[0]) for one in levels[name])
        found.append(f"{name}: levels {shown}, from {num_sites} sites")
    return Filled(Codebook(missing=codebook.missing, columns=columns), tuple(found))


def _near(mean: float, spread: float) -> float:
    """A centre near the mean, to a tenth of the spread's leading digit: nobody's sum can be read off it.

    >>> _near(61.2345, 12.3)
    61.0
    """
    step = 10.0 ** (math.floor(math.log10(spread)) - 1)
    return float(f"{round(mean / step) * step:.12g}")
