"""How two neighbours come to use a lost edge again: one asks, the other grants, from a round that both will reach."""

from __future__ import annotations

import logging
import threading

from consilience.engines.peers.clock import Clock
from consilience.engines.peers.edges import Wish
from consilience.engines.peers.membership import Membership
from consilience.engines.peers.messages import Message
from consilience.engines.peers.rounds import Rounds
from consilience.engines.peers.wire import Wire

log = logging.getLogger("consilience.peers")
_ASK_AGAIN_SECONDS = 0.25
_SILENT_SECONDS = 2.0  # between questions to a neighbour that says nothing
_FIRST_MARGIN_SECONDS = 1.0
_LONGEST_MARGIN_SECONDS = 8.0
_LEAST_MARGIN = 4
BACK_SECONDS = 5.0
"""Within this time after both hear each other again, an edge is in use, if their answers take less than a second."""


class Rejoining:
    """Asks neighbours that are here for their lost edges, and grants theirs."""

    def __init__(self, rounds: Rounds, members: Membership, wire: Wire, clock: Clock) -> None:
        self._rounds, self._members, self._wire, self._clock = rounds, members, wire, clock
        wire.answers["edge"] = self.grant

    def ask_until(self, left: threading.Event) -> None:
        """Ask for lost edges again and again, until the node leaves the network.

        An edge is used again from a round that lies some seconds ahead, by the pace of rounds that were made; rounds
        that were leapt over are none.
        """
        margin = dict.fromkeys(self._rounds.neighbours, _FIRST_MARGIN_SECONDS)
        asked = dict.fromkeys(self._rounds.neighbours, -_SILENT_SECONDS)
        made, then = self._rounds.made, self._clock.now()
        while not self._clock.sleep(left, _ASK_AGAIN_SECONDS):
            now = self._clock.now()
            pace, made, then = (self._rounds.made - made) / (now - then), self._rounds.made, now
            for number in filter(self._may_return, self._rounds.edges.lost()):
                if self._rounds.inbox.heard_at[number] <= asked[number]:  # silent since
                    margin[number] = _FIRST_MARGIN_SECONDS
                    if now - asked[number] < _SILENT_SECONDS:
                        continue
                asked[number] = now
                won = self.ask(number, _LEAST_MARGIN + int(pace * margin[number]))
                longer = min(2 * margin[number], _LONGEST_MARGIN_SECONDS)
                margin[number] = _FIRST_MARGIN_SECONDS if won else longer
                if not won:
                    self._wire.revive(number)

    def _may_return(self, number: int) -> bool:
        here, believed = number in self._members.here, self._members.is_believed(number)
        return here and believed and self._rounds.round < self._rounds.end

    def ask(self, number: int, margin: int) -> bool:
        """Ask a neighbour to use an edge again, from a round on that both will reach only after its answer."""
        rounds, wire = self._rounds, self._wire
        own, latest = rounds.round, rounds.inbox.latest[number]
        first = rounds.first_from(max(own, latest) + margin)
        mine = rounds.edges.ask(number) if first < rounds.end else None
        if mine is None:
            return False
        wish = wire.codec.encode(Message(wire.agent, first, own, mine.ledger, rounds.heard(), mine.life, mine.known))
        answer = wire.ask(number, f"edge/{wire.agent}", content=wish)
        found = wire.codec.decode(answer, number) if answer else None
        theirs, their_round = None, 0
        if isinstance(found, Message) and found.round == first:
            theirs, their_round = Wish(found.values, found.life, found.known), found.durable
        won = rounds.edges.agreed(number, first, theirs, rounds.round, their_round)
        if won:
            self._tell(number, first)
        return won

    def grant(self, number: int, content: bytes) -> bytes | None:
        """Answer a neighbour that wants to use an edge again."""
        rounds, wire = self._rounds, self._wire
        known = number in rounds.neighbours and rounds.continues
        wish = wire.codec.decode(content, number) if known else None
        if not isinstance(wish, Message) or max(rounds.round, wish.round) >= rounds.end:
            return None
        if rounds.first_from(wish.round) != wish.round:  # an edge comes back with a step
            return None
        own = rounds.round
        theirs = Wish(wish.values, wish.life, wish.known)
        mine = rounds.edges.accept(number, wish.round, theirs, own, wish.durable)
        if mine is None:
            return None
        self._tell(number, wish.round)
        return wire.codec.encode(
            Message(wire.agent, wish.round, min(own, wish.round), mine.ledger, rounds.heard(), mine.life, mine.known)
        )

    def _tell(self, number: int, first: int) -> None:
        log.info("agent %d uses the edge to agent %d again from round %d", self._wire.agent, number, first)
