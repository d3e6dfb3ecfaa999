"""The rounds of one agent, without a network: what is wanted, what came, what to mix with, what is kept.

Nothing here waits, sends or looks at a clock.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from consilience.engines.peers.agent_step import AgentStep, Arrays, Prepared
from consilience.engines.peers.clock import Clock
from consilience.engines.peers.edges import EdgeRecord, Edges
from consilience.engines.peers.mailbox import Inbox, Outbox
from consilience.engines.peers.messages import NOBODY, Message
from consilience.engines.peers.plausibility import Plausibility, clipped, surely_within
from consilience.plans import Plan
from consilience.samplers import Corrected


class NodeState(NamedTuple):
    """What a node's checkpoint holds."""

    sampler: Any
    """The sampler's state of this agent in every chain."""
    edges: EdgeRecord | None
    """Of a node that continues without lost neighbours."""
    usual: tuple[np.ndarray, np.ndarray]
    """`(neighbours,)` how far apart the messages of each edge were at most when all was well, and from when on."""


class Grid(NamedTuple):
    """In which rounds steps begin: from one of them on, each has so many rounds.

    >>> grid = Grid(step=100, round=350, exchanges=4)
    >>> grid.round_of(101), grid.step_of(354), grid.step_of(355), grid.begins_step(355)
    (354, 101, 102, False)
    """

    step: int = 0
    round: int = 0
    exchanges: int = 1

    def round_of(self, step: int) -> int:
        """The first round of a step."""
        return self.round + (step - self.step) * self.exchanges

    def step_of(self, round_: int) -> int:
        """The first step that begins in a round or later."""
        return self.step - (self.round - round_) // self.exchanges

    def begins_step(self, round_: int) -> bool:
        """Whether a step begins in a round."""
        return self.round_of(self.step_of(round_)) == round_


class Rounds:
    """Where an agent stands in its rounds.

    Args:
        step: what it computes.
        plan: the whole network's plan.
        continues: whether it continues without lost neighbours.
        clips: whether it cuts implausible messages to what is plausible.
        clock: of the node, for when neighbours were heard.
    """

    def __init__(self, step: AgentStep, plan: Plan, continues: bool, clips: bool, clock: Clock) -> None:
        self.step, self.plan, self.continues, self.clips, self._clock = step, plan, continues, clips, clock
        self.neighbours = list(step.weights)
        shapes = [shape for shape, _ in step.message_shapes]
        compares = not isinstance(plan.sampler, Corrected)
        self.edges = Edges(step.agent, step.weights, shapes, plan.num_agents, compares)
        self.outbox, self.inbox = Outbox(), Inbox(self.neighbours, 0, clock)
        self.plausibility = Plausibility(len(self.neighbours), plan)
        self.doubted: list[tuple[int, float]] = []
        """Neighbours whose message of the last round was implausible, and how many times too far away."""
        self.round, self.durable, self.made = 0, 0, 0
        """Where it stands, from where it would recompute, and how many rounds it has made since it started."""
        self.grid: Grid | None = Grid()
        """In which rounds steps begin; `None` in a warm-up, in which nobody is lost."""

    def initial_state(self) -> NodeState:
        """The state of this agent in every chain before the first round."""
        return self.state(self.step.initial_state())

    def state(self, sampler: Any) -> NodeState:
        """What a checkpoint holds now."""
        return NodeState(sampler, self.edges.record() if self.continues else None, self._usual())

    def _usual(self) -> tuple[np.ndarray, np.ndarray]:
        return self.plausibility.widest.copy(), self.plausibility.first.copy()

    @property
    def end(self) -> int:
        """The round after the last one; 0 while that is not known."""
        return 0 if self.grid is None else self.grid.round_of(self.plan.num_steps)

    def first_from(self, round_: int) -> int:
        """The first round of a step that is this one or later."""
        assert self.grid is not None
        return self.grid.round_of(self.grid.step_of(round_))

    def start_at(self, first_round: int, state: NodeState | None) -> None:
        """Take up the rounds at one of them; the state is that of a checkpoint."""
        self.round = self.durable = first_round
        self.inbox = Inbox(self.neighbours, first_round, self._clock)
        if state is not None:
            widest, first = state.usual
            self.plausibility.widest, self.plausibility.first = np.array(widest, float), np.array(first, int)
            if state.edges is not None:
                self.edges.restore(state.edges)

    def skip_to_others(self, round_: int) -> int:
        """The round to make next: the given one, or that of neighbours who have continued without this agent."""
        first = self.edges.jump(round_)
        if first > round_:
            first = self.first_from(first)
            self.round = first
            self.inbox.skip_to(first)
            self.outbox.forget_before(first)
        return first

    def mixed(self, k: int, state: Any, prepared: Prepared, message: Arrays) -> tuple[Any, Arrays]:
        """The sampler's state after round `k`, and what it was mixed with."""
        rate = (self.step.edge_rate(prepared) or 0.0) if self.continues else 0.0
        others = self._others(k, k, message, rate)
        after = self.step.finish(state, prepared, message, others)
        self._complete(k)
        return after, others

    def exchanged(self, k: int, step: int, message: Arrays) -> Arrays:
        """What the neighbours said in round `k`, one of several in a step."""
        others = self._others(k, step, message, 0.0)
        self._complete(k)
        return others

    def _complete(self, k: int) -> None:
        self.round, self.made = k + 1, self.made + 1
        needed = [self.inbox.durable[number] for number in self.neighbours if self.edges.is_up(number)]
        self.outbox.forget_before(min(needed, default=self.round))

    def _others(self, k: int, step: int, message: Arrays, rate: float) -> Arrays:
        """The neighbours' messages of a round, `(neighbours, chains, …)` in every array."""
        for number, first in list(self.edges.anew.items()):
            self.plausibility.begin_anew(self.neighbours.index(number), self._step_of(first))
            del self.edges.anew[number]
        taken = self.inbox.take(k)
        found = {n: self._judged(step, message, one) for n, one in taken.items() if self.edges.is_up(n)}
        if self.continues:
            return self.edges.settle(k, message, found, rate)
        if not found:
            return tuple(np.zeros((0, *own.shape), own.dtype) for own in message)
        return tuple(np.array(same) for same in zip(*(one.values for one in found.values()), strict=True))

    def _judged(self, k: int, message: Arrays, one: Message) -> Message:
        """A neighbour's message as it is used: if it is implausible, noted, and cut if nodes do that."""
        place, found = self.neighbours.index(one.sender), self.plausibility
        limit = found.limit(place, k)
        if not found.is_learning(place, k) and surely_within(limit, message, one.values):
            return one
        distances = found.distances(place, k, message, one.values)
        back = self.edges.returned[one.sender]
        if back >= 0 and k < self._step_of(back) + found.length:  # they may have gone far apart meanwhile
            return one
        if distances.max() <= limit:
            return one
        self.doubted.append((one.sender, float(distances.max() / found.widest[place])))
        return one._replace(values=clipped(message, one.values, distances, limit)) if self.clips else one

    def _step_of(self, round_: int) -> int:
        """The step of a round in which an edge came back."""
        assert self.grid is not None
        return self.grid.step_of(round_)

    def heard(self) -> np.ndarray:
        """The latest round of each agent that has reached this one, if anybody counts them."""
        return self.edges.heard if self.continues else NOBODY
