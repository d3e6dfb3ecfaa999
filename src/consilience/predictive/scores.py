"""How good class probabilities are: accuracy, proper scores, calibration."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from consilience.errors import InputError

_TINY = 1e-30


class Scores(NamedTuple):
    """Scores of class probabilities against true labels."""

    accuracy: float
    log_loss: float
    """Mean negative log-probability of the true class, in nats."""
    brier: float
    """Mean squared distance between the probabilities and the true class as a corner of the simplex, from 0 to 2."""
    calibration_error: float
    """Expected calibration error over 15 equal bins of confidence."""


class Reliability(NamedTuple):
    """Confidence and accuracy in bins of confidence, for a reliability diagram."""

    edges: np.ndarray
    """`(bins + 1,)` from 0 to 1."""
    share: np.ndarray
    """`(bins,)` of the inputs."""
    confidence: np.ndarray
    """`(bins,)` mean confidence; not a number for an empty bin."""
    accuracy: np.ndarray
    """`(bins,)` share of right predictions; not a number for an empty bin."""

    @property
    def error(self) -> float:
        """The expected calibration error, `Σ share · |accuracy − confidence|`."""
        used = self.share > 0
        return float((self.share[used] * np.abs(self.accuracy[used] - self.confidence[used])).sum())


def score(probabilities: np.ndarray, labels: np.ndarray) -> Scores:
    """Score class probabilities `(inputs, classes)` against labels `(inputs,)`.

    >>> score(np.array([[0.8, 0.2], [0.4, 0.6]]), np.array([0, 1])).accuracy
    1.0
    """
    probabilities, labels = _checked(probabilities, labels)
    rows = np.arange(len(labels))
    true = probabilities[rows, labels]
    corner = np.zeros_like(probabilities)
    corner[rows, labels] = 1
    return Scores(
        accuracy=float((probabilities.argmax(-1) == labels).mean()),
        log_loss=float(-np.log(np.maximum(true, _TINY)).mean()),
        brier=float(((probabilities - corner) ** 2).sum(-1).mean()),
        calibration_error=reliability(probabilities, labels).error,
    )


def reliability(probabilities: np.ndarray, labels: np.ndarray, bins: int = 15) -> Reliability:
    """Accuracy by confidence.

    >>> reliability(np.array([[0.9, 0.1], [0.9, 0.1]]), np.array([0, 1])).error
    0.4
    """
    probabilities, labels = _checked(probabilities, labels)
    confidence, right = probabilities.max(-1), probabilities.argmax(-1) == labels
    edges = np.linspace(0, 1, bins + 1)
    which = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)
    count = np.bincount(which, minlength=bins)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.bincount(which, confidence, bins) / count
        accuracy = np.bincount(which, right, bins) / count
    return Reliability(edges, count / len(labels), mean, accuracy)


def _checked(probabilities: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    probabilities, labels = np.asarray(probabilities, float), np.asarray(labels)
    if probabilities.ndim != 2 or labels.shape != probabilities.shape[:1]:
        raise InputError(
            "expected probabilities (inputs, classes) and one label for each input, got shapes "
            f"{probabilities.shape} and {labels.shape}"
        )
    if labels.min() < 0 or labels.max() >= probabilities.shape[1]:
        raise InputError(
            f"labels must lie between 0 and {probabilities.shape[1] - 1}, got {labels.min()}…{labels.max()}"
        )
    return probabilities, labels.astype(int)
