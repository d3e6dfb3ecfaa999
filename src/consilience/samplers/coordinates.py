"""Coordinates given by hand in place of those that a warm-up finds: `w = m + S u`."""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import ValidationInfo, field_validator, model_validator

from consilience.errors import PlanError
from consilience.validation import Record

_WORST_CONDITION = 1e12


class Coordinates(Record):
    """Where the posterior is and how wide, as far as that is known already: from another run, or another method.

    Attributes:
        centre: `m`, of all shared parameters, on the unconstrained scale and in the order of a run's `centre`.
        scale: `S`: a deviation for each of them, or a matrix, the list of its rows.

    >>> Coordinates(centre=[1.0, 2.0], scale=[0.5, 3.0]).root.tolist()
    [[0.5, 0.0], [0.0, 3.0]]
    """

    centre: tuple[float, ...]
    scale: tuple[float, ...] | tuple[tuple[float, ...], ...]

    @field_validator("centre", "scale", mode="before")
    @classmethod
    def _as_numbers(cls, value: Any, info: ValidationInfo) -> Any:
        """Plain numbers, from lists or arrays of any library."""
        most = 1 if info.field_name == "centre" else 2
        try:
            numbers = np.asarray(value, float)
        except (TypeError, ValueError):
            numbers = np.zeros(())
        if not 1 <= numbers.ndim <= most or not np.isfinite(numbers).all():
            raise PlanError("it is a list of finite numbers" + (", or a matrix: the list of its rows" * (most - 1)))
        return tuple(tuple(row) if isinstance(row, list) else row for row in numbers.tolist())

    @model_validator(mode="after")
    def _fit(self) -> Coordinates:
        count = len(self.centre)
        given = {len(row) for row in self.scale if isinstance(row, tuple)}
        if not count or len(self.scale) != count or not given <= {count}:
            raise PlanError(
                f"the centre has {count} numbers: the scale needs as many, or a matrix with as many rows and columns"
            )
        if not self.is_matrix and min(np.ravel(self.scale)) <= 0:
            raise PlanError("the scale needs deviations above 0")
        if self.is_matrix and not np.linalg.cond(np.array(self.scale)) < _WORST_CONDITION:
            raise PlanError("the matrix of the scale is singular, or nearly so: it needs an inverse")
        return self

    @property
    def is_matrix(self) -> bool:
        """Whether the scale is a matrix."""
        return isinstance(self.scale[0], tuple)

    @property
    def root(self) -> Any:
        """The scale as a matrix."""
        scale = np.array(self.scale)
        return scale if self.is_matrix else np.diag(scale)
