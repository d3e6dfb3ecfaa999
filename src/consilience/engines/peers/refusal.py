"""A node that cannot even begin, as its plan or its data is refused: all it does is to tell its neighbours why."""

from __future__ import annotations

from consilience.engines.peers.clock import Clock, SteadyClock
from consilience.engines.peers.connections import Connections
from consilience.engines.peers.identity import common_entries, run_identity
from consilience.engines.peers.mailbox import MOST_BYTES
from consilience.engines.peers.member import Member
from consilience.engines.peers.membership import Membership
from consilience.engines.peers.notices import Notice
from consilience.engines.peers.settings import NodeSettings, neighbours_of
from consilience.plans import Plan


class DeafConnections(Connections):
    """Connections of a node that has no use for what others send."""

    def receive(self, number: int, content: bytes) -> None:
        """Nothing is taken in."""


class Refusal(Member[DeafConnections]):
    """In the place of a node that could not be made.

    Args:
        plan: the network's.
        settings: who and where the node would have been.
        clock: by which it waits.
        reason: why it cannot begin.
    """

    def __init__(self, plan: Plan, settings: NodeSettings, clock: Clock | None, reason: str) -> None:
        agent, self.settings, self.time = settings.agent, settings, clock or SteadyClock()
        self.members = Membership(agent, neighbours_of(plan, agent), plan.num_agents)
        self.wire = DeafConnections(
            agent, run_identity(plan, settings), self.members.neighbours, self.members,
            common_entries(plan, settings), self.time, MOST_BYTES, MOST_BYTES,
        )  # fmt: skip
        self.notice = Notice(agent, reason)
