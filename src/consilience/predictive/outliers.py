"""Telling inputs from elsewhere by the uncertainty of predictions.

Three scores, each larger for stranger inputs: one minus the largest probability, the entropy of the prediction, and
the mutual information between class and draw (which is zero for a single draw: a point estimate has no epistemic
part).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from consilience.errors import InputError
from consilience.predictive.classes import ClassPredictions


class OutlierScores(NamedTuple):
    """How well a score tells inputs from elsewhere (positive) from those of the training distribution."""

    auroc: float
    """Probability that a strange input scores higher than a familiar one; 1/2 is chance."""
    aupr: float
    """Area under the precision–recall curve; chance is the share of strange inputs."""
    false_alarms: float
    """Share of familiar inputs that look strange when 95 % of the strange ones are found (FPR@95)."""


def detect(familiar: ClassPredictions, strange: ClassPredictions) -> dict[str, OutlierScores]:
    """How well each score tells two sets of inputs apart: `confidence`, `entropy` and `mutual_information`."""
    scores = {
        "confidence": (1 - familiar.confidence, 1 - strange.confidence),
        "entropy": (familiar.entropy, strange.entropy),
        "mutual_information": (familiar.epistemic, strange.epistemic),
    }
    return {name: separation(low, high) for name, (low, high) in scores.items()}


def separation(familiar: np.ndarray, strange: np.ndarray) -> OutlierScores:
    """How well a score, larger for stranger inputs, separates two sets.

    >>> separation(np.array([0.0, 0.1]), np.array([0.9, 1.0])).auroc
    1.0
    """
    from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

    if not len(familiar) or not len(strange):
        raise InputError("telling inputs apart needs some of both kinds")
    values = np.concatenate([familiar, strange])
    positive = np.concatenate([np.zeros(len(familiar)), np.ones(len(strange))])
    false_alarms, found, _ = roc_curve(positive, values)
    return OutlierScores(
        auroc=float(roc_auc_score(positive, values)),
        aupr=float(average_precision_score(positive, values)),
        false_alarms=float(false_alarms[np.argmax(found >= 0.95)]),
    )
