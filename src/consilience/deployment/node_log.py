"""What a node's log says between joining and being done: where it is, how fast, how long it will take."""

from __future__ import annotations

import logging

from consilience.engines.peers.clock import Clock, SteadyClock
from consilience.runs.loop import Progress, ShowProgress

log = logging.getLogger("consilience.peers")
_SAY_SECONDS = 10.0
_KNOWN_AFTER = 20


def progress_log(agent: int, clock: Clock | None = None) -> ShowProgress:
    """Logs how far a node is, at once and then every ten seconds."""
    time = clock or SteadyClock()
    said_at = -_SAY_SECONDS + time.now()

    def say(progress: Progress) -> None:
        nonlocal said_at
        if time.now() - said_at < _SAY_SECONDS or progress.evaluated:
            return
        said_at = time.now()
        log.info("agent %d: %s", agent, in_words(progress), extra={"round": progress.step})

    return say


def in_words(progress: Progress) -> str:
    """Where a node is.

    >>> in_words(Progress(1200, 20_000, 470.0, {"distance_to_neighbours": 0.0123}))
    'round 1,200 of 20,000, 470 rounds/s, 40 s left, distance to neighbours 0.0123'
    """
    told = [f"round {progress.step:,} of {progress.num_steps:,}"]
    if progress.step > _KNOWN_AFTER:  # the first rounds wait for others who start
        seconds = (progress.num_steps - progress.step) / progress.steps_per_second
        left = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min" if seconds < 7200 else (
            f"{seconds / 3600:.0f} h"
        )  # fmt: skip
        told += [f"{progress.steps_per_second:,.3g} rounds/s", f"{left} left"]
    if "distance_to_neighbours" in progress.metrics:
        told.append(f"distance to neighbours {progress.metrics['distance_to_neighbours']:.3g}")
    return ", ".join(told)
