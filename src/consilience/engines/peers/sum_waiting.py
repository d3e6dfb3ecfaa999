"""How a node waits in an operation: for what it lacks, asking for it now and then, and never for what cannot come.

While it waits it looks at everything it hears about the same operation. Another state at the draw's start or another
number of words is an error. A neighbour that is past the operation without having its result, or that is in an
operation of another kind, took other decisions: that is a `Disagreement`, and all repeat the draw.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple, NoReturn

from consilience.engines.peers.clock import Clock
from consilience.engines.peers.membership import names
from consilience.engines.peers.sum_inbox import kind_of, size_of
from consilience.engines.peers.sum_lines import Answer, SumLines
from consilience.engines.peers.sum_messages import UNKNOWN, Label, Phase, SumMessage
from consilience.errors import Disagreement, NewEpoch, Retry, Stopped, SumError

log = logging.getLogger("consilience.peers")
_TELL_SECONDS = 10.0
_GONE_TIMES = 2


class Operation(NamedTuple):
    """What a node is about to do with the others."""

    phase: Phase
    """Of its result: `TOTAL` or `ADOPT`."""
    label: Label
    digest: bytes
    """Of the state at the draw's start."""
    size: int
    """How many words it has; 0 if only the root knows."""


class Waiting:
    """Waits for a node.

    Args:
        lines: to its neighbours.
        clock: by which it waits.
        ask_seconds: how long it waits before it asks.
        stop: set by whoever wants the node to end.
    """

    def __init__(self, lines: SumLines, clock: Clock, ask_seconds: float, stop: threading.Event) -> None:
        self.lines, self._clock, self._ask_seconds, self.stop = lines, clock, ask_seconds, stop
        self.behind = False
        """Whether the node was restarted and others may be ahead of it."""
        self._told_at = float("-inf")
        self._times_gone = 0
        self.passing: Callable[[], None] = lambda: None
        """Called with every sum, and now and then while one is waited for."""
        self.may_lose = False
        """Whether a neighbour that stays silent may be lost: not before all have begun together."""

    def require_going_on(self, label: Label) -> None:
        """Check that nobody wants this node to stop, or to go back."""
        if self.stop.is_set():
            raise Stopped(f"agent {self.lines.agent} was told to stop in {label}")
        if self.lines.inbox.failure is not None:
            raise self.lines.inbox.failure
        if self._census_is_called():
            raise NewEpoch(f"agents agree on who takes part; agent {self.lines.agent} was in {label}")
        draw = self._goes_back(label)
        if draw is not None:
            raise Retry(draw, label.attempt + 1)

    def _census_is_called(self) -> bool:
        census = self.lines.census
        return census is not None and census.epoch > self.lines.epoch

    def known(self, operation: Operation) -> SumMessage | None:
        """The operation's result if somebody told it; after a restart the neighbours are asked for it first."""
        while True:
            self._judge(operation)
            self.passing()
            found = self.lines.inbox.result(operation.phase)
            if found is not None or not self.behind:
                return found
            answers = self._ask(operation.label, self.lines.neighbours, "totals")
            if self.lines.inbox.result(operation.phase) is None:
                self._require_recoverable(operation.label, answers)
                if any(answer.at is not None and answer.at <= operation.label for answer in answers.values()):
                    self.behind = False
                else:
                    self._clock.sleep(self.stop, self._ask_seconds)
            self.require_going_on(operation.label)

    def until_result(self, operation: Operation, sender: int) -> SumMessage:
        """Wait for the operation's result, which a neighbour will send."""
        found = self.until(operation, lambda: False, lambda: [sender], "totals")
        assert found is not None
        return found

    def until(
        self, operation: Operation, ready: Callable[[], bool], missing: Callable[[], Sequence[int]], what: str
    ) -> SumMessage | None:
        """Wait until the operation's result is there, which is returned, or until it is `ready`.

        Args:
            operation: what the node does.
            ready: whether what is waited for has come.
            missing: the agents whose messages are waited for.
            what: to ask these for; the others are asked for the result.
        """
        inbox, (phase, label, _, _), hurried = self.lines.inbox, operation, False

        def over() -> bool:
            return (
                ready() or inbox.result(phase) is not None or inbox.failure is not None or self._census_is_called()
                or self._goes_back(label) is not None or (inbox.passed_by() and not hurried)
            )  # fmt: skip

        while True:
            inbox.wait(over, self._ask_seconds)
            self.passing()
            self.require_going_on(label)
            self._judge(operation)
            found = inbox.result(phase)
            if found is not None or ready():
                return found
            hurried = True
            self._tell(label, missing())
            first = list(missing())
            answers = self._ask(label, first, what)
            if not ready() and inbox.result(phase) is None:
                others = [one for one in self.lines.neighbours if one not in first]
                self._require_recoverable(label, answers | self._ask(label, others, "totals"))

    def _goes_back(self, label: Label) -> int | None:
        """The draw to which all go back, if that is asked of a node that is at a label."""
        draw = self.lines.retries.next_draw(label.attempt)
        return draw if draw is not None and draw <= label.draw else None

    def _ask(self, label: Label, numbers: Sequence[int], what: str) -> dict[int, Answer]:
        """Ask some neighbours, and see from the answers whether they took other decisions."""
        answers = {}
        for number in numbers:
            answers[number] = answer = self.lines.ask(number, what, label)
            if not answer.came and self.may_lose and self.lines.census is not None:
                self.lines.census.heard_nothing(number)
            self.require_going_on(label)
            ahead = answer.at is not None and answer.at > label and answer.at.attempt == label.attempt
            if ahead and not answer.has_it:
                self._disagree(label, number)
        return answers

    def _require_recoverable(self, label: Label, answers: dict[int, Answer]) -> None:
        """Check that the result can still come: not if all answer, twice in a row, and it is gone for some."""
        gone = [number for number, answer in answers.items() if answer.gone]
        lost = bool(gone) and not any(answer.has_it or not answer.came for answer in answers.values())
        self._times_gone = self._times_gone + 1 if lost else 0
        if self._times_gone < _GONE_TIMES:
            return
        own = self.lines.agent
        raise SumError(
            f"agent {own} needs the result of {label}, which {names(gone)} no longer has, since every agent had a "
            f"checkpoint past it. The run directory of agent {own} was lost, damaged or replaced by an older one: "
            "restore it from a copy and start the node again; without a copy, move the run directories of all "
            "agents away and start anew"
        )

    def _judge(self, operation: Operation) -> None:
        """Compare what was heard about the operation with what this node does."""
        own, (phase, label, digest, size) = self.lines.agent, operation
        for message in self.lines.inbox.heard():
            sender = message.sender
            kind = kind_of(message)
            if sender == own or kind == UNKNOWN:
                continue
            if kind != phase:
                self._disagree(label, sender)
            if message.digest != digest:
                raise SumError(
                    f"agents {own} and {sender} do not start draw {label.draw:,} from the same state: one of them "
                    "was restored from another run's checkpoint, or runs another version; compare the versions and "
                    "start both nodes again"
                )
            if size and size_of(message) not in (size, 0):
                raise SumError(
                    f"in {label} agent {own} has {size:,} words and agent {sender} {size_of(message):,}: they do not "
                    "run the same program; install the same versions at both"
                )

    def _disagree(self, label: Label, number: int) -> NoReturn:
        """Tell all to repeat this draw, since a neighbour took other decisions in it."""
        self.repeat(label.draw, label, f"agents {self.lines.agent} and {number} took different decisions in {label}")

    def repeat(self, draw: int, label: Label, why: str) -> NoReturn:
        """Tell all to go back to the start of a draw, from where this node is."""
        self.lines.retries.add(draw, label.attempt)
        self.lines.spread_retries()
        first = self._goes_back(label)
        assert first is not None
        log.warning("%s: all repeat draw %d", why, first)
        raise Disagreement(first, label.attempt + 1, why)

    def _tell(self, label: Label, missing: Sequence[int]) -> None:
        """Say who is waited for, now and then."""
        now = self._clock.now()
        if now - self._told_at >= _TELL_SECONDS:
            self._told_at = now
            log.info("agent %d waits for %s in %s", self.lines.agent, names(missing), label)
