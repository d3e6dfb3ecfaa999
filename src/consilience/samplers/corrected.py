"""What the corrected samplers `kinetic` and `langevin` have in common.

Each agent carries a correction `s_i` beside its position: an integral of disagreement that at rest equals the excess
of the agent's own gradient. So agents whose data differ have no bias in the mean, and `Σ_i s_i = 0` at all times.
Message and mixing come after gradient and noise.

Both are written for coordinates `u` in which the posterior is about standard normal: `w = m + S u` with `m` and `S`
known to all (`kernel/whitening.py`). A warm-up finds them, and the step size and the number of exchanges with them;
or numbers are given by hand, coordinates too, or for the model's own (`whitening = "none"`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, field_validator

from consilience.errors import PlanError
from consilience.graphs import Graph
from consilience.samplers.arrays import tree_map
from consilience.samplers.base import Defaults, Finding, Option, SpeaksLast, Suggestion
from consilience.samplers.coordinates import Coordinates
from consilience.samplers.landscape import Landscape
from consilience.samplers.mixing import MOST_NEGATIVE, Mixing, chebyshev, contraction, exchanges_for

MOST_EXCESS = 0.3
"""`θ ℓ`, which bounds how much wider than the posterior the agents' draws are."""
MOST_HEATING = 1.05
"""The temperature that the noise of minibatches may make of 1."""
_PATTERNS = 33  # eigenvalues of the mixing at which stability is looked at


