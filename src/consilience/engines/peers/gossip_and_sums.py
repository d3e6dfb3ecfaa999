"""The connections of a node that gossips and also takes part in sums over the network: one line for both.

Messages of gossip are published to all neighbours; parts and results of sums go to one of them, behind a mark by
which the other end tells them apart. Mask keys have a mark of their own.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from consilience.engines.peers.clock import Clock
from consilience.engines.peers.mask_exchange import MaskExchange
from consilience.engines.peers.membership import Membership
from consilience.engines.peers.messages import Codec, Rejected
from consilience.engines.peers.rounds import Rounds
from consilience.engines.peers.sums import Sums
from consilience.engines.peers.wire import Wire

MARK = b"sums of all"
"""What is sent about sums begins with it; a message of gossip begins with the length of its header, a small one."""


class GossipAndSums(Wire):
    """What one node says, asks and hears, in rounds and in sums.

    Args:
        agent: the node's number.
        codec: of its run's messages.
        rounds: take the neighbours' messages.
        members: are told of who comes, goes, is done, or sends nonsense.
        entries: what all nodes of the network must have in common, to compare.
        clock: of the node.
        longest_sum: bytes that a message about a sum has at most.
    """

    def __init__(
        self,
        agent: int,
        codec: Codec,
        rounds: Rounds,
        members: Membership,
        entries: dict[str, Any],
        clock: Clock,
        longest_sum: int,
    ) -> None:
        super().__init__(agent, codec, rounds, members, entries, clock)
        self._longest += longest_sum * max(2, len(members.present))
        self._sums: Sums | None = None
        self._masks: MaskExchange | None = None

    def join(self, sums: Sums, masks: MaskExchange | None) -> None:
        """Serve these sums and masks."""
        self._sums, self._masks = sums, masks
        sums.attach(SumsLine(self))
        sums.lines.rejected = self._reject
        if masks is not None:
            masks.rejected = self._reject

    def _reject(self, number: int, found: Rejected) -> None:
        self.counts["rejected"] += 1
        if self.members.reject(number, found.reason) and found.other_run:
            self._clock.beside(lambda: self._compare_plans(number))

    def receive(self, number: int, content: bytes) -> None:
        """Take in what a neighbour published, or sent to this node alone."""
        if self._masks is not None and self._masks.receive(number, content):
            return
        if not content.startswith(MARK):
            super().receive(number, content)
        elif self._sums is not None:
            self._last_sign[number] = self._clock.now()
            self._sums.lines.receive(number, content[len(MARK) :])

    def answer(self, what: str, content: bytes) -> bytes | None:
        """Answer a neighbour: what every node answers, totals, parts, mask keys."""
        found = super().answer(what, content)
        if found is None and self._masks is not None:
            found = self._masks.answer(what, content)
        return self._sums.lines.answer(what, content) if found is None and self._sums is not None else found

    def all_counts(self) -> Counter[str]:
        """Messages and bytes of both kinds, and what was rejected."""
        return self.counts + (self._sums.lines.counts if self._sums is not None else Counter())

    def send(self, neighbour: int, content: bytes) -> None:
        """Send something to one neighbour, if it is connected."""
        transport = self._transport
        if transport is not None:
            transport.send(neighbour, content)


class SumsLine:
    """A `Transport` for sums and mask keys, on a node's connections.

    Attributes:
        marked: whether what is sent gets the mark of sums.
    """

    def __init__(self, wire: GossipAndSums, marked: bool = True) -> None:
        self._wire, self.marked = wire, marked

    def publish(self, content: bytes) -> None:
        """Nothing is for all."""
        raise NotImplementedError

    def notify(self, content: bytes) -> None:
        """Nothing is a last word."""
        raise NotImplementedError

    def send(self, neighbour: int, content: bytes) -> None:
        """Send a message to one neighbour, if it is connected."""
        self._wire.send(neighbour, MARK + content if self.marked else content)

    def ask(self, neighbour: int, what: str, seconds: float, content: bytes | None = None) -> bytes | None:
        """What a neighbour answers, if it does in time; a line that is dead is opened anew."""
        answer = self._wire.ask(neighbour, what, seconds, content)
        if answer is None:
            self._wire.revive(neighbour)
        return answer

    def close(self) -> None:
        """The connections are the node's."""
