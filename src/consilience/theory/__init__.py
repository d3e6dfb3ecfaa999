"""The paper's theorems as a tool, and the ground truth to hold against them.

Bounds in closed form and by recursion (`ConsensusBound`, `DivergenceBound`, `steps_needed`, `consensus_recursion`,
`divergence_recursion`), the constants of a problem that they need, the exact dynamics of Gaussian networks, and
posteriors on a grid.
"""

from consilience.theory.affine import AffineStep, ExactLaw
from consilience.theory.analysis import Analysis, analyse, require_small, start_moments
from consilience.theory.conditions import Setting, unmet_conditions
from consilience.theory.consensus_bound import ConsensusBound
from consilience.theory.constants import Constants, Quantity, gaussian_constants, problem_constants
from consilience.theory.divergence_bound import (
    DivergenceBound,
    TheoremInputs,
    largest_step_scale,
    step_constant,
)
from consilience.theory.dula_only import require_dula
from consilience.theory.exact import ExactPath, exact_path, gaussian_divergence
from consilience.theory.gaussian import GaussianNetwork, Moments, is_quadratic
from consilience.theory.grid import GridPosterior
from consilience.theory.iterations import exponential_total, polynomial_total, settled_step, steps_needed
from consilience.theory.magnitudes import Magnitude
from consilience.theory.potentials import Potentials
from consilience.theory.prediction import Prediction, predict, theorem_inputs
from consilience.theory.proven import proven_reasons, proven_sampler
from consilience.theory.recursions import consensus_recursion, divergence_recursion
from consilience.theory.slopes import late_rate, measured_disagreement, promised_rates

__all__ = [
    "AffineStep",
    "Analysis",
    "ConsensusBound",
    "Constants",
    "DivergenceBound",
    "ExactLaw",
    "ExactPath",
    "GaussianNetwork",
    "GridPosterior",
    "Magnitude",
    "Moments",
    "Potentials",
    "Prediction",
    "Quantity",
    "Setting",
    "TheoremInputs",
    "analyse",
    "consensus_recursion",
    "divergence_recursion",
    "exact_path",
    "exponential_total",
    "gaussian_constants",
    "gaussian_divergence",
    "is_quadratic",
    "largest_step_scale",
    "late_rate",
    "measured_disagreement",
    "polynomial_total",
    "predict",
    "problem_constants",
    "promised_rates",
    "proven_reasons",
    "proven_sampler",
    "require_dula",
    "require_small",
    "settled_step",
    "start_moments",
    "step_constant",
    "steps_needed",
    "theorem_inputs",
    "unmet_conditions",
]
