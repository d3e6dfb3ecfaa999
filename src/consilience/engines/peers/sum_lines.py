"""How a node speaks with its neighbours about sums: it sends, asks, answers, and takes in what comes.

A neighbour that waits asks for `totals/K` or, if it is the parent and lacks this node's part, `part/K`. The answer
says where this node is and which draws were repeated, and brings results from number K on. A part itself is never in
an answer: it is sent once more, to the parent alone. Flooded parts are for everybody, so they are in the answer.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection
from typing import NamedTuple

import numpy as np

from consilience.engines.peers.census import Census, Statement
from consilience.engines.peers.clock import Clock
from consilience.engines.peers.mailbox import MOST_BYTES
from consilience.engines.peers.messages import Rejected, join
from consilience.engines.peers.retries import Retries
from consilience.engines.peers.sum_inbox import SumInbox
from consilience.engines.peers.sum_messages import UNKNOWN, Label, Phase, SumCodec, SumMessage
from consilience.engines.peers.totals_log import TotalsLog
from consilience.engines.peers.transport import Transport
from consilience.engines.peers.wire import GONE
from consilience.errors import SumError

log = logging.getLogger("consilience.peers")
_SLOWEST_LINE = 125_000  # bytes a second, with which an answer must still come in time
_LEAST_SECONDS = 2.0
_LONGEST_NUMBER = 20
QUESTION = "census"
"""By which a neighbour asks for all statements of the latest census."""


class Answer(NamedTuple):
    """What a neighbour answered."""

    at: Label | None
    """Where it is; `None` if it did not answer, or has not begun."""
    has_it: bool = False
    """Whether it knows the result that was asked for."""
    gone: bool = False
    """Whether it knew it once, and no longer."""
    came: bool = True
    """Whether it answered at all."""


class Standing(NamedTuple):
    """Where a node is in the network's operations."""

    label: Label
    kind: int = UNKNOWN
    """Of the operation, if it has begun."""
    size: int = 0
    digest: bytes = b""

    def message(self, agent: int, durable: int) -> SumMessage:
        """It as a message."""
        words = np.array([self.kind, self.size], np.uint64)
        return SumMessage(agent, Phase.AT, self.label, words, self.digest, durable, agent)


