"""Agreement between agents: the consensus error `‖w̃‖² = Σ_i ‖w_i − w̄‖²` and how fast it falls."""

from __future__ import annotations

from typing import Any

import numpy as np


def consensus_error(positions: Any) -> np.ndarray:
    """`‖w̃‖²` for positions `(…, agents, size)`.

    >>> consensus_error(np.array([[0.0], [2.0]])).item()
    2.0
    """
    positions = np.asarray(positions)
    return ((positions - positions.mean(-2, keepdims=True)) ** 2).sum((-2, -1))


def fitted_rate(steps: np.ndarray, errors: np.ndarray, offset: float = 1.0, bins: int = 30) -> float:
    """The exponent `r` for which `errors ≈ c · (offset + steps)^-r`, by least squares over log-spaced bins.

    Theorem 1 says `r = δ_2 − 2 δ_1` for the expected error. Bins even out the noise, and give early and late
    steps the same say; the first tenth of the range (on the log scale) is left to the initial transient.

    >>> k = np.arange(1, 10_000)
    >>> round(fitted_rate(k, 3.0 * (1 + k) ** -0.45), 3)
    0.45
    """
    time = np.log(offset + np.asarray(steps, float))
    start = time[0] + 0.1 * (time[-1] - time[0])
    edges = np.linspace(start, time[-1], bins + 1)
    which = np.digitize(time, edges[1:-1])
    late = time >= start
    centres, levels = [], []
    for b in range(bins):
        chosen = late & (which == b)
        level = np.mean(errors[chosen]) if chosen.any() else 0.0
        if level > 0:
            centres.append(time[chosen].mean())
            levels.append(np.log(level))
    if len(centres) < 2:
        return float("nan")
    return float(-np.polyfit(centres, levels, 1)[0])
