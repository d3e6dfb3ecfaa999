"""DE-SGHMC, decentralized stochastic gradient Hamiltonian Monte Carlo (Gürbüzbalaban et al., 2021).

    v_i ← v_i − η_k (γ v_i + n ∇U_i(w_i)) + sqrt(2 γ η_k n T) ξ_i,    ξ_i ~ N(0, I)
    w_i ← w_i − β_k Σ_j a_ij (w_i − w_j) + η_k v_i

with the new `v_i` in the second line. The factor `n` stands at the gradient and in the noise's variance: the average
of `n` independent noises of variance `n` has variance 1 and that of `n ∇U_i` is `∇U`, so the average over agents
follows SGHMC on `U = Σ U_i` with unit mass (`n` in one place only would sample at temperature `n` or `1/n`).
Positions are mixed, momenta stay at their agent: nothing corrects for gradients that differ between agents.

An agent's own mode of curvature `h` and a pattern of disagreement that mixing shrinks by `q = 1 − β λ` follow a
linear recursion with determinant `q (1 − η γ)` and trace `q + 1 − η γ − η² n h`. It is stable where

    η² n h < (1 + q)(2 − η γ),      0 < η γ < 2,

which is tightest for the largest eigenvalue `λ_max` of the graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field

from consilience.graphs import Graph
from consilience.samplers.arrays import square_root, tree_map
from consilience.samplers.base import Finding, Leaf, Option, SpeaksFirst, Suggestion
from consilience.samplers.consensus import (
    consensus_finding,
    consensus_reason,
    consensus_strength,
    default_consensus,
)
from consilience.samplers.dula_suggestion import EXCESS, HEAT, SHIFT
from consilience.samplers.landscape import Landscape, shift
from consilience.samplers.mixing import Mixing
from consilience.schedules import FromTo, ScheduleLike

_EXPONENT = 0.6
_STIFFNESS = 0.5  # η² n L at the start: an eighth of what is stable without mixing
_LEAST_FALL = 0.5
_HALVINGS = 40


class State(NamedTuple):
    """An agent's position and its momentum."""

    position: Any
    momentum: Any


class Coefficients(NamedTuple):
    """The numbers of one step, the same for every agent."""

    step: Any
    """`η_k`."""
    drift: Any
    """`η_k n`, the factor of the gradient."""
    kept: Any
    """`1 − η_k γ`, the share of the momentum that friction leaves."""
    pull: Any
    """`β_k`, the factor of the disagreement."""
    deviation: Any
    """`sqrt(2 γ η_k n T)`, the standard deviation of the noise."""


