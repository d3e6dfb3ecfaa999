"""The columns of a design matrix: decided by formula and codebook alone, so that all sites have the same ones.

formulaic sees a small table that has every level of the codebook, and says there which columns it makes and how
categories are coded; each site's rows are then coded in the same way. So the stacked matrices of all sites are the
matrix of the pooled rows, also where a site lacks a level.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from consilience.errors import DataError
from consilience.studies.codebook import Codebook, Number

_NAME = re.compile(r"^c(\d+)(?:\[(?:T\.)?(\d+)\])?$")
INTERCEPT = "Intercept"
_MOST_COLUMNS = 5000


class _Part(NamedTuple):
    """A factor of a column: its name, and the spread and mean that it is taken to have."""

    label: str
    spread: float
    mean: float


@dataclass(frozen=True)
class Design:
    """Terms over columns of a codebook.

    Attributes:
        terms: of columns `c0`, `c1`, …, for formulaic.
        names: the columns' own names.
        codebook: what they are.
    """

    terms: str
    names: tuple[str, ...]
    codebook: Codebook

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The name of each column of the matrix: `Intercept`, `age`, `stage[III]`, `age:stage[III]`."""
        found = tuple(":".join(part.label for part in self._parts(name)) for name in self._spec.column_names)
        twice = sorted({label for label in found if found.count(label) > 1})
        if twice:
            raise DataError(f"two columns of the design are called {twice[0]!r}: give a column another name")
        return found

    @cached_property
    def spreads(self) -> tuple[float, ...]:
        """The standard deviation that each column is taken to have, from the codebook alone.

        1 for a number, in units of its scale; `sqrt(p(1 − p))` with `p = 1/K` for one of `K` levels, as if they were
        equally common; products for interactions.
        """
        return tuple(math.prod(part.spread for part in self._parts(name)) for name in self._spec.column_names)

    @cached_property
    def means(self) -> tuple[float, ...]:
        """The mean that each column is taken to have: 0 for a number, `1/K` for one of `K` levels."""
        return tuple(math.prod(part.mean for part in self._parts(name)) for name in self._spec.column_names)

    def matrix(self, values: Mapping[str, np.ndarray], rows: int) -> np.ndarray:
        """`(rows, columns)` of the values of columns, by name: numbers as they are, levels as their places."""
        found = self._spec.get_model_matrix(self._table(values, rows), context={})
        return np.ascontiguousarray(found, dtype=np.float64)

    @cached_property
    def _spec(self) -> Any:
        import formulaic

        used = [self.codebook.column(name) for name in self.names]
        for name, kind in zip(self.names, used, strict=True):
            if not isinstance(kind, Number) and len(kind.ordered_levels) < 2:
                raise DataError(f"{name!r} has one level in the codebook: there is nothing to compare, leave it out")
        rows = max([2, *(len(kind.ordered_levels) for kind in used if not isinstance(kind, Number))])
        template = {
            name: np.arange(rows, dtype=float)
            if isinstance(kind, Number)
            else np.arange(rows) % len(kind.ordered_levels)
            for name, kind in zip(self.names, used, strict=True)
        }
        formula = formulaic.Formula(self.terms)
        if not len(formula):
            raise DataError("the formula has no term: keep the intercept, or name a column")
        self._require_few(formula)
        made = formula.get_model_matrix(
            self._table(template, rows), context={}, output="numpy", na_action="raise", ensure_full_rank=True
        )
        return made.model_spec

    def _table(self, values: Mapping[str, np.ndarray], rows: int) -> Any:
        import pandas

        columns: dict[str, Any] = {}
        for place, name in enumerate(self.names):
            kind = self.codebook.column(name)
            if isinstance(kind, Number):
                centre, scale = kind.centre_and_scale
                columns[f"c{place}"] = (values[name] - centre) / scale
            else:
                levels = [str(level) for level in range(len(kind.ordered_levels))]
                columns[f"c{place}"] = pandas.Categorical.from_codes(values[name], levels)
        return pandas.DataFrame(columns, index=pandas.RangeIndex(rows))

    def _parts(self, name: str) -> list[_Part]:
        """What the factors of a column are."""
        return [self._part(part) for part in name.split(":")]

    def _part(self, part: str) -> _Part:
        match = _NAME.match(part)
        if match is None:
            return _Part(INTERCEPT, 1.0, 1.0)
        own = self.names[int(match[1])]
        kind = self.codebook.column(own)
        if isinstance(kind, Number) or match[2] is None:
            return _Part(own, 1.0, 0.0)
        share = 1 / len(kind.ordered_levels)
        return _Part(f"{own}[{kind.ordered_levels[int(match[2])]}]", math.sqrt(share * (1 - share)), share)

    def _require_few(self, formula: Any) -> None:
        """Refuse a matrix with more columns than anybody means, before it is made."""
        sizes = {
            f"c{place}": 1 if isinstance(kind, Number) else len(kind.ordered_levels)
            for place, kind in enumerate(self.codebook.column(name) for name in self.names)
        }
        columns = sum(math.prod(sizes.get(str(factor), 1) for factor in term.factors) for term in formula)
        if columns > _MOST_COLUMNS:
            raise DataError(
                f"the formula makes up to {columns:,} columns, and at most {_MOST_COLUMNS:,} are taken: leave out an "
                "interaction, or join levels"
            )
