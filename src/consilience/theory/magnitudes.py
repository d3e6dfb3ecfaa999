"""Numbers that are never negative and may be far too large for floating point, kept by their logarithm.

The paper's constants contain exponentials of powers: `exp(10^5)` is a perfectly good bound and no float. A
`Magnitude` adds, multiplies, divides and takes powers without ever becoming infinite, so that formulas can be
written as they stand in the paper.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import total_ordering
from typing import Any

import numpy as np

_SUMMED_ONE_BY_ONE = 20_000
_BLOCK_GROWTH = 1e-3
_MOST_BLOCKS = 10**6

Number = Any
"""A non-negative number, an array of them, or a `Magnitude`."""


@total_ordering
@dataclass(frozen=True, eq=False)
class Magnitude:
    """A number `e^log ≥ 0`, or an array of them.

    >>> large = Magnitude.exp(1e5) * 3 + 7
    >>> print(large, (large / Magnitude.exp(1e5)), Magnitude.of(0.0) + 2)
    8.42e+43429 3 2
    """

    log: Any

    @classmethod
    def of(cls, value: Number) -> Magnitude:
        """The number itself."""
        if isinstance(value, Magnitude):
            return value
        if isinstance(value, int) and value > 0:
            return cls(math.log(value))  # also where it is no float
        if np.any(np.asarray(value) < 0):
            raise ValueError(f"a magnitude is never negative, got {value}")
        with np.errstate(divide="ignore"):
            return cls(np.log(value))

    @classmethod
    def exp(cls, exponent: Any) -> Magnitude:
        """`e^exponent`."""
        return cls(exponent)

    def __add__(self, other: Number) -> Magnitude:
        return Magnitude(np.logaddexp(self.log, Magnitude.of(other).log))

    def __mul__(self, other: Number) -> Magnitude:
        return Magnitude(self.log + Magnitude.of(other).log)

    def __truediv__(self, other: Number) -> Magnitude:
        divisor = Magnitude.of(other)
        if np.any(np.isneginf(divisor.log)):
            raise ZeroDivisionError("a magnitude divided by zero")
        return Magnitude(self.log - divisor.log)

    def __rtruediv__(self, other: Number) -> Magnitude:
        return Magnitude.of(other) / self

    def __pow__(self, power: float) -> Magnitude:
        return Magnitude(self.log * power)

    __radd__, __rmul__ = __add__, __mul__

    def __eq__(self, other: object) -> bool:
        return bool(np.all(self.log == Magnitude.of(other).log))

    def __lt__(self, other: Number) -> bool:
        return bool(np.all(self.log < Magnitude.of(other).log))

    def __hash__(self) -> int:
        return hash(float(self.log))

    def __float__(self) -> float:
        """As a float; `OverflowError` if it is none."""
        return math.exp(self.log)

    def floats(self, ceiling: float = 1e300) -> np.ndarray:
        """As an array of floats, for figures; what is larger than `ceiling` becomes it."""
        return np.exp(np.minimum(self.log, math.log(ceiling)))

    @property
    def log10(self) -> Any:
        """The logarithm to base 10."""
        return self.log / math.log(10)

    def __str__(self) -> str:
        if np.ndim(self.log):
            return f"[{', '.join(str(Magnitude(log)) for log in self.log)}]"
        if abs(self.log) < 600:
            return f"{math.exp(self.log):.3g}"
        if self.log < 0:
            return "0" if math.isinf(self.log) else f"10^{self.log10:.0f}"
        exponent = math.floor(self.log10)
        if exponent > 10**9:
            return f"10^{self.log10:.3g}"
        return f"{10 ** (self.log10 - exponent):.2f}e+{exponent}"


def largest(*values: Number) -> Magnitude:
    """The largest of some magnitudes."""
    return Magnitude(max(Magnitude.of(value).log for value in values))


def sum_from_above(log_term: Callable[[np.ndarray], np.ndarray], last: Number, turn: float = 1.0) -> Magnitude:
    """`Σ_{l=1}^{last} t(l)`, exactly for some ten thousand terms, from above for more.

    Later terms are taken in blocks that are a thousandth of their place long, each term as large as the largest in
    its block. So the sum is never too small, and a fraction of a per cent too large at most for terms that change
    like powers, however many there are.

    Args:
        log_term: from `log l` to `log t(l)`.
        last: the last index, which may be too large for a float.
        turn: the index where the terms turn from rising to falling, if they do. (They may turn from falling to
            rising anywhere.)

    >>> print(sum_from_above(lambda log_l: -2 * log_l, Magnitude.exp(5000)))
    1.64
    """
    log_last = float(Magnitude.of(last).log)
    explicit = np.arange(1, math.floor(math.exp(min(log_last, math.log(_SUMMED_ONE_BY_ONE))) + 1e-9) + 1)
    total = Magnitude(np.logaddexp.reduce(log_term(np.log(explicit))))
    log_start = math.log(explicit[-1] + 1)
    if log_start > log_last:
        return total
    growth = max(_BLOCK_GROWTH, (log_last - log_start) / _MOST_BLOCKS)
    edges = np.linspace(log_start, log_last, math.ceil((log_last - log_start) / growth) + 1)
    if len(edges) < 2:
        edges = np.array([log_start, log_last])
    low, high = edges[:-1], edges[1:]
    inside = np.clip(math.log(max(turn, 1.0)), low, high)
    values = np.maximum(np.maximum(log_term(low), log_term(high)), log_term(inside))
    log_width = high + np.log(-np.expm1(low - high) + np.exp(-high))  # log(e^high − e^low + 1)
    return total + Magnitude(np.logaddexp.reduce(values + log_width))
