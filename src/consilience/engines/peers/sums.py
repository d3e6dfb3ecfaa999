"""Sums over all agents, along the edges of the graph: one node's end.

    total(x) = Σ_i x_i   modulo 2^64

Words are 64-bit integers, so the bits of a sum depend neither on the graph, nor on the algorithm, nor on masks. On a
tree, parts go up from the leaves to the root and the total comes down; by flooding, every agent's part goes to
everybody, which takes fewer hops and more bytes. Two more words check every total (`sum_checks.py`).

The rules that a caller keeps:

- All agents call the same operations in the same order; `begin_draw` at the start of each draw or attempt.
- A draw has at least one total. While its first one is not complete, others may still be in the draw before, and
  `Retry` may ask to go back there: so the state at the start of a draw is kept until the next is `settled`, and a
  checkpoint holds the start of a settled draw together with `retries`.
- `Retry` (or `Disagreement`, which is one) is answered by `begin_draw(retry.draw, retry.attempt)` from that state.
"""

from __future__ import annotations

import hashlib
import threading
from typing import Literal, NamedTuple, Protocol

import numpy as np

from consilience.engines.peers.census import Census
from consilience.engines.peers.clock import Clock, SteadyClock
from consilience.engines.peers.participants import Participants
from consilience.engines.peers.sum_checks import NUM_CHECKS, require_words, with_checks, without_checks
from consilience.engines.peers.sum_lines import Standing, SumLines
from consilience.engines.peers.sum_messages import LONGEST_DIGEST, UNKNOWN, Label, Phase, SumCodec, SumMessage
from consilience.engines.peers.sum_waiting import Operation, Waiting
from consilience.engines.peers.transport import Transport
from consilience.errors import SumError
from consilience.graphs import Graph

Algorithm = Literal["tree", "flood"]


class Masking(Protocol):
    """What hides an agent's part; `masks.py` has the real one."""

    def of(self, epoch: int, number: int, size: int) -> np.ndarray:
        """`(size,)` words of uint64 to add to the own part; those of all agents cancel."""


class Place(NamedTuple):
    """Where a node can restart, for its checkpoint."""

    draw: int
    retries: tuple[int, ...]
    """The draws that were repeated by then."""


