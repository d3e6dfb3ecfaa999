"""Predictions with uncertainty from posterior draws: class probabilities, calibration, out-of-distribution scores."""

from consilience.predictive.classes import ClassPredictions, Predictor, pooled
from consilience.predictive.derived import derived_draws
from consilience.predictive.draws import parameter_draws
from consilience.predictive.out_of_distribution import DetectionScores, detect
from consilience.predictive.scores import Reliability, Scores, reliability, score

__all__ = [
    "ClassPredictions",
    "DetectionScores",
    "Predictor",
    "Reliability",
    "Scores",
    "derived_draws",
    "detect",
    "parameter_draws",
    "pooled",
    "reliability",
    "score",
]
