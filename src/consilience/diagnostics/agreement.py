"""R-hat across agents: do they agree, whatever the chain that they walk together does?

Agents of a chain are compared at the same draw. With `x_{c,i,t}` the value of agent `i` in chain `c` at draw `t`, and
`x̄_{c,t}` the network's average there,

    D_i = mean over c and t of (x_{c,i,t} − x̄_{c,t}),    W = mean over c and i of var_t(x_{c,i,t}),
    R-hat across agents = max_i sqrt(1 + D_i²/W),

and the same of the distance from the median, `|x − median|`, which sees agents of different width; the larger counts.
A drift of the chain is in `x` and in `x̄` alike and cancels, where split R-hat with agents as sequences takes it for
disagreement. The worst agent counts, not the variance between all: among many agents a single one that is off would
hardly raise that. 1.01 is an agent that is 0.14 standard deviations from the network's mean.
"""

from __future__ import annotations

import numpy as np

_FEWEST_DRAWS = 4


def agreement(draws: np.ndarray) -> np.ndarray:
    """R-hat across agents, `(size,)`, of draws `(chains, agents, draws, size)`.

    What cannot be told is no number: too few draws, draws that are none, or a parameter that does not move.

    >>> drifting = np.linspace(0, 5, 1000)[None, None, :, None] + np.zeros((1, 3, 1, 1))
    >>> float(agreement(drifting)[0])
    1.0
    >>> apart = drifting + np.array([0.0, 0.0, 1.0])[:, None, None]
    >>> round(float(agreement(apart)[0]), 2)
    1.1
    """
    if draws.shape[2] < _FEWEST_DRAWS:
        return np.full(draws.shape[-1], np.nan)
    draws = np.asarray(draws, float)
    folded = np.abs(draws - np.median(draws, axis=(0, 1, 2)))
    return np.maximum(_apart(draws), _apart(folded))


def _apart(values: np.ndarray) -> np.ndarray:
    """`max_i sqrt(1 + D_i²/W)` of values `(chains, agents, draws, size)`."""
    away = (values - values.mean(1, keepdims=True)).mean((0, 2))  # (agents, size)
    within = values.var(2).mean((0, 1))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.sqrt(1 + np.where(within > 0, (away**2).max(0) / within, np.nan))
