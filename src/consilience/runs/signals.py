"""Ctrl-C and polite kills as events, so that what is under way ends well."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections.abc import Iterator
from types import FrameType

_NUMBERS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def stopped_by_signals(stop: threading.Event) -> Iterator[None]:
    """Let Ctrl-C and a polite kill set an event, at once; a second one ends the program."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()
        stop.set()

    previous = {number: signal.signal(number, ask) for number in _NUMBERS}
    try:
        with _heard_at_once(stop):
            yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _heard_at_once(stop: threading.Event) -> Iterator[None]:
    """Set the event also while the main thread is in a compiled program, where Python calls no handlers.

    Such a program may wait in a callback for an agent that is lost, and only the event ends that.
    """
    hears, says = socket.socketpair()
    says.setblocking(False)

    def listen() -> None:
        while heard := hears.recv(64):
            if any(number in _NUMBERS for number in heard):
                stop.set()

    listener = threading.Thread(target=listen, name="consilience-signals", daemon=True)
    listener.start()
    before = signal.set_wakeup_fd(says.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        says.close()
        listener.join()
        hears.close()