class SumLines:
    """A node's lines to its neighbours.

    Args:
        agent: the node's number.
        neighbours: theirs.
        codec: of the run.
        epoch: of the network; messages of an earlier one are dropped.
        clock: of the node.
        census: agrees on who takes part when somebody is lost, if agents continue then.
    """

    def __init__(
        self,
        agent: int,
        neighbours: Collection[int],
        codec: SumCodec,
        epoch: int,
        clock: Clock,
        census: Census | None = None,
    ) -> None:
        self.agent, self.neighbours, self.codec, self.epoch = agent, list(neighbours), codec, epoch
        self.transport: Transport | None = None
        self.log, self.inbox, self.retries = TotalsLog(), SumInbox(self.neighbours, clock), Retries()
        self.counts: Counter[str] = Counter()
        self.census = census
        if census is not None:
            census.wake = self.inbox.wake
        self.rejected: Callable[[int, Rejected], None] = self._log_rejected
        """Called with a neighbour's number and why its message was not taken."""
        self.part: SumMessage | None = None
        """What this node last sent its parent."""
        self.parent: int | None = None
        self.at = Standing(Label(epoch, 0, 0, 0))
        """Where this node is: every operation before is complete and in the log."""
        self.durable_everywhere = 0
        """Every agent has a checkpoint past this number."""
        self._ask_seconds = _LEAST_SECONDS + codec.longest / _SLOWEST_LINE

    @property
    def longest(self) -> int:
        """Bytes that anything a neighbour sends has at most."""
        return self.codec.longest * max(2, self.codec.num_agents) + MOST_BYTES

    # --- speaking ----------------------------------------------------------------------------------------------

    def send(self, neighbour: int, messages: Collection[SumMessage]) -> None:
        """Send some messages to one neighbour."""
        self.send_each((neighbour,), messages)

    def send_each(self, neighbours: Collection[int], messages: Collection[SumMessage]) -> None:
        """Send the same messages to each of some neighbours."""
        transport = self.transport
        if transport is None or not messages or not neighbours:
            return
        content = join([self.codec.encode(one, self.agent) for one in messages])
        for number in neighbours:
            self.counts["sent"] += 1
            self.counts["bytes_sent"] += len(content)
            transport.send(number, content)

    def spread_retries(self, but: int | None = None) -> None:
        """Tell the neighbours which draws are repeated."""
        for number in self.neighbours:
            if number != but:
                self.send(number, [self._repeated()])

    def _repeated(self) -> SumMessage:
        return SumMessage(
            self.agent, Phase.RETRY, Label(self.epoch, 0, 0, 0), np.array(self.retries.draws, np.uint64)
        )

    def ask(self, neighbour: int, what: str, label: Label) -> Answer:
        """Ask a neighbour for the result of an operation and later ones, and take in what it answers."""
        transport = self.transport
        said = None if transport is None else transport.ask(neighbour, f"{what}/{label.number}", self._ask_seconds)
        if said is not None and self.census is not None:
            self.census.heard(neighbour)
        if said is None:
            return Answer(None, came=False)
        self.counts["asked"] += 1
        if said == GONE and self.census is not None:
            self.census.call(self.census.epoch + 1)  # what was missed cannot be replayed: begin anew with the others
        if said == GONE:
            return Answer(None, gone=True)
        at, has_it = None, False
        for one in self.codec.decode_all(said, neighbour):
            if isinstance(one, SumMessage) and one.phase == Phase.AT and one.label.epoch == self.epoch:
                at = one.label
            elif isinstance(one, SumMessage) and one.phase in (Phase.TOTAL, Phase.ADOPT):
                has_it |= one.label == label
            self._take(neighbour, one)
        return Answer(at, has_it)

    def ask_census(self, neighbour: int) -> bool:
        """Ask a neighbour for the statements it knows, and hear them; whether it answered."""
        transport = self.transport
        said = None if transport is None else transport.ask(neighbour, QUESTION, self._ask_seconds)
        for one in self.codec.decode_all(said or b"", neighbour):
            if isinstance(one, SumMessage) and one.phase == Phase.CENSUS:
                self._hear(neighbour, one)
        return said is not None

    # --- listening ---------------------------------------------------------------------------------------------

    def receive(self, number: int, content: bytes) -> None:
        """Take in what a neighbour sent."""
        self.counts["received"] += 1
        self.counts["bytes_received"] += len(content)
        for one in self.codec.decode_all(content, number):
            if isinstance(one, SumMessage) and one.phase == Phase.CENSUS:
                self._hear(number, one)
            elif number in self.inbox.latest:
                self._take(number, one)

    def _take(self, number: int, found: SumMessage | Rejected) -> None:
        if isinstance(found, Rejected):
            self.counts["rejected"] += 1
            self.rejected(number, found)
        elif found.phase == Phase.CENSUS:
            self._hear(number, found)
        elif found.label.epoch > self.epoch and self.census is not None:
            if found.label.epoch > self.census.epoch:  # the others went on without this node, which was away
                self.census.call(found.label.epoch + 1)
        elif found.label.epoch > self.epoch:
            self.inbox.failure = SumError(
                f"agent {number} is in epoch {found.label.epoch} and agent {self.agent} in epoch {self.epoch}: the "
                f"network went on without agent {self.agent}; start its node again"
            )
            self.inbox.wake()
        elif found.label.epoch < self.epoch:
            self.counts["outdated"] += 1
        elif found.phase == Phase.RETRY:
            if self.retries.merge([int(draw) for draw in found.words]):
                self.spread_retries(but=number)
                self.inbox.wake()
        else:
            if found.phase in (Phase.PART, Phase.FLOOD) and found.label.attempt < len(self.retries.draws):
                self.send(number, [self._repeated()])
            self.inbox.put(found)

    def _hear(self, number: int, found: SumMessage) -> None:
        """Take in a statement, and pass on what is news."""
        census = self.census
        if census is None:
            return
        statement = Statement.of(found)
        news = census.hear(statement, direct=statement.agent == number)
        if statement.epoch < census.epoch:
            self.send(number, [one.message() for one in census.statements()])
        self.say(news, but=number)

    def say(self, statements: list[Statement], but: int | None = None) -> None:
        """Send statements to all neighbours of the network as planned, lost ones too: they may be back."""
        for number in () if self.census is None else self.census.neighbours:
            if number != but:
                self.send(number, [one.message() for one in statements])

    def _log_rejected(self, number: int, found: Rejected) -> None:
        if self.counts["rejected"] == 1:
            log.warning("a message of agent %d was rejected: %s", number, found.reason)

    def answer(self, what: str, content: bytes = b"") -> bytes | None:
        """Answer a neighbour; `None` if the question is none of these."""
        if what == QUESTION:
            statements = [] if self.census is None else self.census.statements()
            return join(self.codec.encode(one.message(), self.agent) for one in statements)
        kind, _, word = what.partition("/")
        if kind not in ("totals", "part") or not (word.isascii() and word.isdigit() and len(word) < _LONGEST_NUMBER):
            return None
        number, at = int(word), self.at  # before the log is looked at: an operation may be completed meanwhile
        if number < min(self.log.oldest, at.label.number):
            log.error("agent %d is asked for a total that it no longer has (%d)", self.agent, number)
            return GONE
        durable = self.durable_everywhere
        said = [at.message(self.agent, min(durable, at.label.number))]
        if len(self.retries.draws) > Label.of(self.epoch, number).attempt:
            said.append(self._repeated())
        said += [one._replace(durable=min(durable, one.label.number)) for one in self.log.since(number)]
        if number == at.label.number:
            said += [one for one in self.inbox.of_phase(Phase.FLOOD).values() if one.label.number == number]
            part = self.part
            if kind == "part" and part is not None and part.label.number == number and self.parent is not None:
                self.send(self.parent, [part])
        return join(self.codec.encode(one, self.agent) for one in said)
