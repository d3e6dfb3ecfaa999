"""What the sites of a network find together before they sample: sums over all of them, and the union of their levels.

A node joins, tells its neighbours the levels that it knows of until it knows everybody's, and takes part in sums
(`sums.py`), masked where there are three agents or more. A node that has the result goes on to sample at once, and
then answers with it whoever asks: so one that was killed, or that lacks the last message, gets it from any neighbour.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from consilience.engines.peers.clock import Clock
from consilience.engines.peers.mask_exchange import MaskExchange
from consilience.engines.peers.mask_keys import Registry
from consilience.engines.peers.membership import Membership, names
from consilience.engines.peers.messages import Rejected
from consilience.engines.peers.settings import NodeSettings, neighbours_of
from consilience.engines.peers.sum_wire import SumWire
from consilience.engines.peers.sums import Sums
from consilience.engines.peers.transport import LONGEST_OBJECT, Connect, read_object
from consilience.errors import NetworkError, Retry, Stopped
from consilience.kernel.wide_sums import LIMBS, from_limbs, to_limbs
from consilience.plans import Plan

log = logging.getLogger("consilience.peers")
FOUND, LEVELS = "found", "levels"
"""What neighbours ask for: the result, and the levels that a node knows of."""
FILLING = "filling"
"""In the answer to `plan`: the node is still here."""
_TELL_SECONDS = 10.0
Levels = dict[str, list[str]]


def identity(plan: Plan) -> str:
    """What those who gather for a plan have in common."""
    return f"{plan.digest()} before sampling"


class GatheringWire(SumWire):
    """The connections of a node that gathers."""

    levels: Callable[[], bytes]
    found_elsewhere: Callable[[int], bool]

    def answer(self, what: str, content: bytes) -> bytes | None:
        """Answer a neighbour: also with the levels that are known."""
        return self.levels() if what == LEVELS else super().answer(what, content)

    def reject(self, number: int, found: Rejected) -> None:
        """Count what cannot be used, and say why."""
        self._rejected(number, found)

    def _rejected(self, number: int, found: Rejected) -> None:
        """A neighbour that speaks of another run may only be further on."""
        if found.other_run:
            self._clock.beside(lambda: self._doubt(number, found))
        else:
            super()._rejected(number, found)

    def _doubt(self, number: int, found: Rejected) -> None:
        if not self.found_elsewhere(number):
            super()._rejected(number, found)


class Gathering:
    """One node's part in what sites find together.

    Args:
        plan: the network's, whose digest all must have in common.
        settings: who and where the node is.
        key_file: where its mask key is, or will be.
        num_values: how many numbers are added at once at most.
        clock: by which it waits.
        stop: set by whoever wants the node to end.
    """

    def __init__(
        self, plan: Plan, settings: NodeSettings, key_file: Path, num_values: int, clock: Clock, stop: threading.Event
    ) -> None:
        self.plan, self.settings, self._key_file, self.time, self.stop = plan, settings, key_file, clock, stop
        self.agent, self.run = settings.agent, identity(plan)
        self.members = Membership(self.agent, neighbours_of(plan, self.agent), plan.num_agents)
        self._most_words = max(1, num_values) * LIMBS
        entries = {**plan.model_dump(mode="json"), FILLING: True}
        longest = 8 * (self._most_words + 16) + 1024
        self.wire = GatheringWire(self.agent, self.run, self.members, entries, clock, longest)
        self.wire.levels, self.wire.found_elsewhere = self._known_levels, self._ask_for_result
        self.wire.status = self._status
        self.result: dict[str, Any] | None = None
        """What a neighbour found that was quicker."""
        self._over = threading.Event()
        self._levels: dict[int, Levels] = {}
        self._sums: Sums | None = None

    # --- joining and leaving -----------------------------------------------------------------------------------

    def open(self, connect: Connect) -> None:
        """Join the network."""
        masked = self.plan.num_agents > 2 if self.plan.masked is None else self.plan.masked
        masks = None
        if masked:
            registry = Registry(self.run, self.plan.num_agents, self.settings.tls)
            masks = MaskExchange(self.agent, self.plan.graph, registry, self._key_file, self.time)
        self._sums = sums = Sums(
            self.agent, self.plan.graph, self.run, self._most_words, algorithm=self.plan.summation or "tree",
            masks=masks, clock=self.time, ask_seconds=self.settings.ask_seconds, stop=self._over,
        )  # fmt: skip
        self.wire.join(sums, masks)
        self.wire.open(connect)
        self.time.beside(self._look_for_result)
        if masks is not None:
            masks.collect(self.wire, self.settings.ask_seconds, self._over)
        sums.begin_draw(0, 0)

    def close(self) -> None:
        """Leave it."""
        self._over.set()
        self.wire.close()

    # --- what sites find together ------------------------------------------------------------------------------

    def total(self, values: np.ndarray) -> np.ndarray:
        """The sums over all sites of some numbers; the same bits at every site."""
        assert self._sums is not None
        while True:
            try:
                return from_limbs(self._sums.total(to_limbs(values)))
            except Retry as retry:
                self._sums.begin_draw(retry.draw, retry.attempt)

    def union(self, levels: Levels) -> Levels:
        """The levels of all sites, sorted: each node passes on what it knows until it knows everybody's."""
        if not levels:
            return {}
        if len(json.dumps(levels)) > LONGEST_OBJECT // (2 * self.plan.num_agents):
            raise NetworkError("the levels of this site are too many to be sent: list them in the codebook")
        self._levels[self.agent] = levels
        told_at = self.time.now()
        while missing := [one for one in range(self.plan.num_agents) if one not in self._levels]:
            for number in self.members.neighbours:
                self._take_levels(number, self.wire.ask_json(number, LEVELS), levels)
            if self._over.is_set():
                raise Stopped(f"agent {self.agent} was told to stop while it waited for levels")
            if self.time.now() - told_at > _TELL_SECONDS:
                told_at = self.time.now()
                log.info("agent %d waits for the levels of %s", self.agent, names(missing[:10]))
            self.time.sleep(self._over, self.settings.ask_seconds)
        return {name: sorted({level for own in self._levels.values() for level in own[name]}) for name in levels}

    def _known_levels(self) -> bytes:
        return json.dumps(
            {"run": self.run, LEVELS: {str(agent): own for agent, own in self._levels.items()}}
        ).encode()

    def _take_levels(self, number: int, said: dict[str, Any], like: Levels) -> None:
        """Take in what a neighbour knows, if it is what it should be."""
        known = said.get(LEVELS) if said.get("run") == self.run else None
        if said and known is None:
            self.wire.reject(number, Rejected("it belongs to another run", other_run=True))
        for word, levels in known.items() if isinstance(known, dict) else ():
            agent = int(word) if word.isascii() and word.isdigit() and len(word) < 9 else -1
            if 0 <= agent < self.plan.num_agents and agent not in self._levels and _is_levels(levels, like):
                self._levels[agent] = levels

    # --- a result that others have -----------------------------------------------------------------------------

    def _look_for_result(self) -> None:
        """Ask the neighbours now and then whether they have the result."""
        while not self._over.is_set():
            self.time.sleep(self._over, 4 * self.settings.ask_seconds)
            if self.stop.is_set():
                self._over.set()
            for number in self.members.neighbours:
                if not self._over.is_set():
                    self._ask_for_result(number)

    def _ask_for_result(self, number: int) -> bool:
        """Ask a neighbour for the result; whether it has it, and so is further on."""
        said = read_object(self.wire.ask(number, FOUND) or b"")
        if said.get("run") != self.run:
            return False
        if self.result is None:
            self.result = said
            self._over.set()
            if self._sums is not None:
                self._sums.lines.inbox.wake()
        return True

    def _status(self) -> dict[str, Any]:
        """What the node says of itself when it is asked."""
        return {
            "agent": self.agent, "round": 0, "num_rounds": self.plan.num_steps, "durable": 0, "done": False,
            **({"warming_up": True} if self.plan.sampler.tunes_itself else {"distance_to_neighbours": None}),
            "masked": self._sums is not None and self._sums.masks is not None, FILLING: True,
            "neighbours": {str(number): number in self.members.here for number in self.members.neighbours},
            "messages": {name: self.wire.all_counts()[name] for name in ("sent", "received", "rejected")},
        }  # fmt: skip


def _is_levels(found: Any, like: Levels) -> bool:
    """Whether what somebody sent is a list of texts for each column that is asked for."""
    return (
        isinstance(found, dict)
        and set(found) == set(like)
        and all(isinstance(own, list) and all(isinstance(one, str) for one in own) for own in found.values())
    )
