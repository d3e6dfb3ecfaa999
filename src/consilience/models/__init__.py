"""Ready-made problems."""

from consilience.models.classifier import classifier
from consilience.models.linear import linear_regression
from consilience.models.logistic import logistic_regression
from consilience.models.mixture import tied_mixture
from consilience.models.networks import Network, lenet5, mlp

__all__ = [
    "Network",
    "classifier",
    "lenet5",
    "linear_regression",
    "logistic_regression",
    "mlp",
    "tied_mixture",
]
