"""Telling inputs from elsewhere by the uncertainty of predictions.

Three scores, each larger for inputs further out: one minus the largest probability, the entropy of the prediction,
and the mutual information between class and draw (which is zero for a single draw: a point estimate has no epistemic
part).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from consilience.errors import InputError
from consilience.predictive.classes import ClassPredictions


class DetectionScores(NamedTuple):
    """How well a score tells inputs from elsewhere (positive) from those of the training distribution."""

    auroc: float
    """Probability that an out-of-distribution input scores higher than a held-out one; 1/2 is chance."""
    aupr: float
    """Area under the precision–recall curve; chance is the share of out-of-distribution inputs."""
    false_alarms: float
    """Share of held-out inputs that are taken for others when 95 % of the others are found (FPR@95)."""


def detect(held_out: ClassPredictions, outside: ClassPredictions) -> dict[str, DetectionScores]:
    """How well each score tells two sets of inputs apart: `confidence`, `entropy` and `mutual_information`."""
    scores = {
        "confidence": (1 - held_out.confidence, 1 - outside.confidence),
        "entropy": (held_out.entropy, outside.entropy),
        "mutual_information": (held_out.epistemic, outside.epistemic),
    }
    return {name: separation(low, high) for name, (low, high) in scores.items()}


def separation(held_out: np.ndarray, outside: np.ndarray) -> DetectionScores:
    """How well a score, larger for inputs further out, separates two sets.

    >>> separation(np.array([0.0, 0.1]), np.array([0.9, 1.0])).auroc
    1.0
    """
    from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

    if not len(held_out) or not len(outside):
        raise InputError("telling inputs apart needs some of both kinds")
    values = np.concatenate([held_out, outside])
    positive = np.concatenate([np.zeros(len(held_out)), np.ones(len(outside))])
    false_alarms, found, _ = roc_curve(positive, values)
    return DetectionScores(
        auroc=float(roc_auc_score(positive, values)),
        aupr=float(average_precision_score(positive, values)),
        false_alarms=float(false_alarms[np.argmax(found >= 0.95)]),
    )
