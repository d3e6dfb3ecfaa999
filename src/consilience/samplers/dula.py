"""D-ULA, the decentralized unadjusted Langevin algorithm (the paper's equation 8 and Algorithm 1).

    w_i ← w_i − β_k Σ_j a_ij (w_i − w_j) − α_k n ∇U_i(w_i) + sqrt(2 α_k T) v_i,    v_i ~ N(0, n I)

with `T` the temperature: 1 samples the posterior, 0 is (stochastic) gradient descent with consensus. With
`n = 1` it is the centralized ULA. The noise has variance `n`, as the gradient has the factor `n`: then the
average over agents follows ULA on `U = Σ U_i` with unit noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from consilience.graphs import Graph
from consilience.samplers.arrays import square_root, tree_map
from consilience.samplers.base import Decay, Finding, Leaf, Option, SpeaksFirst, Suggestion
from consilience.samplers.consensus import consensus_finding, consensus_strength, default_consensus
from consilience.samplers.dula_suggestion import suggested_schedules
from consilience.samplers.landscape import Landscape
from consilience.samplers.mixing import Mixing
from consilience.schedules import ScheduleLike, broken_conditions


class Coefficients(NamedTuple):
    """The numbers of one step, the same for every agent."""

    drift: Any
    """`α_k n`, the factor of the gradient."""
    pull: Any
    """`β_k`, the factor of the disagreement."""
    deviation: Any
    """`sqrt(2 α_k n T)`, the standard deviation of the noise."""


class DULA(SpeaksFirst):
    """Decentralized unadjusted Langevin algorithm; make one with `dula(...)`."""

    options: ClassVar[Mapping[str, Option]] = {
        "step_size": Option("A constant step size."),
        "consensus": Option("A constant consensus step."),
        "temperature": Option("1 samples the posterior, 0 optimises.", 0.0),
    }
    state_leaves: ClassVar[Any] = Leaf.VECTOR

    kind: Literal["dula"] = "dula"
    step_size: ScheduleLike
    consensus: ScheduleLike

    def init(self, position: Any) -> Any:
        """The state is the position itself."""
        return position

    def position(self, state: Any) -> Any:
        """The state is the position itself."""
        return state

    def share(self, state: Any) -> Any:
        """An agent tells its neighbours where it is."""
        return state

    def coefficients(self, k: Any, n: int) -> Coefficients:
        """Step sizes and noise scale of step `k` of `n` agents."""
        drift = n * self.step_size(k)
        return Coefficients(drift, self.consensus(k), square_root(2 * self.temperature * drift))

    def mixing(self, graph: Graph, coefficients: Coefficients) -> Mixing:
        """A step of `β_k` towards the neighbours."""
        return Mixing(coefficients.pull)

    def step(
        self, state: Any, gradient: Any, message: Any, mixed: Any, coefficients: Coefficients, noise: Any
    ) -> Any:
        """All right-hand sides belong to step `k`."""
        drift, _, deviation = coefficients
        return tree_map(lambda w, g, v: w - drift * g + deviation * v, mixed, gradient, noise)

    def findings(self, graph: Graph, num_steps: int, curvature: float | None) -> list[Finding]:
        """The consensus step against the graph, the schedules against Condition 1, the step size against `n L`."""
        consensus = consensus_finding(graph, float(self.consensus(0)), proven=True)
        found = [consensus, *self._conditions()]
        if curvature is not None and consensus.level != "error":
            found.append(self._step_size(graph, num_steps, curvature))
        return found

    def _conditions(self) -> list[Finding]:
        broken = broken_conditions(self.step_size, self.consensus)
        if not broken:
            shown = f"δ_1 = {self.consensus.exponent:g}, δ_2 = {self.step_size.exponent:g}"
            return [Finding("ok", "schedules", f"1/2 + δ_1 < δ_2 < 1 holds with {shown}")]
        remedy = "take δ_2 between 1/2 + δ_1 and 1, for example δ_1 = 0.05 and δ_2 = 0.6"
        return [Finding("warning", "schedules", f"outside the theorems: {text}", remedy) for text in broken]

    def _step_size(self, graph: Graph, num_steps: int, curvature: float) -> Finding:
        n = graph.num_agents
        first, last = (float(self.step_size(k)) for k in (0, num_steps - 1))
        pull = consensus_strength(graph, float(self.consensus(0)))
        limit = 2 / (n * curvature) if curvature > 0 else np.inf
        shown = f"n L ≈ {n * curvature:.4g} where the agents start, α_0 n L ≈ {first * n * curvature:.4g}"
        if last >= limit:
            return Finding(
                "error",
                "step size",
                f"the step size is unstable throughout the run ({shown}, must stay below 2)",
                f"start it below {limit:.3g}",
            )
        if first * n * curvature + pull >= 2:
            return Finding(
                "warning",
                "step size",
                f"the first steps may overshoot ({shown}, β_0 λ_max = {pull:.3g}, together 2 or more)",
                f"start the step size below {max(0.0, (2 - pull) / (n * curvature)):.3g} if the run diverges",
            )
        return Finding("ok", "step size", f"stable against the estimated curvature ({shown})")

    def weights(self, steps: np.ndarray) -> np.ndarray:
        """A draw stands for the Langevin time `α_k` that its step covered."""
        return np.broadcast_to(np.asarray(self.step_size(steps - 1), float), np.shape(steps))

    def edge_rate(self, coefficients: Coefficients) -> Any:
        """An edge moves an agent by `−β_k a_ij (w_i − w_j)`."""
        return coefficients.pull

    @property
    def consensus_decay(self) -> Decay:
        """Theorem 1: at the rate `δ_2 − 2 δ_1`."""
        rate = self.step_size.exponent - 2 * self.consensus.exponent
        return Decay(rate, float(getattr(self.step_size, "offset", 1.0)))

    def method(self, num_agents: int) -> str:
        """D-ULA, with one agent C-ULA, and that without noise SGD."""
        if num_agents > 1:
            return "D-ULA"
        return "C-ULA" if self.temperature > 0 else "SGD"

    def describe(self, num_steps: int) -> str:
        """Its step sizes."""
        first, last = (float(self.step_size(k)) for k in (0, num_steps - 1))
        return f"step size {first:.3g} → {last:.3g}, consensus step {float(self.consensus(0)):.3g}"

    @classmethod
    def from_numbers(cls, graph: Graph, numbers: Mapping[str, float]) -> DULA | None:
        """A step size is enough: the consensus step follows from the graph."""
        return cls(**{"consensus": default_consensus(graph), **numbers}) if "step_size" in numbers else None

    @classmethod
    def suggest(cls, landscape: Landscape, graph: Graph, num_steps: int, temperature: float = 1.0) -> Suggestion:
        """Stable, agents that agree, a small bias; the rest of the budget goes into moving."""
        step_size, consensus, reasons = suggested_schedules(landscape, graph, num_steps)
        chosen = cls(step_size=step_size, consensus=consensus, temperature=temperature)
        return Suggestion(chosen, reasons, landscape.relaxation)


def dula(step_size: Any, consensus: Any, temperature: float = 1.0) -> DULA:
    """D-ULA with the given schedules; a plain number stands for a constant schedule.

    Args:
        step_size: `α_k`, a schedule or a number.
        consensus: `β_k`, a schedule or a number.
        temperature: `T`, which multiplies the noise variance.

    >>> dula(step_size=1e-3, consensus=0.3).temperature
    1.0
    """
    return DULA(step_size=step_size, consensus=consensus, temperature=temperature)
