"""How the arrays of samplers in unison lie on devices: all on one, or agents spread over several.

Programs see data `(agents, …)`, the agents themselves, and a replica with private parts `(…, agents, …)`. Where they
are spread, every device has the same number of places for agents; a place that is left over counts in no sum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from consilience.engines.base import PlainForm, StateForm
from consilience.kernel.parameters import Parameters
from consilience.problems import Problem
from consilience.samplers.transitions.replica import Replica


class Buffers(NamedTuple):
    """What some moves leave behind, one entry for each."""

    shared: Any
    """`(moves, chains, d)`"""
    private: Any
    """`(moves, chains, agents here, p)`"""
    measured: Any
    """`(moves, chains)` each of `MEASURED`."""


class Agents(NamedTuple):
    """What programs are told of the agents that are here, arrays over agents."""

    numbers: Any
    entries: Any
    """`(agents, p)`: 1 for each private parameter, 0 for what only fills the array."""
    counts: Any = None
    """Whether a place is an agent's own; `None` if all are."""
    groups: Any = None
    """The number of each agent's group of equal shapes, where one program serves whichever agents a device holds."""


class Spread(Protocol):
    """How arrays of the agents that are here lie on devices."""

    uses_up_state: bool
    """Whether programs take over the buffers of the state."""

    def agents_per_file(self, agents_here: int) -> int:
        """How many agents' draws stand in one file."""

    def num_places(self, agents_here: int) -> int:
        """Places for agents here, some of which may be left over."""

    def digest(self, problem: Problem) -> str:
        """Of everybody's data."""

    def held(self, data: Any, agents: Agents, start: np.ndarray, parameters: Parameters) -> Any:
        """Data, agents and the positions `(chains, agents, size)` where they start, as programs take them."""

    def made(self, function: Callable[..., Replica], start: Any) -> Replica:
        """The replica that a function makes from those positions, as programs take it."""

    def fetched(self, buffers: Buffers) -> Buffers:
        """What moves left behind at the agents that are here, in this process's memory."""

    def form(self, like: Replica) -> StateForm:
        """How a state of such shapes is written and read."""


class OneDevice:
    """All arrays are on one device."""

    uses_up_state = False

    def agents_per_file(self, agents_here: int) -> int:
        """All of them."""
        return max(1, agents_here)

    def num_places(self, agents_here: int) -> int:
        """No place is left over."""
        return agents_here

    def digest(self, problem: Problem) -> str:
        """Of the shards that are here."""
        return problem.fingerprint()

    def held(self, data: Any, agents: Agents, start: np.ndarray, parameters: Parameters) -> Any:
        """As they are."""
        return data, Agents(*map(jnp.asarray, agents[:2])), jnp.asarray(start)

    def made(self, function: Callable[..., Replica], start: Any) -> Replica:
        """What the function returns."""
        return function(start)

    def fetched(self, buffers: Buffers) -> Buffers:
        """All of it."""
        return jax.tree.map(np.asarray, buffers)

    def form(self, like: Replica) -> StateForm:
        """All arrays as they are."""
        return PlainForm(like)
