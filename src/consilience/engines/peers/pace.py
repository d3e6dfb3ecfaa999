"""The pace of a node that has lost an edge: that of its whole neighbourhood, so that agents stay near each other.

An agent that waits for nobody is several times as fast. It would draw from a smaller posterior all the faster, and be
thousands of rounds ahead when its neighbours return.
"""

from __future__ import annotations

import threading

from consilience.engines.peers.clock import Clock

_WEIGHT = 0.02  # of a round in the average
_LONGEST = 4.0  # times the average counts a round at most
_LEAST_SLEEP = 0.005


class Pace:
    """Measures how long rounds take with all edges, and holds back rounds without one to the same time."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._began, self._ahead, self._whole = clock, clock.now(), 0.0, 0
        self.seconds: float | None = None
        """Of a round with all edges, on average; one in which somebody stalled counts little."""

    def begin(self) -> None:
        """Begin a round."""
        self._began = self._clock.now()

    def end(self, whole: bool, stop: threading.Event) -> None:
        """End a round, `whole` if no edge is lost; otherwise wait as long as a whole one would have taken."""
        took = self._clock.now() - self._began
        if whole:
            self._ahead = 0.0
            self._count(took)
        elif self.seconds is not None:
            self._ahead = max(0.0, self._ahead + self.seconds - took)
            if self._ahead > _LEAST_SLEEP:
                self._clock.sleep(stop, self._ahead)
                self._ahead = 0.0

    def _count(self, took: float) -> None:
        self._whole += 1
        if self._whole == 1:
            return  # others were still starting
        usual = took if self.seconds is None else self.seconds
        self.seconds = usual + max(_WEIGHT, 1 / self._whole) * (min(took, _LONGEST * usual) - usual)
