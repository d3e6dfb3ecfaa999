"""What a reader remembers from one look to the next: draws, when steps were seen, what was measured."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from consilience.page.history import History, Line
from consilience.page.measures import across_agents, row_of
from consilience.page.snapshot import Network, network_of
from consilience.plans import Plan
from consilience.runs.directory import RunDirectory

_REST = 15.0
"""How many times longer than it took nobody measures again whether the draws suffice."""
_RATE_SECONDS = 30


class Memory:
    """Of one place."""

    def __init__(self) -> None:
        self._histories: dict[Path, History] = {}
        self._network: tuple[str, Network] | None = None
        self._steps: deque[tuple[float, int]] = deque(maxlen=60)
        self._rows: list[dict[str, Any]] = []
        self._across: dict[str, float | None] = {}
        self._next_look, self._looked_at = 0.0, -1

    def history(self, run: RunDirectory) -> History:
        """The draws of a run."""
        return self._histories.setdefault(run.path, History(run.path, run.plan.is_unison))

    def network(self, plan: Plan) -> Network:
        """The graph, laid out once."""
        key = plan.digest()
        if self._network is None or self._network[0] != key:
            self._network = (key, network_of(plan))
        return self._network[1]

    def rate(self, step: int, now: float) -> float | None:
        """Steps a second over the last half minute or so.

        >>> memory = Memory()
        >>> [memory.rate(step, now) for step, now in ((0, 100.0), (50, 110.0), (50, 135.0), (20, 136.0))]
        [None, 5.0, None, None]
        """
        if self._steps and step < self._steps[-1][1]:
            self._steps.clear()
        self._steps.append((now, step))
        then, first = next(one for one in self._steps if now - one[0] <= _RATE_SECONDS)
        return (step - first) / (now - then) if now > then and step > first else None

    def measured(
        self, lines: Mapping[str, Sequence[Line]], length: int
    ) -> tuple[list[dict[str, Any]], dict[str, float | None]]:
        """Rows of parameters and R-hat across agents; measured again when there are more draws, after a rest."""
        began, known = time.monotonic(), {row["label"] for row in self._rows}
        if length != self._looked_at and (began >= self._next_look or length < self._looked_at):
            self._rows = [row_of(label, some) for label, some in lines.items() if some]
            self._across = {label: across_agents(some) for label, some in lines.items()}
            self._looked_at, took = length, time.monotonic() - began
            self._next_look = time.monotonic() + _REST * took
        elif new := {label: some for label, some in lines.items() if some and label not in known}:
            self._rows += [row_of(label, some) for label, some in new.items()]
            self._across |= {label: across_agents(some) for label, some in new.items()}
        return (
            [row for row in self._rows if row["label"] in lines],
            {label: value for label, value in self._across.items() if label in lines},
        )
