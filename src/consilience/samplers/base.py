"""What a sampler is: the whole contract between an algorithm and the rest of the program.

There are two families. By *gossip* (`Gossip`) each agent walks a chain of its own and exchanges messages with its
neighbours; in *unison* (`Unison`, in `unison.py`) all agents walk the same chains, and only sums over the network are
exchanged.

**The step of one agent** that gossips, pure functions over pytrees. For every agent `i` and step `k` an engine
computes

    gradient     = ∇U_i(position(state))
    message      = share(…)                                what the neighbours are told
    mixed        = message − β Σ_j a_ij (message_i − message_j)     the only thing that needs the network
    state        = step(state, gradient, message, mixed, coefficients(k, n), noise)

and engines differ only in how the neighbours' messages arrive. How it mixes the sampler declares (`mixing`): one
exchange, as here, or several by Chebyshev's recurrence (`mixing.py`). A sampler says by its base class when it
speaks: `SpeaksFirst` before the gradient is computed, so that messages travel meanwhile, `SpeaksLast` after it. What
is in the message is shared; everything else in the state stays at its agent. Coefficients and noise (standard normal
numbers) do not depend on the state, so that an engine may compute them for many steps at once: one step at a time
they would cost more than all the rest of a small model's step.

**What the rest of the program asks**: is it stable (`findings`), how much does a draw count (`weights`), how fast
should agents agree (`consensus_decay`), what does an edge move (`edge_rate`), what is it called (`method`,
`describe`), which options does it take on the command line (`options`, `from_numbers`), what are its defaults
(`suggest`). Nobody outside `samplers/` reads the entries of a concrete sampler, except `theory/`, which is about
D-ULA; the paper's experiments name the one they reproduce.

`tests/samplers/test_contract.py` checks every sampler in the registry.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field

from consilience.graphs import Graph
from consilience.samplers.landscape import Landscape
from consilience.samplers.mixing import Mixing
from consilience.validation import Record


class Leaf(enum.Enum):
    """What an array of a state is."""

    VECTOR = "vector"
    """One entry for each parameter; on a mesh it may be spread over devices."""
    NUMBERS = "numbers"
    """Anything else; the same on all devices that share an agent."""


@dataclass(frozen=True)
class Finding:
    """One thing that was checked about a plan.

    An *error* means that the dynamics cannot stay bounded; the plan is refused. A *warning* means that it can run,
    but something about it deserves a look.
    """

    level: Literal["ok", "warning", "error"]
    topic: str
    message: str
    remedy: str = ""

    def __str__(self) -> str:
        return self.message + (f": {self.remedy}" if self.remedy else "")

    def to_dict(self) -> dict[str, str]:
        """The finding as plain values."""
        return asdict(self)


class Option(NamedTuple):
    """An entry of a sampler that the command line takes as one number."""

    help: str
    minimum: float | None = None


class Decay(NamedTuple):
    """The expected consensus error falls like `(offset + k)^−rate`."""

    rate: float
    offset: float


class Suggestion(NamedTuple):
    """A sampler and the reasons for its numbers, in words."""

    sampler: Sampler
    reasons: tuple[str, ...]
    forgets: float | None = None
    """In how much time, by the `weights` of its draws, a chain forgets where it was; `None` if that is not known."""


class Defaults(NamedTuple):
    """How long a run is and how it is stored, where the sampler tunes itself and nobody says it."""

    num_warmup: int = 1000
    num_chains: int = 4
    store_every: int = 1


class Sampler(Record, ABC):
    """What all samplers have; derive from `SpeaksFirst`, `SpeaksLast` or `Unison`."""

    kind: str
    """The sampler's name in plan files and on the command line; a `Literal` in each sampler."""
    options: ClassVar[Mapping[str, Option]]
    """The entries that the command line takes, by name."""
    tunes_by_default: ClassVar[bool]
    """Whether it finds its numbers itself where nobody gives them."""
    defaults: ClassVar[Defaults] = Defaults()
    """Lengths of plans whose sampler tunes itself."""

    if TYPE_CHECKING:  # an entry of some samplers and a constant of others

        @property
        def temperature(self) -> float:
            """`T`: 1 samples the posterior, 0 optimises."""

    @property
    def tunes_itself(self) -> bool:
        """Whether it finds its numbers itself, and a plan counts draws; or has them, and a plan counts steps."""
        return self.tunes_by_default

    @property
    def feels_curvature(self) -> bool:
        """Whether its step size is given, and stable or not by the curvature where the agents start."""
        return not self.tunes_itself

    @abstractmethod
    def findings(self, graph: Graph, num_steps: int, curvature: float | None) -> list[Finding]:
        """What can be said of it on a graph before it runs.

        `curvature` is `max_i λ_max(∇²U_i)` where the agents start, or `None` if that is not known.
        """

    @abstractmethod
    def weights(self, steps: np.ndarray) -> np.ndarray:
        """How much Langevin time the draws after so many steps stand for; equal if they all count the same."""

    @property
    def consensus_decay(self) -> Decay | None:
        """How fast a theorem says that agents agree; `None` if none does."""
        return None

    @abstractmethod
    def method(self, num_agents: int) -> str:
        """What the algorithm is called with so many agents, at this temperature."""

    @abstractmethod
    def describe(self, num_steps: int) -> str:
        """Its numbers over a run of so many steps, in a few words."""

    @classmethod
    @abstractmethod
    def from_numbers(cls, graph: Graph, numbers: Mapping[str, float]) -> Sampler | None:
        """The sampler with these numbers, the rest from the graph; `None` if more must be known of the problem."""


