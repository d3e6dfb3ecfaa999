"""A node of a corrected sampler, `kinetic` or `langevin`: gossip with several exchanges in a step, after a warm-up.

The warm-up is that of every engine (`engines/warmed.py`). Its windows are steps with the neighbours
(`corrected_walk.py`); what it needs of all agents are sums over the network (`meetings.py`), masked where there are
three agents or more. With all numbers given there is no warm-up, and there are no sums.

A node that is killed restarts from its checkpoint (in a window, or while it samples). It asks its neighbours for the
messages of rounds and for the totals that it missed, and ends with the same draws, to the bit. If nodes continue
without lost ones, they do so after the warm-up (`continuing.py`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from consilience.engines.base import Segment, StateForm
from consilience.engines.peers.clock import Clock
from consilience.engines.peers.continuing import Continuing
from consilience.engines.peers.corrected_walk import Lines, NodeWalk, Walk
from consilience.engines.peers.gossip_and_sums import GossipAndSums
from consilience.engines.peers.meetings import LONGEST_SUM, Meetings
from consilience.engines.peers.member import Write
from consilience.engines.peers.messages import Codec
from consilience.engines.peers.node import DISTANCE, Node
from consilience.engines.peers.rounds import NodeState
from consilience.engines.peers.settings import NodeSettings
from consilience.engines.peers.transport import Connect
from consilience.engines.peers.wire import Wire
from consilience.engines.program import Stored
from consilience.engines.warmed import Warmed, WarmedStepper
from consilience.errors import Stopped
from consilience.plans import Plan
from consilience.problems import Problem

_MOST_EXCHANGES = 10_000
_MOST_ROUNDS = 10**11 - 1  # as many digits as a question for a message may have


class CorrectedNode(Node):
    """The stepper of one agent; `problem` holds its own shard alone."""

    wire: GossipAndSums

    def __init__(self, problem: Problem, plan: Plan, settings: NodeSettings, clock: Clock | None = None) -> None:
        self.meetings: Meetings | None = None
        super().__init__(problem, plan, settings, clock)
        self.done, self.at_step = False, 0
        self._rounds_at = {0: 0}

    @property
    def most_rounds(self) -> int:
        """More than there can be: how many exchanges a step has is found later."""
        return min(self.plan.num_steps * _MOST_EXCHANGES, _MOST_ROUNDS)

    def _wire(self, codec: Codec, entries: dict[str, Any]) -> Wire:
        return GossipAndSums(self.settings.agent, codec, self.rounds, self.members, entries, self.time, LONGEST_SUM)

    def _form(self) -> StateForm:
        if self.plan.sampler.tunes_itself:
            self.meetings = Meetings(self.plan, self.settings, self.wire.run, self.time)
        lines = Lines(
            self.wire.say, self._wait, self._doubt, lambda: self.notice is not None, self.pace, self.stop
        )  # fmt: skip
        self.continuing = Continuing(self.step, self.rounds, self.members) if self.rounds.continues else None
        self.walk = NodeWalk(
            self.problem, self.plan, self.step, self.rounds, lines, self.meetings, self.continuing, self.storage,
            self.max_steps,
        )  # fmt: skip
        self.phases = self.walk.phases
        self.warmed = WarmedStepper(self.walk) if self.meetings is not None else None
        return self.walk.form if self.warmed is None else self.warmed.form

    # --- joining and leaving -----------------------------------------------------------------------------------

    def connect(self, connect: Connect, first_round: int, state: Any) -> None:
        """Join the network, to continue after so many steps; without a state, to serve others."""
        self.at_step = first_round
        if state is None:
            self.rounds.start_at(self.most_rounds, None)
        else:
            self._start_from(state, first_round)
        if self.meetings is not None:
            self.meetings.join(self.wire, first_round, self.settings.run / "outbox", self.stop)
        self.wire.open(connect)
        self._ask_for_lost_edges()

    def _start_from(self, state: Warmed | Walk, step: int) -> None:
        walk, loss = _walk_of(state), _walk_of(state).loss
        self.rounds.start_at(int(walk.round), NodeState(walk.sampler, loss and loss.edges, walk.usual))
        self._rounds_at = {step: int(walk.round)}
        warmed = state if isinstance(state, Warmed) else None
        self.walk.look_ahead(
            walk, warmed and warmed.tuning, step, in_window=warmed is not None and not warmed.stage.is_done
        )
        if self.continuing is not None and loss is not None:
            self.continuing.restore(loss, int(walk.round))

    def _may_lose(self) -> bool:
        """Once the warm-up is over."""
        return self.rounds.continues and self.rounds.grid is not None

    def _can_return(self, number: int, k: int) -> bool:
        """Who has no checkpoint from after the warm-up could not: others wait for it."""
        return k > 0 and self.rounds.inbox.durable[number] >= self.walk.sampling_began

    def finish(self) -> None:
        """Tell the neighbours that all steps are made."""
        self.done = True
        self.rounds.round = self.rounds.durable = self.most_rounds
        self.wire.say_done()

    # --- a stepper ---------------------------------------------------------------------------------------------

    def largest_curvature(self) -> float | None:
        """Of its own potential, where it starts; nobody needs it where a warm-up finds the step size."""
        return super().largest_curvature() if self.plan.sampler.feels_curvature else None

    def initial_state(self) -> Any:
        """Before the first step."""
        return (self.walk if self.warmed is None else self.warmed).initial_state()

    def compile(self) -> None:
        """Compile a step."""
        self.walk.compile()

    def advance(self, state: Any, first_step: int, num_steps: int) -> tuple[Any, Segment]:
        """Make steps with the neighbours; fewer if the node is told to stop meanwhile."""
        state, first_step = self._taken_up(state, first_step)
        num_steps = min(num_steps, self.plan.num_steps - first_step)
        if self.meetings is not None:
            self.meetings.before_step(first_step)
        try:
            after, segment = self._advanced(state, first_step, num_steps)
        except Stopped:  # inside a sum: what came before it is made again
            return state, self._nothing(first_step)
        self.at_step = segment.last_step
        self._rounds_at[self.at_step] = int(_walk_of(after).round)
        if len(self.walk.distance):
            self.distance = float(self.walk.distance.mean())
        return after, segment

    def _taken_up(self, state: Any, step: int) -> tuple[Any, int]:
        """The state and the step to continue with: those of neighbours who have gone on without this agent."""
        if not self._may_lose():
            return state, step
        walk = _walk_of(state)
        round_ = self._skipped(int(walk.round))
        if round_ == walk.round:
            return state, step
        assert self.rounds.grid is not None
        walk = walk._replace(round=np.array(round_, np.int64))
        return state._replace(walk=walk) if isinstance(state, Warmed) else walk, self.rounds.grid.step_of(round_)

    def _advanced(self, state: Any, first_step: int, num_steps: int) -> tuple[Any, Segment]:
        if self.warmed is not None:
            return self.warmed.advance(state, first_step, num_steps)
        return self.walk.walked(state, None, first_step, num_steps, Stored.of(self.plan))

    def _nothing(self, step: int) -> Segment:
        chains = self.plan.num_chains
        empty = np.zeros((0, chains, 1, self.parameters.size), self.step.dtype)
        return Segment(step, empty, self.plan.draws_after(step), np.zeros(0, int), {DISTANCE: np.zeros((0, chains))})

    def agree_to_stop(self, satisfied: bool) -> bool:
        """Whether the draws of all agents suffice: a sum of those whose do not."""
        if self.meetings is None:
            return False
        self.meetings.before_step(self.at_step)
        try:
            return float(self.meetings.total(np.array([[float(not satisfied)]]))[0]) == 0
        except Stopped:
            return False

    def found(self, state: Any) -> dict[str, Any]:
        """What the warm-up found."""
        return {} if self.warmed is None else self.warmed.found(state)

    def found_so_far(self, state: Any) -> dict[str, Any]:
        """What the warm-up found until now."""
        return {} if self.warmed is None else self.warmed.found_so_far(state)

    def is_finite(self, state: Any) -> bool:
        """Whether all numbers of the state are finite; a window that diverges is repeated."""
        return (self.walk if self.warmed is None else self.warmed).is_finite(state)

    def find_diverged(self, state: Any, first_step: int, num_steps: int) -> tuple[int, int, int] | None:
        """Steps end at the first message that is not finite."""
        return (self.walk if self.warmed is None else self.warmed).find_diverged(state, first_step, num_steps)

    # --- what is kept beside checkpoints -----------------------------------------------------------------------

    @property
    def oldest_kept(self) -> int:
        """No message of a round before this step is kept."""
        oldest = self.rounds.outbox.oldest
        return max((step for step, round_ in list(self._rounds_at.items()) if round_ <= oldest), default=0)

    def save_kept(self, path: Path, first: int, last: int, write: Write) -> None:
        """Write the messages and the totals between two checkpoints."""
        super().save_kept(path, self._rounds_at[first], self._rounds_at[last], write)
        if self.meetings is not None:
            self.meetings.save(path, first, last, write)

    def will_not_fall_behind(self, step: int) -> None:
        """Let others forget what came before."""
        self.rounds.durable = self._rounds_at[step]
        for old in [known for known in list(self._rounds_at) if known < step]:
            del self._rounds_at[old]
        if self.meetings is not None:
            self.meetings.will_not_fall_behind(step)

    # --- telling -----------------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """What the node says of itself when it is asked; its rounds are steps here."""
        own = {"round": self.plan.num_steps if self.done else self.at_step, "done": self.done}
        durable = min((step for step, at in list(self._rounds_at.items()) if at >= self.rounds.durable), default=0)
        more = {} if self.meetings is None else {
            "warming_up": self.at_step < self.plan.burn_in, "masked": self.meetings.masked
        }  # fmt: skip
        counts = self.wire.all_counts()
        messages = {name: counts[name] for name in ("sent", "received", "rejected")}
        return {**super().status(), **own, "durable": durable, **more, "messages": messages}


def _walk_of(state: Warmed | Walk) -> Walk:
    """The walk in a node's state."""
    return state.walk if isinstance(state, Warmed) else state
