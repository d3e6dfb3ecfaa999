"""How fast agents agree: the rates that the theorems promise for D-ULA, and those that are there."""

from __future__ import annotations

import math

import numpy as np

from consilience.diagnostics import fitted_rate
from consilience.samplers import DULA

_RUNAWAY = 1e30  # an unstable network has no slope


def promised_rates(sampler: DULA) -> dict[str, float]:
    """`theorem`: Theorem 1's rate `δ_2 − 2δ_1`. `noise`: that of the noise alone, `δ_2 − δ_1`."""
    slow, fast = sampler.consensus.exponent, sampler.step_size.exponent
    return {"theorem": fast - 2 * slow, "noise": fast - slow}


def late_rate(steps: np.ndarray, values: np.ndarray, sampler: DULA) -> float | None:
    """The rate over the last decade, in the clock of the step size."""
    late = (steps >= steps[-1] / 10) & (values > 0)
    if late.sum() < 3 or values[late].max() > _RUNAWAY:
        return None
    rate = fitted_rate(steps[late], values[late], sampler.consensus_decay.offset)
    return rate if math.isfinite(rate) else None


def measured_disagreement(gradients: np.ndarray, steps: np.ndarray, sampler: DULA) -> float:
    """The smallest `μ_g` of Assumption 3 that holds at the given steps: `max_k E‖g̃_k‖²/(n (k+1)^δ_2)`.

    `gradients` are `(times, chains, agents, size)`; the first step, `k = 0`, starts from the initial positions.
    """
    apart = ((gradients - gradients.mean(-2, keepdims=True)) ** 2).sum((-2, -1)).mean(-1)
    return float((apart / (gradients.shape[-2] * (steps + 1.0) ** sampler.step_size.exponent)).max())
