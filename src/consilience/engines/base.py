"""What an engine is to the rest of the program: something that advances all agents by a segment of steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from consilience.plans import Plan
from consilience.problems import Parameters, Problem


class Segment(NamedTuple):
    """What a segment of steps leaves behind."""

    last_step: int
    """How many steps are complete after the segment."""
    draws: np.ndarray
    """`(draws, chains, agents, size)` positions of the draws completed in the segment."""
    metric_steps: np.ndarray
    """After how many steps the metrics were measured."""
    consensus_error: np.ndarray
    """`(measurements, chains)`: `Σ_i ‖w_i − w̄‖²`."""
    first_draw: int
    """The number of the first of the draws."""
    present: np.ndarray | None = None
    """`(draws, agents)`: whose data counted in each draw, if it was not always everybody's."""


class Engine(Protocol):
    """Advances a network of agents; states are opaque pytrees of arrays that can be checkpointed."""

    parameters: Parameters
    block_steps: int
    """Segments start at multiples of this, so that a resumed run is the same to the bit."""
    max_steps: int
    """The longest segment, a multiple of `block_steps`."""

    def __init__(self, problem: Problem, plan: Plan) -> None:
        """Check the problem at the start and prepare to run."""

    def initial_state(self) -> Any:
        """The state before the first step."""

    def compile(self) -> None:
        """Compile the program, so that sampling can be timed apart."""

    def advance(self, state: Any, first_step: int, num_steps: int) -> tuple[Any, Segment]:
        """Make `num_steps` steps (at most `max_steps`) from `first_step`."""

    def find_non_finite(self, state: Any, first_step: int, num_steps: int) -> tuple[int, int, int] | None:
        """`(step, chain, agent)` of the first non-finite position within the segment, if there is one."""


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
