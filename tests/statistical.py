"""Tests of moments with a stated rate of false alarms, robust to draws that are not exactly normal."""

import numpy as np
from scipy import stats

FALSE_ALARM = 1e-6
"""How often each of these tests would reject a correct sampler, over random seeds. The seeds are fixed."""


def rejects_mean(draws: np.ndarray, mean: np.ndarray, false_alarm: float = FALSE_ALARM) -> bool:
    """Whether independent draws `(count, size)` contradict the given mean (Bonferroni over coordinates)."""
    return _rejects(draws, mean, false_alarm)


def rejects_covariance(
    draws: np.ndarray, mean: np.ndarray, covariance: np.ndarray, false_alarm: float = FALSE_ALARM
) -> bool:
    """Whether independent draws contradict the given covariance, entry by entry (Bonferroni)."""
    centred = draws - mean
    rows, columns = np.triu_indices(draws.shape[1])
    return _rejects(centred[:, rows] * centred[:, columns], covariance[rows, columns], false_alarm)


def _rejects(samples: np.ndarray, expected: np.ndarray, false_alarm: float) -> bool:
    error = samples.std(0) / np.sqrt(len(samples))
    score = np.abs(samples.mean(0) - expected) / np.maximum(error, 1e-12)
    return bool(score.max() > stats.norm.isf(false_alarm / (2 * len(score))))