class Corrected(SpeaksLast):
    """A sampler by gossip that corrects for agents whose data differ, and finds its numbers in a warm-up."""

    tunes_by_default: ClassVar[bool] = True
    numbers_change: ClassVar[bool] = False
    options: ClassVar[Mapping[str, Option]] = {
        "step_size": Option("A constant step size."),
        "exchanges": Option("Exchanges with neighbours in a step (kinetic, langevin).", 1.0),
        "temperature": Option("1 samples the posterior, 0 optimises.", 0.0),
    }
    defaults: ClassVar[Defaults]
    windows: ClassVar[tuple[int, ...]]
    """Steps of the windows that every warm-up has."""
    further_windows: ClassVar[tuple[int, ...]]
    """Steps of those that follow while the scale is not found."""

    step_size: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """In whitened coordinates; without it the warm-up finds it."""
    exchanges: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """`K`, exchanges with neighbours in a step; without it the warm-up finds it."""
    noise: Literal["own", "common"] = "own"
    """Whether every agent has noise of its own, or all have the same."""
    whitening: Literal["found", "none"] | Coordinates = "found"
    """Whether the warm-up finds coordinates, or those of the model are taken; or what they are."""
    control_variates: bool = True
    """Whether gradients of minibatches have the noise taken out that they have where the warm-up has been."""

    @field_validator("whitening", mode="before")
    @classmethod
    def _coordinates(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            return Coordinates(**value)
        if isinstance(value, Coordinates) or value in ("found", "none"):
            return value
        raise PlanError(f'"found", "none", or coordinates by hand, a table of centre and scale; got {value!r:.40}')

    @property
    def tunes_itself(self) -> bool:
        """Unless all numbers are given, for the model's own coordinates."""
        return self.whitening != "none" or self.step_size is None or self.exchanges is None

    @property
    def feels_curvature(self) -> bool:
        """If it was given for the model's own coordinates."""
        return self.step_size is not None and self.whitening == "none"

    @property
    def has_common_noise(self) -> bool:
        """Whether all agents are given the same noise."""
        return self.noise == "common"

    def mixing(self, graph: Graph, coefficients: Any) -> Mixing:
        """Chebyshev's, with `K` exchanges."""
        if self.exchanges is None:
            raise PlanError(f"{self.kind} has no number of exchanges yet: a warm-up finds it, or give `exchanges`")
        return chebyshev(graph, self.exchanges)

    def tuned(self, step_size: Any, exchanges: Any, temperature: Any) -> Self:
        """The sampler with these numbers, which may be traced."""
        return self.model_copy(
            update={"step_size": step_size, "exchanges": exchanges, "temperature": temperature, "whitening": "none"}
        )

    def _given_step(self) -> Any:
        if self.step_size is None:
            raise PlanError(f"{self.kind} has no step size yet: a warm-up finds it, or give `step_size`")
        return self.step_size

    def _noise_agents(self, n: int) -> int:
        """By which factor noise is multiplied beside that of a single chain: common noise is not averaged out."""
        return 1 if self.has_common_noise else n

    # --- the correction ----------------------------------------------------------------------------------------

    @abstractmethod
    def gained(self, taken: Any) -> Any:
        """What the correction gains where mixing has taken so much from a message; linear."""

    def _grown(self, state: Any, message: Any, mixed: Any) -> Any:
        """The correction after a step."""
        taken = tree_map(lambda said, heard: said - heard, message, mixed)
        return tree_map(lambda s, gain: s + gain, state.correction, self.gained(taken))

    def relieved(self, state: Any, gains: Any) -> Any:
        """The state without some of what its correction has gained."""
        return state._replace(correction=tree_map(lambda s, gain: s - gain, state.correction, gains))

    # --- what the warm-up asks ---------------------------------------------------------------------------------

    @abstractmethod
    def step_for(self, curvature: float) -> float:
        """The step size for a largest curvature `Λ` of `U` in whitened coordinates."""

    @abstractmethod
    def independent_share(self, step_size: float) -> float:
        """About which share of the positions counts as independent ones, where the posterior is standard normal."""

    @abstractmethod
    def heating(self, step_size: float, noise: float) -> float:
        """The temperature at which a standard normal is sampled, if gradients have noise of so much variance."""

    def exchanges_on(self, graph: Graph, excess: float) -> int:
        """`K` for an `ℓ = n max_i ‖Sᵀ∇²U_i S‖/Λ`, so that `θ ℓ` is at most 0.3."""
        return exchanges_for(graph, MOST_EXCESS / max(1.0, excess))

    # --- what the program asks ---------------------------------------------------------------------------------

    @abstractmethod
    def pattern_step(self, q: float, curvature: float, step_size: float) -> np.ndarray:
        """A noiseless step of one number on a pattern of the agents that mixing multiplies by `q`, as a matrix.

        The last entry of the state is the correction. All agents have the same curvature `n ∇²U_i`.
        """

    def radius(self, q: float, curvature: float) -> float:
        """The spectral radius of that step; the correction of the average (`q = 1`) is 0 and stays so."""
        matrix = self.pattern_step(q, curvature, float(self._given_step()))
        matrix = matrix[:-1, :-1] if q == 1 else matrix
        return float(np.abs(np.linalg.eigvals(matrix)).max())

    def findings(self, graph: Graph, num_steps: int, curvature: float | None) -> list[Finding]:
        """Mixing and step size, by the spectral radius where they are given."""
        found = [self._mixing_finding(graph)]
        if self.step_size is None:
            found.append(Finding("ok", "step size", "found by the warm-up, from sums over the network"))
        elif self.whitening != "none":
            found.append(self._step_finding(graph, 1.0, "n L ≈ 1 in whitened coordinates"))
        elif curvature is not None:
            most = graph.num_agents * curvature
            found.append(self._step_finding(graph, most, f"n L ≈ {most:.4g} where the agents start"))
        return found

    def _patterns(self, graph: Graph) -> np.ndarray:
        """Eigenvalues that disagreement can have under the mixing: the ends of their range, and between."""
        if not graph.num_edges or self.exchanges is None:
            return np.zeros(0)
        theta = contraction(graph, self.exchanges)
        low, high = (0.0, 2 * theta / (1 + theta)) if theta > MOST_NEGATIVE else (-theta, theta)
        return np.linspace(low, high, _PATTERNS)

    def _mixing_finding(self, graph: Graph) -> Finding:
        if not graph.num_edges:
            return Finding("ok", "mixing", "a single agent needs none")
        if self.exchanges is None:
            return Finding("ok", "mixing", "exchanges in a step: found by the warm-up, stable for any number")
        theta = contraction(graph, self.exchanges)
        how = f"Q⁺ = (Q + θI)/(1 + θ), as θ is above {MOST_NEGATIVE}" if theta > MOST_NEGATIVE else "Chebyshev's Q"
        shown = f"K = {self.exchanges}, θ = {theta:.3g}, {how}"
        if self.step_size is None:
            return Finding("ok", "mixing", f"stable ({shown})")
        radius = max(self.radius(float(q), 0.0) for q in self._patterns(graph))
        if radius >= 1:
            return Finding(
                "error", "mixing", f"mixing and correction are unstable on this graph ({shown}; spectral radius "
                f"{radius:.4g})", "take more exchanges",
            )  # fmt: skip
        return Finding("ok", "mixing", f"stable ({shown}; spectral radius {radius:.3g})")

    def _step_finding(self, graph: Graph, curvature: float, known: str) -> Finding:
        """Refuse a step that is unstable if the potential of every agent has that curvature `n ∇²U_i`."""
        radius = max(self.radius(float(q), curvature) for q in (1.0, *self._patterns(graph)))
        shown = f"step {float(self._given_step()):.3g}, {known}; spectral radius {radius:.4g}"
        if radius >= 1:
            return Finding(
                "error", "step size", f"the step size is unstable ({shown})",
                f"take {self.step_for(curvature):.2g}, or leave it to the warm-up",
            )  # fmt: skip
        return Finding("ok", "step size", f"stable against the estimated curvature ({shown})")

    def weights(self, steps: np.ndarray) -> np.ndarray:
        """All draws count the same: the step size does not change."""
        return np.ones(np.shape(steps))

    def edge_rate(self, coefficients: Any) -> None:
        """None of its kind: what an edge moves in a step goes through further exchanges (`gained` says where to)."""
        return

    def describe(self, num_steps: int) -> str:
        """Its numbers, or that the warm-up finds them."""
        step = "found by the warm-up" if self.step_size is None else f"{self.step_size:.3g}"
        exchanges = "" if self.exchanges is None else f", {self.exchanges} exchange{'s' * (self.exchanges > 1)}"
        return f"step size {step}{exchanges}"

    @classmethod
    def from_numbers(cls, graph: Graph, numbers: Mapping[str, float]) -> Self:
        """It needs none."""
        return cls(**numbers)

    @classmethod
    def suggest(cls, landscape: Landscape, graph: Graph, num_steps: int, temperature: float = 1.0) -> Suggestion:
        """Itself: it needs none."""
        return Suggestion(cls.from_numbers(graph, {"temperature": temperature}), ("its warm-up finds all numbers",))
