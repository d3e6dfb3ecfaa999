"""Ground truth: exact dynamics of Gaussian problems, posteriors on a grid."""

from consilience.theory.gaussian import GaussianNetwork, Moments
from consilience.theory.grid import GridPosterior

__all__ = ["GaussianNetwork", "GridPosterior", "Moments"]
