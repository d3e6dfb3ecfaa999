"""Agreement between agents: how fast the consensus error falls."""

from __future__ import annotations

import numpy as np

_ITERATIONS = 25  # Newton steps; a handful converge


def fitted_rate(steps: np.ndarray, errors: np.ndarray, offset: float = 1.0) -> float:
    """The exponent `r` for which the expected error is about `c · (offset + steps)^-r`.

    Theorem 1 says `r = δ_2 − 2 δ_1`. The fit is a gamma regression with logarithmic link, so that noise in
    proportion to the level does not bias it as a fit of logarithms would. The first tenth of log-time is left to the
    initial transient.

    >>> k = np.arange(1, 10_000)
    >>> round(fitted_rate(k, 3.0 * (1 + k) ** -0.45), 3)
    0.45
    """
    time = np.log(offset + np.asarray(steps, float))
    used = (time >= time[0] + 0.1 * (time[-1] - time[0])) & (np.asarray(errors) > 0)
    time, level = time[used], np.asarray(errors, float)[used]
    if len(time) < 3:
        return float("nan")
    line = np.polyfit(time, np.log(level), 1)
    for _ in range(_ITERATIONS):
        expected = np.exp(np.polyval(line, time))
        line = np.polyfit(time, np.log(expected) + level / expected - 1, 1)
    return float(-line[0])
