"""What a cell has taken, over all attempts, and what it may: so many minutes, and the deaths of two processes."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from consilience.runs.files import disk_errors, read_json, write_json

_AGAIN = 5.0  # seconds after which the call to end is repeated, if it was not heard
_MOST_DEATHS = 2
_CLOCK = "seconds.json"


class OverdueError(Exception):
    """A cell has had its time. No error of ours, so that nobody who expects one takes it for another."""


class KilledError(Exception):
    """The process that made a cell went without a word, again and again."""


@contextmanager
def ended_after(minutes: float) -> Iterator[None]:
    """Raise `OverdueError` in what is done inside, once its time is over; only a main thread can.

    What runs in compiled code ends with the call that it is in.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        if frame is not None and "gc_callback" in frame.f_code.co_name:
            return  # JAX's, in which an error would be lost
        raise OverdueError(f"it took more than {minutes:g} minutes (--minutes)")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, 60 * minutes, _AGAIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def deaths_counted(directory: Path) -> Iterator[None]:
    """Refuse, by `KilledError`, what two processes died of; whoever is interrupted, or fails, has not died.

    A process that is killed, because memory is short for example, can say nothing: what it left is the number of
    attempts that began in this directory and have not ended.
    """
    place = directory / "attempts.json"
    before = read_json(place)["not_ended"] if place.is_file() else 0
    if before >= _MOST_DEATHS:
        raise KilledError(
            f"its process was killed {before} times; is memory short? Delete {directory.name}/attempts.json and "
            "result.json to try again"
        )
    with disk_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
        write_json(place, {"not_ended": before + 1})
    try:
        yield
    finally:
        place.unlink(missing_ok=True)


@contextmanager
def clocked(directory: Path) -> Iterator[None]:
    """Add the seconds that something takes, or took until it ended otherwise, to those of a directory."""
    began = time.monotonic()
    try:
        yield
    finally:
        seconds = seconds_in([directory]) + time.monotonic() - began
        with disk_errors(directory):
            directory.mkdir(parents=True, exist_ok=True)
            write_json(directory / _CLOCK, {"seconds": seconds})


def seconds_in(directories: Iterable[Path]) -> float:
    """What was clocked in directories, together."""
    places = [directory / _CLOCK for directory in directories]
    return float(sum(read_json(place)["seconds"] for place in places if place.is_file()))
