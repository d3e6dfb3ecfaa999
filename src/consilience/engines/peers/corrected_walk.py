"""The steps of a corrected sampler at a node: gradient and message, `K` exchanges with the neighbours, the update.

Every exchange is a round of its own; rounds are counted through the whole run. A step that was begun and not finished
is made anew after a restart, from the round of its first exchange: the messages are the same.

A node that continues without lost agents (`continuing.py`) does so once the warm-up is over; until then all wait.

In the windows of a warm-up an agent that diverges says finite numbers until the window ends (others could not go on
without), and remembers it: the window is then repeated by all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from consilience.engines.base import Alone, Gossiping, PlainForm, Segment, StateForm, Storage, Team, leaves_are_finite
from consilience.engines.peers.agent_step import AgentStep, Arrays
from consilience.engines.peers.continuing import Continuing, LossRecord
from consilience.engines.peers.measurements import Stopwatch
from consilience.engines.peers.meetings import Meetings
from consilience.engines.peers.pace import Pace
from consilience.engines.peers.rounds import Grid, Rounds
from consilience.engines.program import Stored
from consilience.kernel.limbs import LARGEST
from consilience.kernel.step import each
from consilience.kernel.tuning import Tuning
from consilience.plans import Plan
from consilience.problems import Problem
from consilience.samplers import Corrected
from consilience.warmup.stages import SETTLING_STEPS

_FARTHEST = 1e6  # what an agent says at most once it has diverged in a window


class Walk(NamedTuple):
    """What a node's checkpoint holds of its walk."""

    sampler: Any
    """The sampler's state of this agent in every chain, in the sampler's coordinates."""
    round: np.ndarray
    """How many exchanges were made."""
    diverged: np.ndarray
    """Whether numbers of this agent were not finite in this window."""
    usual: tuple[np.ndarray, np.ndarray]
    """`(neighbours,)` how far apart messages of each edge were at most when all was well, and from when on."""
    loss: LossRecord | None = None
    """Of a node that continues without lost agents."""


class Lines(NamedTuple):
    """What a walk asks of its node."""

    say: Callable[[int, Arrays], None]
    """Publish the message of a round."""
    wait: Callable[[int], bool]
    """Wait for the neighbours' messages of a round; `False` if the node is to stop."""
    doubt: Callable[[int], None]
    """Speak of messages of a step that were implausible."""
    is_over: Callable[[], bool]
    """Whether the node was told to stop."""
    pace: Pace
    """Holds back a node that has lost an edge."""
    stop: threading.Event
    """Set by whoever wants the node to end."""


