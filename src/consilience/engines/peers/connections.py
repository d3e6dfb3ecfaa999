"""A node's connections: opened, opened anew when they are dead, and closed; questions, answers and last words.

What a node says and hears besides is the business of those who derive from it.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

from consilience.engines.peers.clock import Clock
from consilience.engines.peers.membership import Membership
from consilience.engines.peers.notices import Notice, read_notice
from consilience.engines.peers.transport import Connect, Handlers, Transport, read_object
from consilience.validation.differences import differing

log = logging.getLogger("consilience.peers")
_SLOWEST_LINE = 125_000  # bytes a second, with which a message must still come in time
_LEAST_SECONDS = 2.0
_CLOSE_SECONDS = 2.0
DEAF_SECONDS = 15.0
"""After so long without a word of a neighbour that is here, the connections are opened anew."""


class Connections:
    """The connections of one node.

    Args:
        agent: the node's number.
        run: the run's identity, a digest of its plan.
        neighbours: their numbers.
        members: are told of who comes, goes, is done, or sends nonsense.
        entries: what all nodes of the network must have in common, to compare.
        clock: of the node.
        longest: bytes that anything a neighbour sends has at most.
        longest_message: bytes that a message of a round has at most; it must come in time.
    """

    def __init__(
        self,
        agent: int,
        run: str,
        neighbours: Collection[int],
        members: Membership,
        entries: dict[str, Any],
        clock: Clock,
        longest: int,
        longest_message: int,
    ) -> None:
        self.agent, self.run, self.entries = agent, run, entries
        self.members, self._clock = members, clock
        self.counts: Counter[str] = Counter()
        self.status: Callable[[], dict[str, Any]] = dict
        self.told: Callable[[Notice], None] = lambda notice: None
        self.differs: Callable[[int, str], None] = lambda number, why: None
        """Called with a neighbour that belongs to another run, and why it does."""
        self.told_by: set[int] = set()
        """The neighbours that have said that the network cannot continue."""
        self.found: bytes | None = None
        """What all nodes found together before they sampled, for those that lack it."""
        self._longest = longest
        self._transport: Transport | None = None
        self._connect: Connect | None = None
        self._opening = threading.Lock()
        self._last_sign = dict.fromkeys(neighbours, 0.0)
        self._opened_at = 0.0
        self._ask_seconds = _LEAST_SECONDS + longest_message / _SLOWEST_LINE

    def receive(self, number: int, content: bytes) -> None:
        """Take in what a neighbour sent."""
        raise NotImplementedError

    def all_counts(self) -> Counter[str]:
        """Messages and bytes, and what was rejected or asked for."""
        return self.counts

    def answer(self, what: str, content: bytes) -> bytes | None:
        """Answer a neighbour: the status, the plan, or what was found before sampling."""
        if what == "status":
            return json.dumps({**self.status(), **self.traffic()}).encode()
        if what == "found":
            return self.found
        return json.dumps(self.entries).encode() if what == "plan" else None

    def traffic(self) -> dict[str, Any]:
        """Bytes, what had to be asked for, and why messages were rejected."""
        counts = self.all_counts()
        kinds = ("bytes_sent", "bytes_received", "asked_for")
        return {"traffic": {kind: counts[kind] for kind in kinds}, "rejections": dict(self.members.reasons)}

    def open(self, connect: Connect) -> None:
        """Join the network."""
        self._connect, self._opened_at = connect, self._clock.now()
        self._transport = connect(Handlers(self.receive, self.answer, self._change, self._hear_notice, self._longest))

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

    def ask(self, number: int, what: str, seconds: float | None = None, content: bytes | None = None) -> bytes | None:
        """What a neighbour answers, if it does in time."""
        transport = self._transport
        answer = None if transport is None else transport.ask(number, what, seconds or self._ask_seconds, content)
        if answer is not None:
            self._last_sign[number] = self._clock.now()
        return answer

    def ask_json(self, number: int, what: str) -> dict[str, Any]:
        """What a neighbour answers, if it is a JSON object; otherwise an empty one."""
        return read_object(self.ask(number, what) or b"")

    def tell(self, notice: Notice) -> None:
        """Tell the neighbours that the network cannot continue."""
        transport = self._transport
        if transport is not None:
            transport.notify(notice.encode(self.run))

    def _hear_notice(self, number: int, content: bytes) -> None:
        found = read_notice(content, self.run, len(self.members.present))
        if found is not None:
            self.told_by.add(number)
            self.told(found)

    def _compare_plans(self, number: int) -> bool:
        """Say in what a neighbour's plan differs; whether it said what it follows."""
        theirs = self.ask_json(number, "plan")
        if theirs.get("filling") and "filling" not in self.entries:
            log.info("agent %d is not sampling yet", number)
            return True
        different = differing(self.entries, theirs) if theirs else []
        where = ", ".join(different) or "what it does not say when it is asked"
        why = f"agent {number} follows another plan: it differs in {where}"
        log.error(why)
        if different:
            self.differs(number, why)
        return bool(theirs)
