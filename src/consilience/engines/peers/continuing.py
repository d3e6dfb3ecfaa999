"""How a node of a corrected sampler goes on without lost agents: what its steps, checkpoints and draws then need.

With the step after a loss, what flowed over the lost edge is undone (`flows.py`). As soon as news of an agent no
longer comes, those that remain are a network of their own: they share out the whole prior, gradient and noise are
scaled for their number, and the control variates of minibatches are those of their potentials. Coordinates, step size
and the exchanges of a step stay what they were. That is stable: without some edges the Laplacian's eigenvalues are no
larger, and between 0 and λ_max the polynomial of the whole graph has values from −θ (`Q⁺`: from 0) to 1. Only what it
leaves of the disagreement may be more.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from consilience.engines.peers.agent_step import AgentStep, Arrays
from consilience.engines.peers.edges import EdgeRecord
from consilience.engines.peers.flows import Flows
from consilience.engines.peers.membership import Membership
from consilience.engines.peers.rounds import Rounds
from consilience.kernel.tuning import Tuning
from consilience.warmup.variates import BatchGradients


class LossRecord(NamedTuple):
    """What a checkpoint holds of a node that continues without lost agents."""

    edges: EdgeRecord
    flows: np.ndarray
    """`(neighbours, chains, shared)`: what has flowed over each edge."""
    durable: np.ndarray
    """`(neighbours,)`: up to which round each neighbour's checkpoints are known to reach."""


class Continuing:
    """One node's part.

    Args:
        step: what the node computes, in the whole network.
        rounds: with the neighbours.
        members: who takes part.
    """

    def __init__(self, step: AgentStep, rounds: Rounds, members: Membership) -> None:
        self.rounds, self.members, self.flows = rounds, members, Flows(step)
        self._steps = {step.num_agents: step}
        self._whole = step
        self._numbers: tuple[AgentStep, Tuning | None, Tuning | None] = (step, None, None)

    def record(self) -> LossRecord:
        """A copy, for a checkpoint."""
        durable = np.array([self.rounds.inbox.durable[one] for one in self.rounds.neighbours], np.int64)
        return LossRecord(self.rounds.edges.record(), self.flows.ledger.copy(), durable)

    def restore(self, record: LossRecord, round_: int) -> None:
        """Resume from a checkpoint that was written before a round."""
        self.flows.ledger[:] = record.flows
        for number, durable in zip(self.rounds.neighbours, np.asarray(record.durable).tolist(), strict=True):
            self.rounds.inbox.durable[number] = durable
        self.members.present = self.rounds.edges.present(max(0, round_ - 1))

    def begin(self, sampler: Any) -> Any:
        """The sampler's state at the beginning of a step, without what came over edges that were lost."""
        return self.flows.without(sampler, self.rounds.edges.down())

    def step(self, tuning: Tuning | None) -> tuple[AgentStep, Tuning | None]:
        """The step among those that take part, and the numbers of a warm-up as it takes them."""
        count = int(self.members.present.sum())
        if count not in self._steps:
            self._steps[count] = self._whole.among(count)
        step = self._steps[count]
        if self._numbers[0] is not step or self._numbers[1] is not tuning:
            self._numbers = (step, tuning, step.tuned(self._anchored(step, tuning)))
        return step, self._numbers[2]

    def _anchored(self, step: AgentStep, tuning: Tuning | None) -> Tuning | None:
        """With the anchor's gradient as it is where so many share the prior."""
        if tuning is None or tuning.anchor is None or step is self._whole:
            return tuning
        return tuning._replace(anchor=BatchGradients(step.problem, step.plan).anchor(tuning.anchor.position))

    def exchanged(self, round_: int, said: Arrays, others: Arrays, numbers: Tuning | None) -> None:
        """Note what flowed in a round, and who takes part after it."""
        self.flows.exchange(said, others, numbers)
        self.members.count_present(self.rounds.edges.present(round_), round_)
