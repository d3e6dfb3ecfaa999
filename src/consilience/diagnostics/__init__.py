"""How good the draws are: agreement between agents, distance to a reference, mixing."""

from consilience.diagnostics.consensus import fitted_rate
from consilience.diagnostics.convergence import Convergence, convergence
from consilience.diagnostics.divergence import kl_divergence
from consilience.diagnostics.moments import equal_time_draws, weighted_mean
from consilience.diagnostics.sinkhorn import sinkhorn_distance
from consilience.kernel.consensus import consensus_error

__all__ = [
    "Convergence",
    "consensus_error",
    "convergence",
    "equal_time_draws",
    "fitted_rate",
    "kl_divergence",
    "sinkhorn_distance",
    "weighted_mean",
]
