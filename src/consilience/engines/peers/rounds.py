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
from consilience.plans import Plan


class NodeState(NamedTuple):
    """What a node's checkpoint holds."""

    sampler: Any
    """The sampler's state of this agent in every chain."""
    edges: EdgeRecord | None
    """Of a node that continues without lost neighbours."""


class Rounds:
    """Where an agent stands in its rounds.

    Args:
        step: what it computes.
        plan: the whole network's plan.
        continues: whether it continues without lost neighbours.
        clock: of the node, for when neighbours were heard.
    """

    def __init__(self, step: AgentStep, plan: Plan, continues: bool, clock: Clock) -> None:
        self.step, self.plan, self.continues, self._clock = step, plan, continues, clock
        self.neighbours = list(step.weights)
        shapes = [shape for shape, _ in step.message_shapes]
        self.edges = Edges(step.agent, step.weights, shapes, plan.num_agents)
        self.outbox, self.inbox = Outbox(), Inbox(self.neighbours, 0, clock)
        self.round, self.durable = 0, 0

    def initial_state(self) -> NodeState:
        """The state of this agent in every chain before the first round."""
        return self.state(self.step.initial_state())

    def state(self, sampler: Any) -> NodeState:
        """What a checkpoint holds now."""
        return NodeState(sampler, self.edges.record() if self.continues else None)

    def start_at(self, first_round: int, edges: EdgeRecord | None) -> None:
        """Take up the rounds at one of them."""
        self.round = self.durable = first_round
        self.inbox = Inbox(self.neighbours, first_round, self._clock)
        if edges is not None:
            self.edges.restore(edges)

    def skip_to_others(self, step: int) -> int:
        """The round to make next: the given one, or that of neighbours who have continued without this agent."""
        first = self.edges.jump(step)
        if first > step:
            self.round = first
            self.inbox.skip_to(first)
            self.outbox.forget_before(first)
        return first

    def mixed(self, k: int, state: Any, prepared: Prepared, message: Arrays) -> tuple[Any, Arrays]:
        """The sampler's state after round `k`, and what it was mixed with."""
        others = self._others(k, message, prepared)
        after = self.step.finish(state, prepared, message, others)
        self.round = k + 1
        needed = [self.inbox.durable[number] for number in self.neighbours if self.edges.is_up(number)]
        self.outbox.forget_before(min(needed, default=self.round))
        return after, others

    def _others(self, k: int, message: Arrays, prepared: Prepared) -> Arrays:
        """The neighbours' messages of a round, `(neighbours, chains, …)` in every array."""
        found = self.inbox.take(k)
        if self.continues:
            came = {number: (one.values, one.heard) for number, one in found.items()}
            return self.edges.settle(k, message, came, self.step.edge_rate(prepared) or 0.0)
        if not found:
            return tuple(np.zeros((0, *own.shape), own.dtype) for own in message)
        return tuple(np.stack(same) for same in zip(*(one.values for one in found.values()), strict=True))

    def heard(self) -> np.ndarray:
        """The latest round of each agent that has reached this one, if anybody counts them."""
        return self.edges.heard if self.continues else np.zeros(0, np.int64)
