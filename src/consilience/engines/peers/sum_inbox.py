"""What a node has heard about operations that it has not completed.

The threads of its connections put messages in, and one thread waits for them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection

import numpy as np

from consilience.engines.peers.clock import Clock
from consilience.engines.peers.mailbox import AHEAD
from consilience.engines.peers.sum_messages import Phase, SumMessage
from consilience.errors import SumError

RESULTS = (Phase.TOTAL, Phase.ADOPT)
"""Phases whose words are the same whoever sends them."""
_NOTHING: dict[Phase, dict[int, SumMessage]] = {}
_NOBODY: dict[int, SumMessage] = {}


class SumInbox:
    """Messages by number and phase.

    Args:
        neighbours: their numbers.
        clock: by which the node waits.
    """

    def __init__(self, neighbours: Collection[int], clock: Clock) -> None:
        self.changed = threading.Condition()
        self._clock = clock
        self._number = 0
        self._over: Callable[[], bool] | None = None  # what is waited for, while somebody waits
        self._kept: dict[int, dict[Phase, dict[int, SumMessage]]] = {}
        self.latest = dict.fromkeys(neighbours, -1)
        """The latest number that was heard of each neighbour."""
        self.failure: SumError | None = None
        """What was heard and cannot be, if something was."""

    def put(self, message: SumMessage) -> None:
        """Take a message in; what is behind is not kept, nor what is far ahead, which can be asked for again."""
        number, phase = message.label.number, message.phase
        with self.changed:
            if message.sender in self.latest:
                self.latest[message.sender] = max(self.latest[message.sender], number)
            if number < self._number:
                return
            kept = self._kept.setdefault(number, {}).setdefault(phase, {})
            who = 0 if phase in RESULTS else message.origin if phase == Phase.FLOOD else message.sender
            other = kept.setdefault(who, message)
            if phase == Phase.AT:
                kept[who] = message
            elif other is not message:
                self._compare(other, message)
            if len(self._kept) > 2 * AHEAD:
                del self._kept[max(self._kept)]
            if self._over is not None and self._over():  # the one who waits need not look at every message
                self.changed.notify()

    def _compare(self, one: SumMessage, other: SumMessage) -> None:
        """Two messages that must say the same."""
        if one.digest != other.digest or not np.array_equal(one.words, other.words):
            what = "the result" if one.phase in RESULTS else f"the part of agent {other.origin}"
            self.failure = self.failure or SumError(
                f"agents {one.sender} and {other.sender} tell two things about {what} in {one.label}: one of them "
                "computes with other data or another program, or lies; ask their operators"
            )

    def begin(self, number: int) -> None:
        """Begin an operation: what was heard of earlier ones is dropped."""
        with self.changed:
            self._number = number
            for old in [one for one in self._kept if one < number]:
                del self._kept[old]

    def result(self, phase: Phase) -> SumMessage | None:
        """The result of the operation that has begun, if somebody told it."""
        return self._kept.get(self._number, _NOTHING).get(phase, _NOBODY).get(0)

    def of_phase(self, phase: Phase) -> dict[int, SumMessage]:
        """What was heard in a phase of the operation that has begun, by sender (flooded parts: by origin)."""
        with self.changed:
            return dict(self._kept.get(self._number, _NOTHING).get(phase, _NOBODY))

    def heard(self) -> list[SumMessage]:
        """All that was heard about the operation that has begun."""
        with self.changed:
            return [one for kept in self._kept.get(self._number, _NOTHING).values() for one in kept.values()]

    def passed_by(self) -> bool:
        """Whether a neighbour is beyond the operation that has begun: what is missing will not come by itself."""
        return any(latest > self._number for latest in self.latest.values())

    def wait(self, over: Callable[[], bool], seconds: float) -> None:
        """Wait until `over()` is true, at most so long."""
        with self.changed:
            if over():
                return
            self._over = over
            try:
                self._clock.wait_for(self.changed, over, seconds)
            finally:
                self._over = None

    def wake(self) -> None:
        """Let who waits look again."""
        with self.changed:
            self.changed.notify()


def kind_of(message: SumMessage) -> int:
    """The kind of operation that a message speaks about: a total or an adoption."""
    if message.phase == Phase.AT:
        return int(message.words[0])
    return int(Phase.ADOPT if message.phase == Phase.ADOPT else Phase.TOTAL)


def size_of(message: SumMessage) -> int:
    """How many words the operation has that a message speaks about."""
    return int(message.words[1]) if message.phase == Phase.AT else message.words.size