class SGHMC(SpeaksFirst):
    """Decentralized stochastic gradient Hamiltonian Monte Carlo; make one with `sghmc(...)`."""

    options: ClassVar[Mapping[str, Option]] = {
        "step_size": Option("A constant step size."),
        "consensus": Option("A constant consensus step."),
        "friction": Option("Friction, of samplers with momentum.", 0.0),
        "temperature": Option("1 samples the posterior, 0 optimises.", 0.0),
    }
    state_leaves: ClassVar[Any] = State(Leaf.VECTOR, Leaf.VECTOR)

    kind: Literal["sghmc"] = "sghmc"
    step_size: ScheduleLike
    consensus: ScheduleLike
    friction: Annotated[float, Field(gt=0, allow_inf_nan=False)]

    def init(self, position: Any) -> State:
        """At rest."""
        return State(position, tree_map(lambda w: 0 * w, position))

    def position(self, state: State) -> Any:
        """Without the momentum."""
        return state.position

    def share(self, state: State) -> Any:
        """An agent tells its neighbours where it is; its momentum stays with it."""
        return state.position

    def coefficients(self, k: Any, n: int) -> Coefficients:
        """Step sizes, friction and noise scale of step `k` of `n` agents."""
        step = self.step_size(k)
        deviation = square_root(2 * self.friction * self.temperature * n * step)
        return Coefficients(step, n * step, 1 - self.friction * step, self.consensus(k), deviation)

    def mixing(self, graph: Graph, coefficients: Coefficients) -> Mixing:
        """A step of `β_k` towards the neighbours."""
        return Mixing(coefficients.pull)

    def step(
        self, state: State, gradient: Any, message: Any, mixed: Any, coefficients: Coefficients, noise: Any
    ) -> State:
        """First the momentum, then the mixed position moves by the new one."""
        step, drift, kept, _, deviation = coefficients
        momentum = tree_map(lambda v, g, xi: kept * v - drift * g + deviation * xi, state.momentum, gradient, noise)
        return State(tree_map(lambda w, v: w + step * v, mixed, momentum), momentum)

    def findings(self, graph: Graph, num_steps: int, curvature: float | None) -> list[Finding]:
        """The consensus step against the graph, friction and step size against stability."""
        consensus, friction = consensus_finding(graph, float(self.consensus(0))), self._friction(num_steps)
        found = [consensus, friction]
        if curvature is not None and "error" not in (consensus.level, friction.level):
            found.append(self._step_size(graph, num_steps, curvature))
        return found

    def _friction(self, num_steps: int) -> Finding:
        first, last = (self.friction * float(self.step_size(k)) for k in (0, num_steps - 1))
        shown = f"η_0 γ = {first:.4g}"
        if last >= 2:
            return Finding(
                "error", "friction", f"friction reverses the momentum ever more ({shown}, must stay below 2)",
                f"take less friction than {2 / float(self.step_size(num_steps - 1)):.3g}, or smaller steps",
            )  # fmt: skip
        if first > 1:
            return Finding(
                "warning", "friction", f"the first steps turn the momentum around ({shown}, more than 1)",
                "take less friction, or smaller steps",
            )  # fmt: skip
        return Finding("ok", "friction", f"a step leaves {1 - first:.3g} of the momentum or more ({shown})")

    def _step_size(self, graph: Graph, num_steps: int, curvature: float) -> Finding:
        n, strength = graph.num_agents, consensus_strength(graph, float(self.consensus(0)))

        def share(k: int) -> float:
            """`η² n L` over what is stable: 1 or more is not."""
            step = float(self.step_size(k))
            return step**2 * n * curvature / ((2 - strength) * (2 - step * self.friction))

        first, last = share(0), share(num_steps - 1)
        stiffness = float(self.step_size(0)) ** 2 * n * curvature
        shown = f"n L ≈ {n * curvature:.4g} where the agents start, η_0² n L ≈ {stiffness:.4g}"
        most = float(self.step_size(0)) / max(first, 1e-30) ** 0.5
        if last >= 1:
            return Finding(
                "error", "step size", f"the step size is unstable throughout the run ({shown})",
                f"start it below {most:.3g}",
            )  # fmt: skip
        if first >= 1:
            return Finding(
                "warning", "step size", f"the first steps may overshoot ({shown})",
                f"start the step size below {most:.3g} if the run diverges",
            )  # fmt: skip
        return Finding(
            "ok", "step size", f"stable against the estimated curvature ({shown}, {first:.0%} of the limit)"
        )

    def weights(self, steps: np.ndarray) -> np.ndarray:
        """A draw stands for the time `η_k` that its step covered."""
        return np.broadcast_to(np.asarray(self.step_size(steps - 1), float), np.shape(steps))

    def edge_rate(self, coefficients: Coefficients) -> Any:
        """An edge moves an agent's position by `−β_k a_ij (w_i − w_j)`, and its momentum not at all."""
        return coefficients.pull

    def method(self, num_agents: int) -> str:
        """DE-SGHMC, with one agent SGHMC, and that without noise gradient descent with momentum."""
        if num_agents > 1:
            return "DE-SGHMC"
        return "SGHMC" if self.temperature > 0 else "SGD with momentum"

    def describe(self, num_steps: int) -> str:
        """Its step sizes and friction."""
        first, last = (float(self.step_size(k)) for k in (0, num_steps - 1))
        consensus = float(self.consensus(0))
        return f"step size {first:.3g} → {last:.3g}, consensus step {consensus:.3g}, friction {self.friction:.3g}"

    @classmethod
    def from_numbers(cls, graph: Graph, numbers: Mapping[str, float]) -> SGHMC | None:
        """Step size and friction are needed; the consensus step follows from the graph."""
        if not {"step_size", "friction"} <= set(numbers):
            return None
        return cls(**{"consensus": default_consensus(graph), **numbers})

    @classmethod
    def suggest(cls, landscape: Landscape, graph: Graph, num_steps: int, temperature: float = 1.0) -> Suggestion:
        """Stable steps that end with agents that agree; friction for the slowest direction, if it is known."""
        n, pull = graph.num_agents, default_consensus(graph)
        first = (_STIFFNESS / (n * landscape.smoothness)) ** 0.5
        stiffest = landscape.total_smoothness**0.5
        friction = min(2 * landscape.relaxation**-0.5 if landscape.relaxation else stiffest, 0.5 / first)
        off, noise = shift(landscape, graph, pull), landscape.noise
        last = _LEAST_FALL * first
        for _ in range(_HALVINGS):
            excess = _excess(graph, pull, friction, last) * landscape.total_smoothness
            if excess <= EXCESS and last * off <= SHIFT * friction and last * noise <= 2 * HEAT * friction:
                break
            last /= 2
        reasons = (
            consensus_reason(graph),
            f"η_0 = {first:.3g}: η_0² n L = {_STIFFNESS}, n L = {n * landscape.smoothness:.4g} ({landscape.known})",
            f"γ = {friction:.3g}: "
            + ("critical for the slowest direction" if landscape.relaxation else "the root of the largest curvature")
            + ", at most half of the momentum lost in a step",
            f"η falls to {last:.3g}: an agent's disagreement then has at most {excess:.1%} of the posterior's "
            "smallest variance"
            + (f", and its means are off by at most {last * off / friction:.2g} standard deviations" if off else ""),
            *([f"the noise of minibatches then heats by {last * noise / friction / 2:.1%}"] if noise else []),
        )
        schedule = FromTo(start=first, end=last, num_steps=num_steps, exponent=_EXPONENT)
        chosen = cls(step_size=schedule, consensus=pull, friction=friction, temperature=temperature)
        return Suggestion(chosen, reasons, _forgets(friction, landscape.relaxation))


