"""How a budget of steps is used: what is burn-in, and how often a draw is stored."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from consilience.samplers import Sampler

NUM_CHAINS = 4
_FORGOTTEN = 10  # times of forgetting until the start is forgotten
_MOST_BURN_IN = 2  # half of the steps
_LARGE = 2  # times the last step
_DRAWS_OF_A_TIME = 5
_FEWEST_DRAWS, _MOST_DRAWS = 1_000, 10_000
_MARKS = 4096


class Lengths(NamedTuple):
    """Burn-in and thinning, with the reasons in words."""

    burn_in: int
    store_every: int
    reasons: tuple[str, ...]


def lengths(sampler: Sampler, num_steps: int, forgets: float | None) -> Lengths:
    """Until ten times of forgetting have passed nothing is stored, then five draws in each of them.

    Nor are draws stored while the steps are more than twice as large as the last ones: they would count most, and
    have twice the bias. Never more than half of the steps are burn-in, and between 1,000 and 10,000 draws are stored,
    if there are as many steps. `forgets` is in units of the `weights` of the sampler's draws.

    >>> from consilience import dula
    >>> lengths(dula(0.01, 0.3), 100_000, 1.0)[:2]
    (1000, 20)
    """
    if forgets is None:
        burn_in, every = num_steps // 10, _stored_every(num_steps - num_steps // 10, _FEWEST_DRAWS)
        return Lengths(burn_in, every, ("burn-in: a tenth of the steps, as nothing says how fast chains forget",))
    marks = np.unique(np.linspace(0, num_steps, min(num_steps, _MARKS) + 1).astype(int))
    weights = sampler.weights(marks[1:])
    passed = np.concatenate([[0.0], np.cumsum(weights * np.diff(marks))]) / forgets
    forgotten = float(np.interp(_FORGOTTEN, passed, marks)) if passed[-1] > _FORGOTTEN else num_steps
    small = marks[np.flatnonzero(weights > _LARGE * weights[-1]).max(initial=-1) + 1]
    burn_in = min(int(np.ceil(max(forgotten, small))), num_steps // _MOST_BURN_IN)
    before, rest = float(np.interp(burn_in, marks, passed)), float(passed[-1])
    every = _stored_every(num_steps - burn_in, int(_DRAWS_OF_A_TIME * (rest - before)))
    told = f"burn-in of {burn_in:,} steps, {before:.3g} relaxation times of {rest:.3g}"
    return Lengths(burn_in, every, (f"{told}; then a draw every {every:,} steps",))


def _stored_every(num_steps: int, num_draws: int) -> int:
    return max(1, num_steps // min(_MOST_DRAWS, max(_FEWEST_DRAWS, num_draws)))
