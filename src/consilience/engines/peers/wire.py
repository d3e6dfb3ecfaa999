"""A node's words on the wire: what it says and asks, encoded; what it hears, decoded and checked.

Whatever arrives goes to the rounds, to the membership, or is counted and dropped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np

from consilience.engines.peers.agent_step import Arrays
from consilience.engines.peers.clock import Clock
from consilience.engines.peers.connections import Connections
from consilience.engines.peers.mailbox import MOST_BYTES
from consilience.engines.peers.membership import Membership
from consilience.engines.peers.messages import Codec, Message, Rejected, join
from consilience.engines.peers.rounds import Rounds
from consilience.engines.peers.transport import LONGEST_OBJECT

log = logging.getLogger("consilience.peers")
_ENVELOPE_BYTES = 65_536  # what several messages in one answer have beside their numbers
GONE = b"gone"
"""The answer to a question for a message that was made, and is no longer kept."""

Answers = dict[str, Callable[[int, bytes], bytes | None]]


class Wire(Connections):
    """What one node says, asks and hears.

    Args:
        agent: the node's number.
        codec: of its run.
        rounds: take the neighbours' messages.
        members: are told of who comes, goes, is done, or sends nonsense.
        entries: what all nodes of the network must have in common, to compare.
        clock: of the node.
    """

    def __init__(
        self, agent: int, codec: Codec, rounds: Rounds, members: Membership, entries: dict[str, Any], clock: Clock
    ) -> None:
        longest = max(codec.longest + MOST_BYTES, LONGEST_OBJECT) + _ENVELOPE_BYTES
        super().__init__(agent, codec.run, rounds.neighbours, members, entries, clock, longest, codec.longest)
        self.codec, self.rounds = codec, rounds
        self.gone: dict[int, int] = {}
        """By neighbour, the round that was asked for and that it no longer has."""
        self.answers: Answers = {"since": self._kept_since}

    def say(self, k: int, message: Arrays) -> None:
        """Publish the message of a round, and keep it for neighbours that may have to ask for it."""
        self.rounds.outbox.keep(k, message)
        content = self._encoded(k, message)
        transport = self._transport
        if transport is not None:
            transport.publish(content)
            self.counts["sent"] += 1
            self.counts["bytes_sent"] += len(content)

    def say_done(self) -> None:
        """Tell the neighbours that all rounds are made, by a message of the round after the last."""
        transport = self._transport
        if transport is not None:
            nothing = tuple(np.zeros(shape) for shape, _ in self.codec.arrays)
            transport.publish(self._encoded(self.codec.num_rounds, nothing))

    def _encoded(self, k: int, values: Arrays) -> bytes:
        durable = min(self.rounds.durable, k)
        return self.codec.encode(Message(self.agent, k, durable, values, self.rounds.heard(), self.rounds.edges.life))

    def ask_for_messages(self, number: int, since: int) -> bool:
        """Ask a neighbour for its messages since a round, and take them in; whether it answered."""
        answer = self.ask(number, f"since/{since}")
        if answer == GONE:
            self.gone[number] = since
            return True
        for one in self.codec.decode_all(answer or b"", number):
            self._take(number, one)
            self.counts["asked_for"] += isinstance(one, Message)
        return answer is not None

    def receive(self, number: int, content: bytes) -> None:
        """Take in what a neighbour published."""
        self.counts["bytes_received"] += len(content)
        self._last_sign[number] = self._clock.now()
        self._take(number, self.codec.decode(content, number))

    def _take(self, number: int, found: Message | Rejected) -> None:
        if isinstance(found, Message) and self.members.is_believed(number):
            self.counts["received"] += 1
            if found.round == self.codec.num_rounds:
                self.members.done.add(number)
            else:
                self.rounds.inbox.put(found)
            return
        self.counts["rejected"] += 1
        if isinstance(found, Rejected) and self.members.reject(number, found.reason) and found.other_run:
            self._clock.beside(lambda: self._compare_plans(number))

    def answer(self, what: str, content: bytes) -> bytes | None:
        """Answer a neighbour: the status, the plan, or what has a number behind it (`since/7`, `edge/2`)."""
        if what in ("status", "plan", "found"):
            return super().answer(what, content)
        kind, _, number = what.partition("/")
        if kind not in self.answers or not is_number(number):
            return None
        return self.answers[kind](int(number), content)

    def _kept_since(self, round_: int, content: bytes) -> bytes:
        made = self.rounds.round  # before the messages are looked at: one may be made meanwhile
        kept = self.rounds.outbox.since(round_)
        if round_ < made and (not kept or kept[0][0] > round_):
            log.error("agent %d is asked for its message of round %d, which it no longer has", self.agent, round_)
            return GONE
        return join(self._encoded(k, values) for k, values in kept)


def is_number(word: str) -> bool:
    """Whether a part of a key is a number that a node reads.

    >>> [is_number(word) for word in ("17", "", "-1", "²", "9" * 5000)]
    [True, False, False, False, False]
    """
    return word.isascii() and word.isdigit() and len(word) < 12
