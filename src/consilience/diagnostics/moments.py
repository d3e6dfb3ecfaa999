"""Posterior moments when the step size falls: a draw counts for as much Langevin time as its step covered.

Draws stored at equal numbers of steps are dense where the step size is small. Weighting each draw by its step
size (Welling and Teh, 2011) makes averages over time, not over steps.
"""

from __future__ import annotations

import numpy as np


def weighted_mean(draws: np.ndarray, weights: np.ndarray, axis: int = 0) -> np.ndarray:
    """`Σ_k α_k w_k / Σ_k α_k` over the given axis of draws.

    >>> weighted_mean(np.array([0.0, 1.0]), np.array([3.0, 1.0])).item()
    0.25
    """
    shares = np.asarray(weights, float) / np.sum(weights, dtype=float)
    return np.tensordot(np.moveaxis(np.asarray(draws, float), axis, -1), shares, axes=1)


def equal_time_draws(weights: np.ndarray, num_draws: int) -> np.ndarray:
    """Indices of `num_draws` draws that are equally far apart in Langevin time `t_k = Σ_{j<k} α_j`.

    >>> equal_time_draws(np.ones(10), 5).tolist()
    [1, 3, 5, 7, 9]
    """
    time = np.cumsum(np.asarray(weights, float))
    targets = time[-1] * (np.arange(num_draws) + 0.5) / num_draws
    return np.searchsorted(time, targets, side="right").clip(max=len(time) - 1)
