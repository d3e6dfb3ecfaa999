"""What an engine is to the life of a run: something that advances the agents it holds by a segment of steps.

A stepper holds all agents (`Simulation`), those of one process of several (`MeshSimulation`), or one (`Node`). The
life of a run (`runs/life.py`) knows nothing else of them.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import jax
import numpy as np

from consilience.errors import CheckpointError
from consilience.kernel.parameters import Parameters
from consilience.plans import Plan
from consilience.problems import Problem

T = TypeVar("T")
MOST_ATTEMPTS = 2**12
"""How often the agents of a network in unison may repeat moves in one epoch."""


class Segment(NamedTuple):
    """What a segment of steps leaves behind."""

    last_step: int
    """How many steps are complete after the segment."""
    draws: np.ndarray
    """`(draws, chains, agents, size)` positions of the draws completed in the segment; in unison `(draws, chains, …)`
    what the replica holds. `Stepper.by_variable` reads them."""
    first_draw: int
    """The number of the first of the draws."""
    metric_steps: np.ndarray
    """After how many steps the metrics were measured."""
    metrics: Mapping[str, np.ndarray]
    """`(measurements, chains)` each, by name."""
    present: np.ndarray | None = None
    """`(draws, agents)`: whose data counted in each draw, if it was not always everybody's."""


class Team(Protocol):
    """The processes that sample one run together."""

    index: int
    size: int

    @property
    def is_first(self) -> bool:
        """Whether this process lays out the run, writes its small files and shows progress."""

    def gather(self, values: np.ndarray) -> np.ndarray:
        """`(processes, …)` everybody's values, which must have the same shape everywhere."""

    def stop_together(self, error: BaseException | None = None) -> None:
        """Raise in all processes if any has an error."""

    def attempt(self, action: Callable[[], T]) -> T:
        """What a function returns that may fail in one process alone; all stop if it does."""

    def watched(self, resume_command: str) -> AbstractContextManager[None]:
        """While it lasts, a lost process is told as that."""


class Alone:
    """A team of one process, which agrees with itself."""

    index, size, is_first = 0, 1, True

    def gather(self, values: np.ndarray) -> np.ndarray:
        """Its own values."""
        return np.atleast_1d(values)[None]

    def stop_together(self, error: BaseException | None = None) -> None:
        """Raise its own error."""
        if error is not None:
            raise error

    def attempt(self, action: Callable[[], T]) -> T:
        """What the function returns."""
        return action()

    def watched(self, resume_command: str) -> AbstractContextManager[None]:
        """There is nobody to lose."""
        return contextlib.nullcontext()


class StateForm(Protocol):
    """How a state is written to a checkpoint, and read back."""

    def content(self, state: Any) -> list[Any]:
        """The arrays to write."""

    def note(self, state: Any) -> dict[str, Any]:
        """What is noted beside them, a digest among it."""

    def example(self, note: dict[str, Any]) -> list[Any]:
        """Arrays of the shapes to read."""

    def restored(self, arrays: list[Any], note: dict[str, Any]) -> Any:
        """The state again; an error if it is not the one that was written."""


