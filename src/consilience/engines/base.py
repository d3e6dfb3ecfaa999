"""What an engine is to the rest of the program: something that advances all agents by a segment of steps."""

from __future__ import annotations

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
