"""What all sites agree on about their columns: kinds, units, levels, which outcome counts as 1, centre and scale.

A codebook's file:

    missing = "refuse"            # or "drop": what happens to rows with a missing value in a column that is used

    [columns.age]
    kind = "number"
    unit = "years"
    low = 18                      # smallest and largest value that can be right
    high = 110
    centre = 61                   # the column enters a formula as (age - 61) / 12
    scale = 12

    [columns.stage]
    kind = "category"
    levels = ["I", "II", "III"]   # in this order
    reference = "I"               # the level that others are compared with

    [columns.died]
    kind = "outcome"
    one = "yes"                   # counts as 1
    zero = "no"

`centre`, `scale` and `levels` may be `"from sites"`: then they are filled in before sampling, from sums over all
sites and from the union of their levels (`filling.py`). A codebook's digest is part of a run's identity: sites with
different codebooks refuse each other.
"""

from __future__ import annotations

import hashlib
import json
import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import tomli_w
from pydantic import BeforeValidator, Field, field_validator

from consilience.errors import DataError, InputError
from consilience.validation import Record
from consilience.validation.differences import differing

FROM_SITES = "from sites"
"""What stands in place of a value that the sites find together."""
Finite = Annotated[float, Field(allow_inf_nan=False)]
Level = Annotated[
    str,
    BeforeValidator(lambda value: str(value) if isinstance(value, int) and not isinstance(value, bool) else value),
]
_MOST_LEVELS = 1000


class _Entry(Record):
    mistake: ClassVar[type[InputError]] = DataError


class Number(_Entry):
    """A column of numbers, which enters formulas as `(value - centre) / scale`.

    Attributes:
        unit: for people; a range tells units apart where the files cannot.
        low: the smallest value that can be right.
        high: the largest.
        centre: subtracted from the values; or `"from sites"`.
        scale: by which they are divided then; coefficients are for a difference of so much; or `"from sites"`.
    """

    kind: Literal["number"] = "number"
    unit: str | None = None
    low: Finite | None = None
    high: Finite | None = None
    centre: Finite | Literal["from sites"] = 0.0
    scale: Annotated[float, Field(gt=0, allow_inf_nan=False)] | Literal["from sites"] = 1.0

    def __init__(self, **entries: Any) -> None:
        super().__init__(**entries)
        if self.low is not None and self.high is not None and self.low > self.high:
            raise DataError(f"low = {self.low:g} is above high = {self.high:g}: exchange them")

    @property
    def centre_and_scale(self) -> tuple[float, float]:
        """Both as numbers; an error if they are still to come from the sites."""
        if isinstance(self.centre, str) or isinstance(self.scale, str):
            raise DataError("centre or scale are still to come from the sites")
        return self.centre, self.scale


class Category(_Entry):
    """A column of levels; what a file says must be one of them, as text.

    Attributes:
        levels: all of them, in order; or `"from sites"`, then they are sorted.
        reference: the level with which the others are compared; by default the first.
    """

    kind: Literal["category"] = "category"
    levels: tuple[Level, ...] | Literal["from sites"]
    reference: Level | None = None

    def __init__(self, **entries: Any) -> None:
        super().__init__(**entries)
        if isinstance(self.levels, str):
            return
        if len(self.levels) > _MOST_LEVELS:
            raise DataError(f"there are {len(self.levels):,} levels: at most {_MOST_LEVELS:,} are taken, join some")
        if len(set(self.levels)) != len(self.levels) or not self.levels:
            raise DataError(f"the levels are {list(self.levels)}: name at least one, each of them once")
        if self.reference is not None and self.reference not in self.levels:
            raise DataError(f"the reference {self.reference!r} is no level: choose one of {', '.join(self.levels)}")

    @property
    def ordered_levels(self) -> tuple[str, ...]:
        """The levels, the reference first."""
        if isinstance(self.levels, str):
            raise DataError("the levels are still to come from the sites")
        first = self.reference or self.levels[0]
        return (first, *(level for level in self.levels if level != first))


