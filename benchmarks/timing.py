"""How time is taken: contestants in turn, the best of several repetitions of each.

Other work on a machine only ever makes a program slower, so the fastest of several repetitions is the nearest to
the program's own time; taking turns lets a slow spell of the machine hit everybody.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

Contestant = Callable[[], float]
"""Does its work once and returns the seconds for one step of it."""


def best_of_each(contestants: Mapping[str, Contestant], repetitions: int) -> dict[str, float]:
    """The fewest seconds per step of every contestant, who take turns: A B C, A B C, …"""
    best = dict.fromkeys(contestants, float("inf"))
    for _ in range(repetitions):
        for name, run in contestants.items():
            best[name] = min(best[name], run())
    return best


def seconds_of(work: Callable[[], object]) -> float:
    """Wall-clock seconds of one call."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
