"""The sums that nodes make between steps of gossip: for the warm-up, and to agree that draws suffice.

Every meeting has a label that follows from the step, so that a node that restarts asks for the very totals it missed:

    2 k + 1    before the step after the first k: the start of the warm-up (k = 0), the question whether to stop
    2 k        with the k-th step behind: the end of a window

A checkpoint after `k` steps comes between the two. Numbers travel exactly (`kernel/limbs.py`); after a meeting all
adopt what the root made of the totals, so that processors that round differently go on with the same numbers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np

from consilience.engines.peers.clock import Clock
from consilience.engines.peers.gossip_and_sums import GossipAndSums, SumsLine
from consilience.engines.peers.mask_exchange import MaskExchange
from consilience.engines.peers.mask_keys import Registry
from consilience.engines.peers.masks import require_enough
from consilience.engines.peers.member import Write
from consilience.engines.peers.settings import NodeSettings
from consilience.engines.peers.sum_messages import Label
from consilience.engines.peers.sums import Place, Sums
from consilience.errors import Retry, SumError
from consilience.kernel.limbs import WEIGHTS, from_limbs, to_limbs
from consilience.plans import Plan

_NUMBERS_AT_ONCE = 4096
_MOST_WORDS = _NUMBERS_AT_ONCE * len(WEIGHTS)
LONGEST_SUM = 8 * (_MOST_WORDS + 16) + 1024
"""Bytes that a message about a sum has at most."""


class Meetings:
    """One node's part in them.

    Args:
        plan: the network's.
        settings: who and where the node is.
        run: the run's identity.
        clock: by which it waits.
    """

    def __init__(self, plan: Plan, settings: NodeSettings, run: str, clock: Clock) -> None:
        self.masked = plan.num_agents > 2 if plan.masked is None else plan.masked
        if self.masked:
            require_enough(plan.num_agents)
        self._plan, self._settings, self._run, self._clock = plan, settings, run, clock
        self._stop = threading.Event()
        self._masks: MaskExchange | None = None
        self._sums: Sums | None = None
        self._line: SumsLine | None = None
        self._has_keys = not self.masked
        self._draw = 0

    # --- joining, and what is kept -----------------------------------------------------------------------------

    def join(self, wire: GossipAndSums, step: int, kept: Path, stop: threading.Event) -> None:
        """Take part from a step on, until it is told to stop; files of earlier totals are in a directory."""
        plan, settings, self._stop = self._plan, self._settings, stop
        if self.masked:
            registry = Registry(self._run, plan.num_agents, settings.tls)
            key_file = settings.run / "mask.key"
            self._masks = MaskExchange(settings.agent, plan.graph, registry, key_file, self._clock)
        self._sums = sums = Sums(
            settings.agent, plan.graph, self._run, _MOST_WORDS, algorithm=plan.summation or "tree",
            masks=self._masks, clock=self._clock, ask_seconds=settings.ask_seconds, stop=self._stop,
        )  # fmt: skip
        self._line = SumsLine(wire, marked=False)
        if step > 0:
            sums.start_at(_place(step))
            files = {int(path.stem): path for path in kept.glob("*.totals")}
            for last in sorted((one for one in files if one <= step), reverse=True):
                sums.lines.log.load(files[last], sums.lines.codec, settings.agent)
        wire.join(sums, self._masks)

    def save(self, path: Path, first: int, last: int, write: Write) -> None:
        """Write the totals between two checkpoints to a file, if there are some."""
        lines = self.sums.lines
        since, before = _number(first), _number(last)
        if any(one.label.number < before for one in lines.log.since(since)):
            lines.log.save(path.with_suffix(".totals"), since, before, lines.codec, write)

    def will_not_fall_behind(self, step: int) -> None:
        """Let others forget what came before a checkpoint."""
        self.sums.keep_from(_place(step))

    @property
    def sums(self) -> Sums:
        """Once the node has joined."""
        assert self._sums is not None
        return self._sums

    # --- meetings ----------------------------------------------------------------------------------------------

    def before_step(self, step: int) -> None:
        """Sums that follow are made before the step after so many."""
        self._draw = 2 * step + 1

    def after_step(self, step: int) -> None:
        """Sums that follow are made with so many steps behind."""
        self._draw = 2 * step

    def total(self, values: np.ndarray) -> np.ndarray:
        """The sum over all agents of this one's numbers `(1, size)`, the same bits at every agent."""
        words = to_limbs(values)
        self._begin()
        parts = []
        for first in range(0, words.shape[1], _NUMBERS_AT_ONCE):
            part = words[:, first : first + _NUMBERS_AT_ONCE]
            parts.append(self._made(self.sums.total, part.reshape(-1)).reshape(part.shape))
        return from_limbs(np.concatenate(parts, 1))

    def adopted(self, values: np.ndarray) -> np.ndarray:
        """The root's numbers `(size,)`, to the bit."""
        words = np.ascontiguousarray(values, np.float64).view(np.uint64)
        self._begin()
        parts = [words[first : first + _NUMBERS_AT_ONCE] for first in range(0, words.size, _NUMBERS_AT_ONCE)]
        return np.concatenate([self._made(self.sums.adopt, part) for part in parts]).view(np.float64)

    def _begin(self) -> None:
        if not self._has_keys:
            assert self._masks is not None
            assert self._line is not None
            self._masks.collect(self._line, self._settings.ask_seconds, self._stop)
            self._has_keys = True
        if self.sums.label.draw != self._draw:
            self.sums.begin_draw(self._draw, 0)

    def _made(self, operation: Callable[[np.ndarray], np.ndarray], words: np.ndarray) -> np.ndarray:
        """What an operation gives; decisions follow from totals, so nothing is ever repeated."""
        try:
            return operation(words)
        except Retry as retry:
            raise SumError(
                f"agents took different decisions while they warmed up ({retry}): let all nodes run the same "
                "versions of Consilience, NumPy and JAX"
            ) from None


def _place(step: int) -> Place:
    """Where in the network's history a checkpoint after so many steps is."""
    return Place(2 * step + 1, ())


def _number(step: int) -> int:
    return Label(0, 0, 2 * step + 1, 0).number
