"""What one would do without a network: every agent works alone, and what it found is combined once.

Agent `i` has the subposterior `p_i(w) ∝ p(w)^(1/n) p(X_i|w)`; the posterior is their product. Each method here
approximates that product from what the agents hand in, draws or a mode with its curvature. All work on the flat
unconstrained vector, and on parameters that agents share.
"""

from consilience.baselines.consensus import consensus_monte_carlo
from consilience.baselines.density_product import parametric_product, semiparametric_product
from consilience.baselines.gaussians import Gaussian, fitted, product
from consilience.baselines.modes import modes_and_curvatures

__all__ = [
    "Gaussian",
    "consensus_monte_carlo",
    "fitted",
    "modes_and_curvatures",
    "parametric_product",
    "product",
    "semiparametric_product",
]
