"""The connections of a node that samples in unison: what it says and hears goes to its sums and its mask keys."""

from __future__ import annotations

from collections import Counter
from typing import Any

from consilience.engines.peers.census import Census
from consilience.engines.peers.clock import Clock
from consilience.engines.peers.connections import Connections
from consilience.engines.peers.mailbox import MOST_BYTES
from consilience.engines.peers.mask_exchange import MaskExchange
from consilience.engines.peers.membership import Membership
from consilience.engines.peers.messages import Rejected
from consilience.engines.peers.sums import Sums
from consilience.engines.peers.transport import LONGEST_OBJECT

_ENVELOPE_BYTES = 65_536


class SumWire(Connections):
    """What one node says, asks and hears; a `Transport` for its sums that survives a connection.

    Args:
        agent: the node's number.
        run: the run's identity.
        members: are told of who comes, goes, or sends nonsense.
        entries: what all nodes must have in common, to compare.
        clock: of the node.
        longest: bytes that a message has at most.
    """

    def __init__(
        self, agent: int, run: str, members: Membership, entries: dict[str, Any], clock: Clock, longest: int
    ) -> None:
        most = max(longest * max(2, len(members.present)) + MOST_BYTES, LONGEST_OBJECT) + _ENVELOPE_BYTES
        super().__init__(agent, run, members.neighbours, members, entries, clock, most, longest)
        self._sums: Sums | None = None
        self._masks: MaskExchange | None = None
        self._census: Census | None = None
        self._compared: set[int] = set()
        """Neighbours of other runs that were asked for their plan."""

    def join(self, sums: Sums, masks: MaskExchange | None, census: Census | None = None) -> None:
        """Serve these sums and masks; the census hears of neighbours that are back."""
        self._sums, self._masks, self._census = sums, masks, census
        sums.attach(self)
        sums.lines.rejected = self._rejected
        if masks is not None:
            masks.rejected = self._rejected

    def _change(self, number: int, here: bool) -> None:
        super()._change(number, here)
        self._compared.discard(number)
        if here and self._census is not None:
            self._census.returned(number)

    def _rejected(self, number: int, found: Rejected) -> None:
        self.counts["rejected"] += 1
        self.members.reject(number, found.reason)
        if found.other_run and number not in self._compared:
            self._compared.add(number)
            self._clock.beside(lambda: self._compare(number))

    def _compare(self, number: int) -> None:
        if not self._compare_plans(number):  # it did not answer: its next message is another occasion
            self._compared.discard(number)

    def receive(self, number: int, content: bytes) -> None:
        """Take in what a neighbour sent."""
        self._last_sign[number] = self._clock.now()
        if self._masks is not None and self._masks.receive(number, content):
            return
        if self._sums is not None:
            self._sums.lines.receive(number, content)

    def answer(self, what: str, content: bytes) -> bytes | None:
        """Answer a neighbour: status, plan, totals, parts, mask keys."""
        found = super().answer(what, content)
        if found is None and self._masks is not None:
            found = self._masks.answer(what, content)
        return self._sums.lines.answer(what, content) if found is None and self._sums is not None else found

    def all_counts(self) -> Counter[str]:
        """Messages and bytes, and what was rejected."""
        return self.counts + (self._sums.lines.counts if self._sums is not None else Counter())

    # --- a transport -------------------------------------------------------------------------------------------

    def publish(self, content: bytes) -> None:
        """Nothing is for all."""
        raise NotImplementedError

    def send(self, neighbour: int, content: bytes) -> None:
        """Send a message to one neighbour, if it is connected."""
        transport = self._transport
        if transport is not None:
            transport.send(neighbour, content)

    def notify(self, content: bytes) -> None:
        """Send a last word to all neighbours that are connected."""
        transport = self._transport
        if transport is not None:
            transport.notify(content)

    def ask(self, number: int, what: str, seconds: float | None = None, content: bytes | None = None) -> bytes | None:
        """What a neighbour answers, if it does in time; a line that is dead is opened anew."""
        answer = super().ask(number, what, seconds, content)
        if answer is None:
            self.revive(number)
        return answer