class Gossip(Sampler):
    """A sampler whose agents each walk a chain of their own; derive from `SpeaksFirst` or `SpeaksLast`."""

    temperature: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0
    """`T` multiplies the noise's variance: 1 samples the posterior, 0 optimises."""

    tunes_by_default: ClassVar[bool] = False
    numbers_change: ClassVar[bool] = True
    """Whether its `coefficients` may be others from step to step."""
    state_leaves: ClassVar[Any]
    """What the arrays of a state are: a pytree of `Leaf` that is a prefix of the state's.

    Those of them that `share` puts into the message are shared, all others stay private to their agent.
    """

    # --- the step of one agent ---------------------------------------------------------------------------------

    @abstractmethod
    def init(self, position: Any) -> Any:
        """The state of an agent that starts at `position`."""

    @abstractmethod
    def position(self, state: Any) -> Any:
        """The parameters in the state: what is stored as a draw, and where the gradient is taken."""

    @abstractmethod
    def coefficients(self, k: Any, n: int) -> Any:
        """The numbers of step `k` of `n` agents (step sizes, noise scale), the same for every agent."""

    @abstractmethod
    def mixing(self, graph: Graph, coefficients: Any) -> Mixing:
        """How messages are mixed in a step with these coefficients."""

    @property
    def has_common_noise(self) -> bool:
        """Whether all agents are given the same noise for their shared parameters."""
        return False

    @abstractmethod
    def step(self, state: Any, gradient: Any, message: Any, mixed: Any, coefficients: Any, noise: Any) -> Any:
        """The next state. `gradient` is (an estimate of) `∇U_i`, `noise` is shaped like the position."""

    # --- what the rest of the program asks ---------------------------------------------------------------------

    @abstractmethod
    def edge_rate(self, coefficients: Any) -> Any | None:
        """The factor by which an edge moves an agent's message, if nodes may continue without the edge.

        That is `β` if mixing is `message − β · disagreement` and the state keeps the mixed message as it is: what an
        edge has moved is then known at both its ends, and can be made good. `None` if it is not so.
        """

    @classmethod
    @abstractmethod
    def suggest(cls, landscape: Landscape, graph: Graph, num_steps: int, temperature: float = 1.0) -> Suggestion:
        """Numbers for a problem, a graph and a budget of steps."""


class SpeaksFirst(Gossip):
    """A sampler whose message does not need the gradient: it travels while the gradient is computed."""

    @abstractmethod
    def share(self, state: Any) -> Any:
        """What the agent tells its neighbours, before its gradient."""


class SpeaksLast(Gossip):
    """A sampler whose message is made from the gradient and the noise of the step."""

    @abstractmethod
    def share(self, state: Any, gradient: Any, coefficients: Any, noise: Any) -> Any:
        """What the agent tells its neighbours, after its gradient."""
