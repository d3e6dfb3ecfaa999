"""Ready-made problems."""

from consilience.models.linear import linear_regression
from consilience.models.logistic import logistic_regression
from consilience.models.mixture import tied_mixture

__all__ = ["linear_regression", "logistic_regression", "tied_mixture"]
