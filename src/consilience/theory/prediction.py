"""What the theory says about a network over time: the bounds in closed form, their tight versions, the exact values.

The steps are even on the logarithmic scale. What does not exist is `None`: the closed forms outside the theorems'
conditions, and the divergence at another temperature than 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from consilience.errors import ConditionError
from consilience.theory.analysis import Analysis
from consilience.theory.conditions import Setting, unmet_conditions
from consilience.theory.consensus_bound import ConsensusBound
from consilience.theory.constants import Constants
from consilience.theory.divergence_bound import DivergenceBound, TheoremInputs
from consilience.theory.exact import ExactPath, exact_path, gaussian_divergence
from consilience.theory.gaussian import GaussianNetwork, Moments
from consilience.theory.iterations import settled_step, steps_needed
from consilience.theory.magnitudes import Magnitude
from consilience.theory.recursions import consensus_recursion, divergence_recursion

_SECONDS_PER_STEP = 6e-6
_HOPELESS = 300.0  # step sizes this far beyond stability have no bound worth a float
_OPERATIONS_PER_SECOND = 1e10


@dataclass(frozen=True)
class Prediction:
    """What the theory says about one network.

    Attributes:
        steps: `(times,)` after how many steps, from 1.
        consensus_tight: the tight bound on `E‖w̃_k‖²`.
        divergence_tight: the tight bound on `KL(p_k ‖ p*)`; `None` at another temperature than 1.
        consensus_bound: Theorem 1 in closed form, inside its conditions.
        divergence_bound: Theorem 2 in closed form, inside its conditions.
        path: the exact values of the Gaussian network (or of the normal approximation), as far as they were followed.
        unmet: the conditions that do not hold, in words.
        inputs: the constants that Theorem 2 was given.
        gradient_disagreement: `μ_g`.
    """

    steps: np.ndarray
    consensus_tight: np.ndarray
    divergence_tight: Magnitude | None
    consensus_bound: ConsensusBound | None
    divergence_bound: DivergenceBound | None
    path: ExactPath
    unmet: tuple[str, ...]
    inputs: TheoremInputs
    gradient_disagreement: float

    def steps_to(self, tolerance: float) -> dict[str, Magnitude | int | None]:
        """After how many steps `KL(p_k ‖ p*)` stays below the tolerance: by theorem, tight bound and exact values.

        `None` is "not within the steps looked at", or that there is no such bound.
        """
        tight, path, bound = self.divergence_tight, self.path, self.divergence_bound
        return {
            "theorem": None if bound is None else steps_needed(bound, tolerance),
            "tight": None if tight is None else self._settled(self.steps, tight, tolerance),
            "exact": self._settled(path.steps, path.divergence, tolerance),
        }

    @staticmethod
    def _settled(steps: np.ndarray, values: Any, tolerance: float) -> int | None:
        place = settled_step(values, tolerance)
        return None if place is None else int(steps[place])


def predict(
    analysis: Analysis,
    sampler: Any,
    num_steps: int,
    gradient_disagreement: float | None = None,
    exact_seconds: float = 3.0,
) -> Prediction:
    """Evaluate everything that the theory says about a network.

    Args:
        analysis: of the problem on its graph.
        sampler: a `DULA`.
        num_steps: how far to look.
        gradient_disagreement: `μ_g` if it was measured; otherwise it is that of the network along its exact path.
        exact_seconds: about how long to follow the exact path; it is shorter than `num_steps` for large networks.
    """
    constants, network, start, graph = analysis.constants, analysis.network, analysis.start, analysis.network.graph
    dimension = constants.centre.size
    steps = even_steps(num_steps)
    path = exact_path(network, sampler, start, even_steps(min(num_steps, _followable(network, exact_seconds))))
    if gradient_disagreement is None:
        gradient_disagreement = path.gradient_disagreement
    initial_error, inputs = _apart(start, graph.num_agents), theorem_inputs(constants, network, sampler, start)
    tight = consensus_recursion(graph, sampler, dimension, gradient_disagreement, initial_error, num_steps)
    divergence = divergence_recursion(inputs, sampler, dimension, tight) if sampler.temperature == 1 else None
    unmet = unmet_conditions(graph, sampler)
    consensus_bound = divergence_bound = None
    if not unmet:
        setting = Setting.of(graph, sampler, dimension)
        consensus_bound = ConsensusBound(setting, gradient_disagreement, initial_error)
        try:
            divergence_bound = DivergenceBound(consensus_bound, inputs)
        except ConditionError as error:
            unmet = [str(error)]
    return Prediction(
        steps,
        tight[steps],
        None if divergence is None else Magnitude(divergence.log[steps]),
        consensus_bound,
        divergence_bound,
        path,
        tuple(unmet),
        inputs,
        gradient_disagreement,
    )


def even_steps(last: int, a_decade: int = 100) -> np.ndarray:
    """Steps from 1 to `last`, even on the logarithmic scale, each once.

    >>> even_steps(10, 4).tolist()
    [1, 2, 3, 6, 10]
    """
    count = max(2, int(np.ceil(np.log10(max(last, 2)) * a_decade)) + 1)
    return np.unique(np.geomspace(1, last, count).round().astype(int))


def _followable(network: GaussianNetwork, seconds: float) -> int:
    """How many steps of the exact recursion take about so many seconds."""
    each = _SECONDS_PER_STEP + 4 * network.linear.size**3 / _OPERATIONS_PER_SECOND
    return max(2, int(seconds / each))


def _apart(start: Moments, num_agents: int) -> float:
    """`E‖w̃_0‖²`."""
    mean = start.mean.reshape(num_agents, -1)
    spread = start.covariance.reshape(num_agents, mean.shape[1], num_agents, mean.shape[1])
    total = np.einsum("iaia->", spread) - np.einsum("iaja->", spread) / num_agents
    return float(((mean - mean.mean(0)) ** 2).sum() + total)


def theorem_inputs(constants: Constants, network: GaussianNetwork, sampler: Any, start: Moments) -> TheoremInputs:
    """What Theorem 2 needs to know, from a problem's constants and the start of its agents."""
    dimension = constants.centre.size
    num_agents = start.mean.size // dimension
    averaging = np.kron(np.ones((1, num_agents)) / num_agents, np.eye(dimension))
    law = Moments(averaging @ start.mean, averaging @ start.covariance @ averaging.T)
    return TheoremInputs(
        float(constants.smoothness.value),
        float(constants.total_smoothness.value),
        float(constants.coupling.value),
        float(constants.log_sobolev.value),
        float(constants.second_moment.value),
        float(((law.mean - constants.centre) ** 2).sum() + np.trace(law.covariance)),
        _initial_divergence(constants, network, sampler, start, law),
    )


def _initial_divergence(
    constants: Constants, network: GaussianNetwork, sampler: Any, start: Moments, law: Moments
) -> float:
    """`F_0`, or what stands for it if the agents start at fixed points, where it is infinite.

    One step later the average has a density. With `e^{ρ_U α_0} F_1` in the place of `F_0` both the recursion and the
    closed form hold from `k = 1` on, as `F_1` is what they then begin with.
    """
    initial = float(gaussian_divergence(law, network.posterior))
    if np.isfinite(initial):
        return initial
    after = exact_path(network, sampler, start, [1])
    forgotten = constants.log_sobolev.value * float(sampler.step_size(0))
    return float(np.exp(min(forgotten, _HOPELESS)) * after.divergence[0])
