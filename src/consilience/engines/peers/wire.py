"""A node's words on the wire: what it says and asks, encoded; what it hears, decoded and checked.

Whatever arrives goes to the rounds, to the membership, or is counted and dropped.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from consilience.engines.peers.agent_step import Arrays
from consilience.engines.peers.clock import Clock
from consilience.engines.peers.mailbox import MOST_BYTES
from consilience.engines.peers.membership import Membership
from consilience.engines.peers.messages import Codec, Message, Rejected, join
from consilience.engines.peers.notices import Notice, read_notice
from consilience.engines.peers.rounds import Rounds
from consilience.engines.peers.transport import LONGEST_OBJECT, Connect, Handlers, Transport, read_object

log = logging.getLogger("consilience.peers")
_SLOWEST_LINE = 125_000  # bytes a second, with which a message must still come in time
_LEAST_SECONDS = 2.0
_CLOSE_SECONDS = 2.0
_ENVELOPE_BYTES = 65_536  # what several messages in one answer have beside their numbers
GONE = b"gone"
"""The answer to a question for a message that was made, and is no longer kept."""
DEAF_SECONDS = 15.0
"""After so long without a word of a neighbour that is here, the connections are opened anew."""

Answers = dict[str, Callable[[int, bytes], bytes | None]]


class Wire:
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
        self.agent, self.codec, self.entries = agent, codec, entries
        self.rounds, self.members, self._clock = rounds, members, clock
        self.counts: Counter[str] = Counter()
        self.status: Callable[[], dict[str, Any]] = dict
        self.told: Callable[[Notice], None] = lambda notice: None
        self.told_by: set[int] = set()
        """The neighbours that have said that the network cannot continue."""
        self.gone: dict[int, int] = {}
        """By neighbour, the round that was asked for and that it no longer has."""
        self.answers: Answers = {"since": self._kept_since}
        self._transport: Transport | None = None
        self._connect: Connect | None = None
        self._opening = threading.Lock()
        self._last_sign = dict.fromkeys(rounds.neighbours, 0.0)
        self._opened_at = 0.0
        self._ask_seconds = _LEAST_SECONDS + codec.longest / _SLOWEST_LINE

    def open(self, connect: Connect) -> None:
        """Join the network."""
        self._connect, self._opened_at = connect, self._clock.now()
        longest = max(self.codec.longest + MOST_BYTES, LONGEST_OBJECT) + _ENVELOPE_BYTES
        self._transport = connect(Handlers(self.receive, self.answer, self._change, self._hear_notice, longest))

    def close(self) -> None:
        """Leave it."""
        self._connect = None
        if self._opening.acquire(timeout=_CLOSE_SECONDS):  # who opens for longer than that ends with the process
            transport, self._transport = self._transport, None
            self._opening.release()
            if transport is not None:
                transport.close()

    def _change(self, number: int, here: bool) -> None:
        self._last_sign[number] = self._clock.now()
        self.members.change(number, here)

    def revive(self, number: int) -> None:
        """Open the connections anew if a neighbour is said to be here and nothing has come of it for long.

        A line may be dead in one direction, or for all but small messages; a new connection finds that out.
        """
        silent = self._clock.now() - max(self._last_sign[number], self._opened_at)
        said_here = number in self.members.here or self._transport is None
        if not said_here or silent < max(DEAF_SECONDS, 3 * self._ask_seconds) or self._opening.locked():
            return
        log.warning(
            "agent %d hears nothing of agent %d, which is said to be here: it connects anew", self.agent, number
        )
        self._opened_at = self._clock.now()
        self._clock.beside(self._open_anew)  # not here: a relay that is away would hold up the rounds

    def _open_anew(self) -> None:
        with self._opening:
            transport, self._transport, connect = self._transport, None, self._connect
            try:
                if transport is not None:
                    transport.close()
                if connect is not None:
                    self.members.here.clear()
                    self.open(connect)
            except Exception as error:  # a port that is taken, a file that is gone: it is said, and tried again later
                log.error("agent %d cannot connect: %s", self.agent, error)

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

    def ask(self, number: int, what: str, content: bytes | None = None) -> bytes | None:
        """What a neighbour answers, if it does in time."""
        transport = self._transport
        answer = None if transport is None else transport.ask(number, what, self._ask_seconds, content)
        if answer is not None:
            self._last_sign[number] = self._clock.now()
        return answer

    def ask_json(self, number: int, what: str) -> dict[str, Any]:
        """What a neighbour answers, if it is a JSON object; otherwise an empty one."""
        return read_object(self.ask(number, what) or b"")

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

    def tell(self, notice: Notice) -> None:
        """Tell the neighbours that the network cannot continue."""
        transport = self._transport
        if transport is not None:
            transport.notify(notice.encode(self.codec.run))

    def _hear_notice(self, number: int, content: bytes) -> None:
        found = read_notice(content, self.codec.run, len(self.members.present))
        if found is not None:
            self.told_by.add(number)
            self.told(found)

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

    def _compare_plans(self, number: int) -> None:
        theirs = self.ask_json(number, "plan")
        different = [name for name in self.entries if theirs.get(name) != self.entries[name]] if theirs else []
        log.error(
            "agent %d follows another plan: it differs in %s",
            number, ", ".join(different) or "what it does not say when it is asked",
        )  # fmt: skip

    def answer(self, what: str, content: bytes) -> bytes | None:
        """Answer a neighbour: the status, the plan, or what has a number behind it (`since/7`, `edge/2`)."""
        if what == "status":
            return json.dumps(self.status()).encode()
        if what == "plan":
            return json.dumps(self.entries).encode()
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