@dataclass(frozen=True)
class PlainForm:
    """The form of a state that is wholly in this process's memory; `like` has its structure and shapes."""

    like: Any

    def content(self, state: Any) -> list[np.ndarray]:
        """All arrays that hold something."""
        return [np.asarray(leaf) for leaf in jax.tree.leaves(state) if leaf.size]

    def note(self, state: Any) -> dict[str, Any]:
        """Their digest."""
        return {"digest": _digest(self.content(state))}

    def example(self, note: dict[str, Any]) -> list[np.ndarray]:
        """Of the state's shapes."""
        return [np.zeros(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(self.like) if leaf.size]

    def restored(self, arrays: list[Any], note: dict[str, Any]) -> Any:
        """The arrays, and the empty ones, in the state's structure."""
        if _digest([np.asarray(one) for one in arrays]) != note["digest"]:
            raise CheckpointError("its content does not match its digest")
        found = iter(arrays)
        leaves = [
            next(found) if leaf.size else np.zeros(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(self.like)
        ]
        return jax.tree.unflatten(jax.tree.structure(self.like), leaves)


def _digest(arrays: list[np.ndarray]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


class Storage(NamedTuple):
    """Whose draws a run holds, and what it measures."""

    agents: np.ndarray
    """The numbers of the agents in the order in which they are stored."""
    own: slice
    """Which of them this process writes."""
    agents_per_file: int
    """How many agents' draws stand in one file; a process writes whole files."""
    metrics: tuple[str, ...]
    """What is measured over time."""
    metric_times: int
    """How often, at most."""
    without_agents: frozenset[str] = frozenset()
    """Variables that are the same at all agents, and stored once."""
    presence: bool = False
    """Whether every draw says whose data counted; then an agent may have been absent, and its draws be missing."""


class Stepper(Protocol):
    """Advances the agents it holds; states are opaque pytrees of arrays."""

    problem: Problem
    plan: Plan
    parameters: Parameters
    team: Team
    storage: Storage
    form: StateForm
    block_steps: int
    """Segments start at multiples of this, so that a resumed run is the same to the bit."""
    max_steps: int
    """The longest segment, a multiple of `block_steps`."""
    segment_seconds: float
    """How long a segment takes, about; each ends with writing its draws, and with showing progress."""
    uses_up_state: bool
    """Whether `advance` takes over the buffers of the state that it is given."""

    def data_digest(self) -> str:
        """Of all data that the team holds."""

    def largest_curvature(self) -> float | None:
        """`max_i λ_max(∇²U_i)` over all agents of the team, where they start; `None` if nobody needs it."""

    def initial_state(self) -> Any:
        """The state before the first step."""

    def compile(self) -> None:
        """Compile the program, so that sampling can be timed apart."""

    def advance(self, state: Any, first_step: int, num_steps: int) -> tuple[Any, Segment]:
        """Make `num_steps` steps (at most `max_steps`) from `first_step`."""

    def by_variable(self, draws: np.ndarray) -> dict[str, np.ndarray]:
        """A segment's draws by name, on the constrained scale, in the dimensions in which they are stored."""

    def agree_to_stop(self, satisfied: bool) -> bool:
        """Whether all agents say that their draws suffice; asked at the same draws everywhere."""

    def found(self, state: Any) -> dict[str, Any]:
        """What a sampler that tunes itself has found; nothing for others."""

    def found_so_far(self, state: Any) -> dict[str, Any]:
        """The same while it still samples, with nothing that would have to be computed first."""

    def is_finite(self, state: Any) -> bool:
        """Whether all positions of the team's agents are finite."""

    def find_diverged(self, state: Any, first_step: int, num_steps: int) -> tuple[int, int, int] | None:
        """`(step, chain, agent)` of the first position within the segment that is not finite, if there is one."""


class Gossiping:
    """What all steppers have in common whose agents each walk a chain of their own with given step sizes."""

    parameters: Parameters
    largest_number: float = np.inf
    """What is not below it cannot be summed."""

    def adopted(self, values: np.ndarray) -> np.ndarray:
        """What all agents go on with, from numbers that they should have in common; in one process they have."""
        return values

    def by_variable(self, draws: np.ndarray) -> dict[str, np.ndarray]:
        """`(draws, chains, agents, size)` as variables `(chains, agents, draws, …)`."""
        return self.parameters.variables(np.moveaxis(draws, 0, 2), agent_axis=1)

    def agree_to_stop(self, satisfied: bool) -> bool:
        """The number of steps is given."""
        return False

    def found(self, state: Any) -> dict[str, Any]:
        """Nothing was sought."""
        return {}

    def found_so_far(self, state: Any) -> dict[str, Any]:
        """Nothing was sought."""
        return {}


def leaves_are_finite(state: Any) -> bool:
    """Whether all numbers of a state in this process's memory are finite."""
    return all(np.isfinite(np.asarray(leaf)).all() for leaf in jax.tree.leaves(state))


def first_bad_step(bad_after: Callable[[int], np.ndarray], num_steps: int) -> tuple[int, np.ndarray] | None:
    """Bisect for the first number of steps after which something is bad: that number, and where it is.

    >>> first_bad_step(lambda steps: np.array([False, steps >= 5]), 8)
    (5, array([1]))
    """
    if not bad_after(num_steps).any():
        return None
    good, bad = 0, num_steps
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (good, middle) if bad_after(middle).any() else (middle, bad)
    return bad, np.argwhere(bad_after(bad))[0]