class Sums:
    """One node's end of the network's sums.

    Args:
        agent: the node's number.
        network: who talks to whom, or who takes part in an epoch.
        run: the run's identity, a digest of its plan.
        most_words: that an operation has at most.
        algorithm: `tree` or `flood`; the same at all agents.
        masks: hide the own part; at all agents or at none.
        census: agrees on who takes part when somebody is lost; without one, all wait for everybody.
        num_agents: of the whole network as planned; by default those that take part.
        clock: by which the node waits.
        ask_seconds: how long it waits before it asks for what is missing.
        stop: set by whoever wants it to end; it then raises `Stopped`.
    """

    def __init__(
        self,
        agent: int,
        network: Graph | Participants,
        run: str,
        most_words: int,
        *,
        algorithm: Algorithm = "tree",
        masks: Masking | None = None,
        census: Census | None = None,
        num_agents: int | None = None,
        clock: Clock | None = None,
        ask_seconds: float = 0.5,
        stop: threading.Event | None = None,
    ) -> None:
        who = Participants.everybody(network) if isinstance(network, Graph) else network
        self.participants, self.num_agents = who, len(who.agents)
        self.agent, self.algorithm, self.masks = agent, algorithm, masks
        self.parent, self.children = who.parent(agent), who.children(agent)
        kind = f"{run} {algorithm} {'plain' if masks is None else 'masked'}"
        codec = SumCodec(kind, num_agents or self.num_agents, most_words + NUM_CHECKS)
        self.lines = SumLines(agent, who.neighbours(agent), codec, who.epoch, clock or SteadyClock(), census)
        self.lines.parent = self.parent
        self.waiting = Waiting(self.lines, clock or SteadyClock(), ask_seconds, stop or threading.Event())
        self.waiting.may_lose = who.epoch > 0
        self._most_words = most_words
        self.durable = 0
        """This node will never fall back behind this number."""
        self.settled = Place(0, ())
        """The latest start of a draw to which nobody goes back any more: what a checkpoint may hold."""
        self._label = Label(who.epoch, 0, 0, 0)
        self._digest = b""

    # --- a node's part -----------------------------------------------------------------------------------------

    def attach(self, transport: Transport) -> None:
        """Use some connections; their `receive` and `answer` lead to `lines.receive` and `lines.answer`."""
        self.lines.transport = transport

    def start_at(self, place: Place) -> None:
        """Restart from a checkpoint: the neighbours are asked for what was missed; then `begin_draw` as usual."""
        label = Label(self._label.epoch, len(place.retries), place.draw, 0)
        self.lines.retries.merge(place.retries)
        self.lines.log.begin_at(label.number)
        self.durable, self.settled, self._label = label.number, place, label
        self.waiting.may_lose = True
        self._stand(label, UNKNOWN, 0)
        self.waiting.behind = bool(self.lines.neighbours)

    def keep_from(self, place: Place) -> None:
        """Say that a checkpoint holds this place: nobody need keep for this node what came before."""
        number = Label(self._label.epoch, len(place.retries), place.draw, 0).number
        self.durable = max(self.durable, number)

    # --- a sampler's part --------------------------------------------------------------------------------------

    @property
    def label(self) -> Label:
        """Of the next operation."""
        return self._label

    def begin_draw(self, draw: int, attempt: int, digest: bytes = b"") -> None:
        """Begin a draw from a state with this digest (16 bytes at most), to which `adopt` adds that of its words."""
        label = Label(self._label.epoch, attempt, draw, 0)
        label.require_possible()
        if label < self._label:
            raise SumError(f"{label} comes before {self._label}: begin draws and attempts in their order")
        self._label, self._digest = label, digest[:LONGEST_DIGEST]
        self._stand(label, UNKNOWN, 0)

    def starts_from(self, digest: bytes) -> None:
        """Say what the state is that all agents have adopted: later operations of the draw carry its digest."""
        self._digest = digest[:LONGEST_DIGEST]
        self._stand(self._label, UNKNOWN, 0)

    def total(self, words: np.ndarray) -> np.ndarray:
        """The sum of all agents' words, `(words,)` of uint64, modulo 2^64; the same at every agent."""
        part = with_checks(require_words(words, self._most_words))
        operation = self._begin(Phase.TOTAL, part.size)
        label = operation.label
        found = self.waiting.known(operation)
        if found is None:
            if self.masks is not None:
                part += self.masks.of(label.epoch, label.number, part.size)
            found = (self._by_tree if self.algorithm == "tree" else self._by_flooding)(operation, part)
        result = without_checks(found.words, self.num_agents, label)
        self._complete(found)
        if (self.settled.draw, len(self.settled.retries)) != (label.draw, label.attempt):
            self.settled = Place(label.draw, self.lines.retries.draws[: label.attempt])
        return result

    def adopt(self, words: np.ndarray | None = None) -> np.ndarray:
        """The root's words, at every agent; what the others give is checked for its size alone."""
        own = np.zeros(0, np.uint64) if words is None else require_words(words, self._most_words)
        if words is None and self.parent is None:
            raise SumError(f"agent {self.agent} is the tree's root, whose words all adopt: give them")
        operation = self._begin(Phase.ADOPT, own.size)
        found = self.waiting.known(operation)
        if found is None:
            if self.parent is None:
                found = self._message(Phase.ADOPT, operation.label, own, self.lines.durable_everywhere)
            else:
                found = self.waiting.until_result(operation, self.parent)
            self._send_down(found)
        self._complete(found)
        self._digest = hashlib.sha256(self._digest + found.words.tobytes()).digest()[:LONGEST_DIGEST]
        return found.words.astype(np.uint64)

    # --- the two algorithms ------------------------------------------------------------------------------------

    def _by_tree(self, operation: Operation, part: np.ndarray) -> SumMessage:
        """Add the children's parts, hand the sum to the parent, and hand down what comes back."""
        durable, label, inbox = self.durable, operation.label, self.lines.inbox

        def missing() -> list[int]:
            here = inbox.of_phase(Phase.PART)
            return [child for child in self.children if child not in here]

        found = self.waiting.until(operation, lambda: not missing(), missing, "part")
        if found is None:
            parts = inbox.of_phase(Phase.PART)
            for child in self.children:
                part = part + parts[child].words
                durable = min(durable, parts[child].durable)
            if self.parent is None:
                found = self._message(Phase.TOTAL, label, part, durable)
            else:
                self.lines.part = self._message(Phase.PART, label, part, durable)
                self.lines.send(self.parent, [self.lines.part])
                found = self.waiting.until_result(operation, self.parent)
        self._send_down(found)
        return found

    def _by_flooding(self, operation: Operation, part: np.ndarray) -> SumMessage:
        """Pass on every part that is new until those of all agents are there, and add them."""
        inbox, label, told = self.lines.inbox, operation.label, set[int]()
        inbox.put(self._message(Phase.FLOOD, label, part, self.durable))

        def news() -> dict[int, SumMessage]:
            return {origin: one for origin, one in inbox.of_phase(Phase.FLOOD).items() if origin not in told}

        while len(told) < self.num_agents:
            fresh = news()
            for number in self.lines.neighbours:
                self.lines.send(number, [one for one in fresh.values() if number not in (one.sender, one.origin)])
            told |= set(fresh)
            if len(told) < self.num_agents:
                found = self.waiting.until(operation, lambda: bool(news()), lambda: self.lines.neighbours, "totals")
                if found is not None:
                    return found
        parts = inbox.of_phase(Phase.FLOOD).values()
        total = np.zeros_like(part)
        for one in parts:
            total += one.words
        return self._message(Phase.TOTAL, label, total, min(one.durable for one in parts))

    # --- an operation's beginning and end ----------------------------------------------------------------------

    def _begin(self, phase: Phase, size: int) -> Operation:
        label = self._label
        self.waiting.require_going_on(label)
        self.lines.inbox.begin(label.number)
        self._stand(label, phase, size)
        return Operation(phase, label, self._digest, size)

    def _complete(self, found: SumMessage) -> None:
        """Keep a result for others, drop what nobody needs any more, and go on to the next operation."""
        lines, label = self.lines, self._label
        lines.log.keep(found._replace(sender=self.agent, label=label))
        lines.durable_everywhere = max(lines.durable_everywhere, found.durable)
        lines.log.forget_before(lines.durable_everywhere)
        lines.counts["operations"] += 1
        self.waiting.may_lose = True
        self._label = label._replace(operation=label.operation + 1)
        self._label.require_possible()
        self._stand(self._label, UNKNOWN, 0)

    def _stand(self, label: Label, kind: int, size: int) -> None:
        self.lines.at = Standing(label, kind, size, self._digest)

    def _send_down(self, found: SumMessage) -> None:
        self.lines.send_each(self.children, [found])

    def _message(self, phase: Phase, label: Label, words: np.ndarray, durable: int) -> SumMessage:
        return SumMessage(self.agent, phase, label, words, self._digest, min(durable, label.number), self.agent)
