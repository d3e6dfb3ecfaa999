"""Time as a node sees it: how late it is, how to wait, how to do something beside its rounds.

Tests pass in a clock of their own, so that what depends on time happens in the same order every time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """A clock that never goes back."""

    def now(self) -> float:
        """Seconds since some moment."""

    def wait_for(self, changed: threading.Condition, over: Callable[[], bool], seconds: float) -> None:
        """Wait until `over()` is true, at most so long; `changed` is held, and notified when it may be so."""

    def sleep(self, wake: threading.Event, seconds: float) -> bool:
        """Wait so long, or until an event is set; whether it is."""

    def beside(self, job: Callable[[], object]) -> None:
        """Do something in a thread of its own."""


class SteadyClock:
    """The machine's own."""

    def now(self) -> float:
        """Seconds of the machine's steady clock."""
        return time.monotonic()

    def wait_for(self, changed: threading.Condition, over: Callable[[], bool], seconds: float) -> None:
        """Wait for a notification that makes `over()` true."""
        changed.wait_for(over, seconds)

    def sleep(self, wake: threading.Event, seconds: float) -> bool:
        """Wait for the event."""
        return wake.wait(seconds)

    def beside(self, job: Callable[[], object]) -> None:
        """A thread that ends with the process."""
        threading.Thread(target=job, daemon=True).start()
