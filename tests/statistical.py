"""Tests of moments with a stated rate of false alarms, robust to draws that are not exactly normal."""

import numpy as np
from scipy import stats

from consilience.diagnostics.convergence import mean_error

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


def rejects_moments(
    draws: np.ndarray, mean: np.ndarray, variance: np.ndarray, false_alarm: float = FALSE_ALARM
) -> bool:
    """Whether chains `(chains, draws, size)` contradict the given means or variances (Bonferroni over all of them).

    Errors are those of dependent draws. Squares are skewed, and errors estimated: a tenth of the rate is allowed to a
    normal law, which from 2,000 effective draws on leaves room for both.
    """
    columns = np.concatenate([draws, (draws - mean) ** 2], -1)
    score = np.abs(columns.mean((0, 1)) - np.concatenate([mean, variance])) / mean_error(columns)
    return not score.max() <= stats.norm.isf(false_alarm / 10 / (2 * len(score)))


def rejects_uniform(ranks: np.ndarray, num_ranks: int, false_alarm: float = FALSE_ALARM) -> bool:
    """Whether ranks `(count, size)` from 0 to `num_ranks − 1` contradict that all are as likely, by chi-square."""
    counts = np.stack([np.bincount(column, minlength=num_ranks) for column in ranks.T])
    statistic = ((counts - len(ranks) / num_ranks) ** 2).sum(1) / (len(ranks) / num_ranks)
    return bool(statistic.max() > stats.chi2.isf(false_alarm / len(counts), num_ranks - 1))


def _rejects(samples: np.ndarray, expected: np.ndarray, false_alarm: float) -> bool:
    error = samples.std(0) / np.sqrt(len(samples))
    score = np.abs(samples.mean(0) - expected) / np.maximum(error, 1e-12)
    return bool(score.max() > stats.norm.isf(false_alarm / (2 * len(score))))
