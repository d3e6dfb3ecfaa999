"""Samplers in unison: every agent holds a replica of the same chains, and only sums over the network are exchanged.

All agents have the same randomness and receive the same sums, so all take the same decisions, and each ends with the
draws of the pooled posterior. A sampler is written against `Network`: it evaluates the log-density of everybody's
data at a position, which costs one sum over the agents, and never learns how the sum is made.

    state = replica at the start                        (`transitions/replica.py`)
    state, facts = move(state, keys, network)           one draw of all chains
    state = adapted(state, facts)                       while it warms up: step size and mass, pooled over chains

Shared parameters `w` are the same at all agents; private ones `z_i` are held by their agent alone.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, Protocol

import numpy as np
from pydantic import Field

from consilience.graphs import Graph
from consilience.graphs.spanning import num_hops
from consilience.samplers.base import Finding, Option, Sampler

if TYPE_CHECKING:
    from consilience.samplers.transitions.replica import Replica

Ride = Callable[[Any], Any]
"""From an agent's `∇_z U_i` to further numbers that are summed over the agents along with the log-density."""


class Evaluation(NamedTuple):
    """The log-density of everybody's data at a position of one chain."""

    log_density: Any
    """A number, the same at all agents; −∞ where somebody's part is none, or too large to be summed."""
    gradient: Any
    """`(d,)` with respect to shared parameters, the same at all agents."""
    own_gradient: Any
    """`(agents here, p)` with respect to private ones."""
    carried: Any
    """`(k,)` the sums of what rode along."""


class Network(Protocol):
    """What a sampler sees of the other agents."""

    @property
    def num_agents(self) -> int:
        """Of the whole network."""

    @property
    def agents(self) -> Any:
        """`(agents here,)` their numbers."""

    @property
    def entries(self) -> Any:
        """`(agents here, p)`: 1 for each private parameter, 0 for what only fills the array."""

    @property
    def vary(self) -> Callable[[Any], Any]:
        """Marks an array that is the same at all agents, so far, as one that each has of its own."""

    def evaluate(self, grid: Any, shared: Any, private: Any, ride: Ride) -> Evaluation:
        """The log-density at a position, by one sum."""

    def far(self, shared: Any, private: Any) -> Any:
        """Potentials that are too far above those at some positions for a start near them."""

    def measure(self, shared: Any, private: Any, most: Any = ...) -> tuple[Any, Any]:
        """A grid for the sums, and the chains whose log-density is none or beyond what agents say, by one sum."""

    def adopt(self, values: Any) -> Any:
        """The root agent's numbers `(agents here, …)`, to the bit, at every agent, by one sum."""


class Facts(NamedTuple):
    """What is known of the last move, `(chains,)` each."""

    acceptance_rate: Any
    diverging: Any
    energy: Any
    """`H = U + K` of the draw."""
    leapfrogs: Any
    """Gradients that the chain's own trajectory took."""
    depth: Any
    """Doublings of the trajectory; 0 where there are none."""
    evaluations: Any
    """Sums over the network, which chains share."""


FACTS = Facts._fields
"""What is measured with every draw."""


class Unison(Sampler):
    """A sampler in unison."""

    tunes_by_default: ClassVar[bool] = True
    takes_private: ClassVar[bool]
    """Whether it can sample private parameters."""

    target_acceptance: Annotated[float, Field(gt=0, lt=1)] = 0.8
    """The acceptance rate for which the warm-up chooses the step size."""

    def has_dense_mass(self, num_shared: int) -> bool:
        """Whether the warm-up estimates the whole covariance of so many shared parameters, or their variances."""
        return False

    @abstractmethod
    def length(self, num_shared: int, own_shape: tuple[int, ...]) -> Any:
        """What decides how long trajectories are, before the first move: a pytree of arrays."""

    @abstractmethod
    def after_window(self, length: Any) -> Any:
        """The same when a window of the warm-up ends."""

    @abstractmethod
    def move(self, state: Replica, keys: Any, network: Network, warming: Any) -> tuple[Replica, Facts]:
        """The next draw of all chains; `keys` are `(chains,)`, and one more that they share."""

    @property
    def temperature(self) -> float:
        """It samples the posterior."""
        return 1.0

    def findings(self, graph: Graph, num_steps: int, curvature: float | None) -> list[Finding]:
        """It tunes itself; nothing can be unstable."""
        found = [Finding("ok", "step size", "found by the warm-up, from sums over the network")]
        if graph.num_agents > 1:
            hops = f"{num_hops(graph)} hops on a tree in this graph, one sum for each leapfrog step"
            found.append(Finding("ok", "sums", hops))
        return found

    def weights(self, steps: np.ndarray) -> np.ndarray:
        """All draws count the same."""
        return np.ones(np.shape(steps))

    def describe(self, num_steps: int) -> str:
        """What the warm-up aims at."""
        return f"target acceptance {self.target_acceptance:g}"

    @classmethod
    def from_numbers(cls, graph: Graph, numbers: Mapping[str, float]) -> Unison:
        """It needs none."""
        return cls(**numbers)

    options: ClassVar[Mapping[str, Option]] = {
        "target_acceptance": Option("The acceptance rate that the warm-up aims at.", 0.0),
    }