def _forgets(friction: float, relaxation: float | None) -> float | None:
    """The time in which the slowest direction, of variance `V`, forgets: `2/(γ − sqrt(γ² − 4/V))`, or `2/γ`."""
    if relaxation is None:
        return None
    return 2 / (friction - max(0.0, friction**2 - 4 / relaxation) ** 0.5)


def _excess(graph: Graph, pull: float, friction: float, step: float) -> float:
    """What noise adds to the variance of the agent that has it worst, gradients neglected.

    On a pattern of disagreement that mixing shrinks by `q`, with `c = 1 − ηγ`: momenta have the variance
    `V = 2γηn/(1 − c²)`, their covariance with positions is `C = ηV/(1 − qc)`, and positions have the variance
    `(2qcηC + η²V)/(1 − q²)`.
    """
    if not graph.num_edges:
        return 0.0
    values, patterns = np.linalg.eigh(graph.laplacian.toarray())
    q, c = 1 - pull * values[1:], 1 - step * friction
    momenta = 2 * friction * step * graph.num_agents / (1 - c**2)
    covariance = step * momenta / (1 - q * c)
    variance = (2 * q * c * step * covariance + step**2 * momenta) / (1 - q**2)
    return float((patterns[:, 1:] ** 2 @ variance).max())


def sghmc(step_size: Any, consensus: Any, friction: float, temperature: float = 1.0) -> SGHMC:
    """DE-SGHMC with the given schedules; a plain number stands for a constant schedule.

    Args:
        step_size: `η_k`, a schedule or a number.
        consensus: `β_k`, a schedule or a number.
        friction: `γ`.
        temperature: `T`, which multiplies the noise variance.

    >>> sghmc(step_size=1e-2, consensus=0.3, friction=1.0).method(5)
    'DE-SGHMC'
    """
    return SGHMC(step_size=step_size, consensus=consensus, friction=friction, temperature=temperature)
