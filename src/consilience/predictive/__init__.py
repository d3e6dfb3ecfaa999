"""Predictions with uncertainty from posterior draws: class probabilities, calibration, out-of-distribution scores."""

from consilience.predictive.classes import ClassPredictions, Predictor
from consilience.predictive.draws import parameter_draws
from consilience.predictive.outliers import OutlierScores, detect
from consilience.predictive.scores import Reliability, Scores, reliability, score

__all__ = [
    "ClassPredictions",
    "OutlierScores",
    "Predictor",
    "Reliability",
    "Scores",
    "detect",
    "parameter_draws",
    "reliability",
    "score",
]