class Outcome(_Entry):
    """A column with two values, of which one counts as 1.

    Attributes:
        one: what is written in the file where it counts as 1.
        zero: and where as 0.
    """

    kind: Literal["outcome"] = "outcome"
    one: Level
    zero: Level

    def __init__(self, **entries: Any) -> None:
        super().__init__(**entries)
        if self.one == self.zero:
            raise DataError(f"one and zero are both {self.one!r}: they must differ")

    @property
    def ordered_levels(self) -> tuple[str, ...]:
        """What is written for 0, and for 1: as a predictor it is compared with 0."""
        return (self.zero, self.one)


Column = Annotated[Number | Category | Outcome, Field(discriminator="kind")]


class Codebook(_Entry):
    """The columns of all sites' files, and what happens to missing values.

    >>> book = Codebook(columns={"age": Number(low=0, high=120, centre=60, scale=10)})
    >>> book.differences(Codebook(columns={"age": Number(low=0, high=120, centre=60, scale=12)}))
    ['columns.age.scale']
    """

    missing: Literal["refuse", "drop"] = "refuse"
    columns: Annotated[dict[str, Column], Field(min_length=1)]

    @field_validator("columns", mode="before")
    @classmethod
    def _kinds_said(cls, value: Any) -> Any:
        for name, entries in value.items() if isinstance(value, Mapping) else ():
            kind = entries.get("kind") if isinstance(entries, Mapping) else getattr(entries, "kind", None)
            if kind not in ("number", "category", "outcome"):
                raise DataError(f"column {name!r} has kind = {kind!r}: write number, category or outcome")
        return value

    def column(self, name: str) -> Number | Category | Outcome:
        """A column by its name."""
        if name not in self.columns:
            raise DataError(
                f"the codebook has no column {name!r}: add it, or choose one of {', '.join(self.columns)}"
            )
        return self.columns[name]

    @property
    def unfilled(self) -> tuple[str, ...]:
        """The entries that are still to come from the sites, `age.centre`."""
        entries = (
            (name, kind, entry) for name, kind in self.columns.items() for entry in ("centre", "scale", "levels")
        )
        return tuple(f"{name}.{entry}" for name, kind, entry in entries if getattr(kind, entry, None) == FROM_SITES)

    def differences(self, other: Codebook) -> list[str]:
        """The names of the entries in which another codebook differs; the order of levels counts."""
        mine, theirs = self.model_dump(mode="json"), other.model_dump(mode="json")
        more = [f"columns.{name}" for name in theirs["columns"] if name not in mine["columns"]]
        shared = {name: entry for name, entry in theirs["columns"].items() if name in mine["columns"]}
        return [*differing(mine, {**theirs, "columns": shared}), *more]

    def digest(self) -> str:
        """A hash of all entries."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def to_toml(self) -> str:
        """The codebook as a TOML document; `Codebook.from_toml` reads it."""
        return tomli_w.dumps(self.model_dump(mode="json", exclude_none=True), multiline_strings=False)

    @classmethod
    def from_toml(cls, text: str) -> Codebook:
        """The codebook in a TOML document."""
        return cls(**read_toml(text))

    @classmethod
    def load(cls, path: str | Path) -> Codebook:
        """The codebook in a TOML file."""
        try:
            return cls.from_toml(read_text(path, "codebook"))
        except InputError as error:
            raise DataError(str(error) if str(path) in str(error) else f"{path}: {error}") from None


def read_text(path: str | Path, what: str) -> str:
    """The text of a file of a study."""
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise DataError(f"there is no {what} {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"the {what} {path} cannot be read: {error}") from None


def read_toml(text: str) -> dict[str, Any]:
    """The entries of a TOML document."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise DataError(f"not a TOML document: {error}") from None
    except RecursionError:
        raise DataError("not a TOML document of ours: its entries are nested too deeply") from None


def rounded(value: float, digits: int = 2) -> float:
    """A number with so many significant digits, as a codebook shows it.

    >>> rounded(61.2345), rounded(0.012345), rounded(0.0)
    (61.0, 0.012, 0.0)
    """
    if value == 0 or not math.isfinite(value):
        return value
    return round(value, digits - 1 - math.floor(math.log10(abs(value))))