class NodeWalk(Gossiping):
    """Walks one agent; a `Walker` for the warm-up (`engines/warmed.py`).

    Args:
        problem: what this agent knows.
        plan: the whole network's.
        step: what it computes.
        rounds: with the neighbours.
        lines: to them.
        meetings: makes sums; `None` if all numbers were given.
        continuing: without lost agents; `None` if nodes wait for them.
        storage: whose draws are stored.
    """

    team: Team = Alone()
    block_steps = 1
    segment_seconds = 2.0
    uses_up_state = False
    largest_number = LARGEST

    def __init__(
        self,
        problem: Problem,
        plan: Plan,
        step: AgentStep,
        rounds: Rounds,
        lines: Lines,
        meetings: Meetings | None,
        continuing: Continuing | None,
        storage: Storage,
        max_steps: int,
    ) -> None:
        assert isinstance(plan.sampler, Corrected)
        self.problem, self.plan, self.sampler, self.parameters = problem, plan, plan.sampler, step.parameters
        self.step, self.rounds, self.lines, self.meetings = step, rounds, lines, meetings
        self.continuing = continuing
        self.storage, self.max_steps = storage, max_steps
        self.form: StateForm = PlainForm(self.initial_state())
        self.phases, self.distance = Stopwatch(), np.zeros((0, plan.num_chains))
        self._diverged_at = 0
        self.sampling_began = 0
        """The round of the first step after the warm-up."""

    def data_digest(self) -> str:
        """Of its own shard."""
        return self.problem.fingerprint()

    def largest_curvature(self) -> None:
        """Its node knows it."""
        return None

    def initial_state(self) -> Walk:
        """Where the agent starts, in every chain."""
        return self._at(self.step.initial_state(), 0)

    def _at(self, sampler: Any, round_: int, diverged: bool = False) -> Walk:
        found = self.rounds.plausibility
        usual = (found.widest.copy(), found.first.copy())
        loss = None if self.continuing is None else self.continuing.record()
        return Walk(sampler, np.array(round_, np.int64), np.array(diverged), usual, loss)

    def compile(self) -> None:
        """Compile a step."""
        self.step.compile()

    # --- steps -------------------------------------------------------------------------------------------------

    def walked(
        self, state: Walk, tuning: Tuning | None, first_step: int, num_steps: int, stored: Stored
    ) -> tuple[Walk, Segment]:
        """Make steps with the neighbours; fewer if the node is told to stop meanwhile, or diverges."""
        numbers, count = self.step.tuned(tuning), self._exchanges(tuning)
        in_window = tuning is not None and stored.first < self.plan.burn_in
        draws, present, last, first_draw = [], [], first_step, stored.before(first_step)
        sampler, round_, diverged = state.sampler, int(state.round), bool(state.diverged)
        without = None if in_window else self.continuing
        self.look_ahead(state, tuning, first_step, in_window)
        for k in range(first_step, first_step + num_steps):
            self.lines.pace.begin()
            if without is not None:
                sampler = without.begin(sampler)
            made = self._stepped(k, round_, sampler, tuning, numbers, in_window)
            if made is None:
                break
            sampler, fine = made
            if not fine and not in_window:
                diverged, self._diverged_at = True, k + 1
                break
            diverged |= not fine
            round_, last = round_ + count, k + 1
            if last > stored.first and (last - stored.first) % stored.every == 0:
                draws.append(self.step.position(sampler, numbers))
                present.append(without.members.present if without is not None else ())
            self.phases.end("mix")
            if without is not None:
                self.lines.pace.end(not self.rounds.edges.lost(), self.lines.stop)
            if self.lines.is_over():
                break
        if self.meetings is not None:
            self.meetings.after_step(last)
        empty = np.zeros((0, self.plan.num_chains, 1, self.parameters.size), self.step.dtype)
        measured = last > first_step and len(self.distance) > 0
        return self._at(sampler, round_, diverged), Segment(
            last, np.stack(draws) if draws else empty, first_draw, np.array([last] if measured else [], int),
            dict.fromkeys(self.storage.metrics, self.distance if measured else self.distance[:0]),
            None if without is None else np.array(present, bool).reshape(-1, self.plan.num_agents),
        )  # fmt: skip

    def look_ahead(self, state: Walk, tuning: Tuning | None, step: int, in_window: bool) -> None:
        """Know in which rounds the steps begin that follow a state; in a warm-up nobody does."""
        if in_window:
            self.rounds.grid = None
            return
        self.rounds.grid = grid = Grid(step, int(state.round), self._exchanges(tuning))
        self.sampling_began = 0 if tuning is None else grid.round_of(self.plan.burn_in - SETTLING_STEPS)

    def _exchanges(self, tuning: Tuning | None) -> int:
        if tuning is not None:
            return int(tuning.exchanges)
        assert self.sampler.exchanges is not None
        return self.sampler.exchanges

    def _stepped(
        self, k: int, round_: int, sampler: Any, tuning: Tuning | None, numbers: Tuning | None, in_window: bool
    ) -> tuple[Any, bool] | None:
        """The sampler's state after a step, and whether all was finite; `None` if the step is not made."""
        self.phases.begin()
        without = None if in_window else self.continuing
        here, used = (self.step, numbers) if without is None else without.step(tuning)
        prepared = here.prepare(sampler, np.int32(k), used)
        message, fine = _sendable(self.step.message(sampler, prepared))
        self.phases.end("gradient")
        sofar, said = self.step.begin(message), message
        if without is not None:
            without.flows.begin(message)
        for exchange in range(round_, round_ + self._exchanges(tuning)):
            if not fine and not in_window:
                return sampler, False
            self.lines.say(exchange, said)
            self.phases.end("publish")
            if not self.lines.wait(exchange):
                return None
            self.phases.end("wait")
            others = self.rounds.exchanged(exchange, k, said)
            self.lines.doubt(k)
            if exchange == round_:
                self.distance = _squared(others, said)[None]
            if without is not None:
                without.exchanged(exchange, said, others, numbers)
            sofar, now = self.step.exchange(sofar, others, numbers)
            said, finite = _sendable(now)
            fine &= finite
        if without is not None:
            without.flows.end(numbers)
        return self.step.end(sampler, prepared, message, sofar, numbers), fine

    # --- what a warm-up asks -----------------------------------------------------------------------------------

    def placed(self, positions: np.ndarray) -> Walk:
        """At positions `(chains, 1, size)` in the sampler's coordinates; rounds are counted on, flows are not."""
        if self.continuing is not None:
            self.continuing.flows.ledger[:] = 0.0
        return self._at(each(self.sampler.init)(np.asarray(positions, self.step.dtype)), self.rounds.round)

    def positions(self, state: Walk) -> np.ndarray:
        """The positions in a state; no numbers if the agent has diverged."""
        found = np.asarray(each(self.sampler.position)(state.sampler))
        return np.full_like(found, np.nan) if state.diverged else found

    def total(self, values: np.ndarray) -> np.ndarray:
        """The sum over all agents."""
        assert self.meetings is not None
        return self.meetings.total(values)

    def adopted(self, values: np.ndarray) -> np.ndarray:
        """The root's numbers."""
        assert self.meetings is not None
        return self.meetings.adopted(values)

    def is_finite(self, state: Walk) -> bool:
        """Whether all numbers of the state are finite, and those that would have followed."""
        return not state.diverged and leaves_are_finite(state.sampler)

    def find_diverged(
        self, state: Walk, first_step: int, num_steps: int, tuning: Tuning | None = None
    ) -> tuple[int, int, int]:
        """Steps end at the first message that is not finite, so it is that of the last one."""
        return self._diverged_at or first_step + 1, 0, self.step.agent


def _sendable(message: Arrays) -> tuple[Arrays, bool]:
    """A message with finite numbers only, and whether it was so."""
    if all(np.isfinite(one).all() for one in message):
        return message, True
    return tuple(np.nan_to_num(one, nan=0.0, posinf=_FARTHEST, neginf=-_FARTHEST) for one in message), False


def _squared(others: Arrays, own: Arrays) -> np.ndarray:
    """`(chains,)` the squared distance to all neighbours."""
    return sum(
        ((np.asarray(theirs, float) - mine) ** 2).sum((0, *range(2, theirs.ndim)))
        for theirs, mine in zip(others, own, strict=True)
    )
