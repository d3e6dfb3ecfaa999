"""Step-size sequences: a schedule is only a function from the step `k` to a positive number.

The paper's sequences are `α_k = α_0/(b_1 + k)^δ_2` and `β_k = β_0/(b_2 + k)^δ_1` (Condition 1 takes
`b_1 = b_2 = 1`). `Polynomial` is that; `FromTo` is the same curve given by its two ends, as the paper gives
the mixture's ("from 0.01 to 0.0001"); `Constant` is `δ = 0`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from consilience.errors import ScheduleError
from consilience.validation import Record

_SMALLEST_OFFSET = 1e-30  # far above the smallest number of single precision

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Schedule(Record):
    mistake = ScheduleError


class Constant(_Schedule):
    """The same value at every step.

    >>> Constant(value=0.1)(1000)
    0.1
    """

    kind: Literal["constant"] = "constant"
    value: Positive

    @property
    def exponent(self) -> float:
        """How fast the values fall: not at all."""
        return 0.0

    def times(self, factor: float) -> Constant:
        """The same schedule, every value multiplied."""
        return Constant(value=factor * self.value)

    def __call__(self, k: Any) -> Any:
        """The value at step `k`, a number or an array of any library."""
        return self.value + 0.0 * k if hasattr(k, "shape") else self.value


class Polynomial(_Schedule):
    """`scale / (offset + k)^exponent`.

    >>> Polynomial(scale=0.2, offset=1, exponent=0.5)(3)
    0.1
    """

    kind: Literal["polynomial"] = "polynomial"
    scale: Positive
    offset: Positive = 1.0
    exponent: Annotated[float, Field(ge=0, allow_inf_nan=False)]

    def times(self, factor: float) -> Polynomial:
        """The same schedule, every value multiplied."""
        return Polynomial(scale=factor * self.scale, offset=self.offset, exponent=self.exponent)

    def __call__(self, k: Any) -> Any:
        """The value at step `k`, a number or an array of any library."""
        return self.scale / (self.offset + k) ** self.exponent


class FromTo(_Schedule):
    """The polynomial curve that is `start` at step 0 and `end` at step `num_steps`.

    With `r = (end/start)^(1/exponent)` the offset is `b = num_steps · r/(1 − r)`, and
    `α_k = start · (b/(b + k))^exponent`.

    >>> alpha = FromTo(start=0.01, end=0.0001, num_steps=1_000_000, exponent=0.55)
    >>> round(alpha(0), 6), round(alpha(1_000_000), 6), round(alpha.offset)
    (0.01, 0.0001, 231)
    """

    kind: Literal["from_to"] = "from_to"
    start: Positive
    end: Positive
    num_steps: Annotated[int, Field(gt=0)]
    exponent: Positive

    @model_validator(mode="after")
    def _falls(self) -> FromTo:
        if self.end >= self.start:
            raise ValueError(
                f"a schedule from {self.start:g} to {self.end:g} does not fall: make `end` smaller than "
                "`start`, or use a constant"
            )
        ratio = (self.end / self.start) ** (1 / self.exponent)
        if self.num_steps * ratio < _SMALLEST_OFFSET:
            raise ValueError(
                f"no curve with exponent {self.exponent:g} falls from {self.start:g} to {self.end:g} in single "
                "precision: raise `exponent` or `end`"
            )
        return self

    @property
    def offset(self) -> float:
        """The offset `b` of the equivalent `Polynomial`."""
        ratio = (self.end / self.start) ** (1 / self.exponent)
        return self.num_steps * ratio / (1 - ratio)

    def times(self, factor: float) -> FromTo:
        """The same schedule, every value multiplied."""
        start, end = factor * self.start, factor * self.end
        return FromTo(start=start, end=end, num_steps=self.num_steps, exponent=self.exponent)

    def __call__(self, k: Any) -> Any:
        """The value at step `k`, a number or an array of any library."""
        offset = self.offset
        return self.start * (offset / (offset + k)) ** self.exponent


Schedule = Annotated[Constant | Polynomial | FromTo, Field(discriminator="kind")]


def _number_is_constant(value: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Constant(value=value)
    return value


ScheduleLike = Annotated[Schedule, BeforeValidator(_number_is_constant)]
"""A schedule, or a plain number for a constant one."""


def broken_conditions(step_size: Schedule, consensus: Schedule) -> list[str]:
    """Which of Condition 1's demands on the exponents the two schedules do not meet, in words.

    Condition 1: `0 ≤ δ_1` and `1/2 + δ_1 < δ_2 < 1`, where `δ_2` belongs to the step size and `δ_1` to the
    consensus step. It makes `Σ α_k` infinite, `Σ α_k²` finite and consensus faster than the noise.

    >>> broken_conditions(Polynomial(scale=1, exponent=0.7), Polynomial(scale=1, exponent=0.1))
    []
    >>> broken_conditions(Constant(value=0.1), Constant(value=0.1))
    ['1/2 + δ_1 < δ_2 does not hold: δ_1 = 0, δ_2 = 0']
    """
    delta_1, delta_2 = consensus.exponent, step_size.exponent
    broken = []
    if not delta_2 - delta_1 > 0.5 + 1e-12:
        broken.append(f"1/2 + δ_1 < δ_2 does not hold: δ_1 = {delta_1:g}, δ_2 = {delta_2:g}")
    if not delta_2 < 1:
        broken.append(f"δ_2 < 1 does not hold: δ_2 = {delta_2:g}")
    return broken
