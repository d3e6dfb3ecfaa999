"""Keeps snapshots fresh while somebody looks: one reader for all browsers, in threads that leave time to others."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path
from typing import Any

from consilience.deployment.processes import network_status
from consilience.engines.peers.settings import NodeSettings
from consilience.engines.peers.zenoh_transport import ask_status
from consilience.errors import ConsilienceError
from consilience.page.agents import Hearing
from consilience.page.places import Place, places
from consilience.page.reader import Reader
from consilience.page.snapshot import Snapshot

log = logging.getLogger("consilience.page")
_LOOK_SECONDS, _ASK_SECONDS = 1.0, 1.5
_REST = 60.0
"""How many times longer than the process computes for a look, and for the second after it in which browsers are told,
it rests: so the page takes less than 2 % of one processor. The first look at a place is not rested for."""
_FORGET_SECONDS, _UNWANTED_SECONDS = 5.0, 30.0
_MOST_WANTED = 24


class Watched:
    """One place, with its latest snapshot."""

    def __init__(self) -> None:
        self.hearing = Hearing()
        self.reader = Reader(self.hearing)
        self.snapshot: Snapshot | None = None
        self.version = 0
        self.trouble = ""
        self.last_wish = 0.0
        self.wanted: dict[str, float] = {}


class Watcher:
    """Reads what browsers look at, and nothing while there are none.

    Args:
        path: a run, a network, a node's file, or a directory of runs; it may not be there yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.stop = threading.Event()
        self._places: dict[str, Place] = {}
        self._watched: dict[str, Watched] = {}
        self._lock = threading.Lock()
        self._wake, self._hurry = threading.Event(), threading.Event()

    def start(self) -> None:
        """Begin to look and to ask."""
        for job in (self._look, self._ask):
            threading.Thread(target=job, daemon=True, name=f"consilience-page-{job.__name__}").start()

    def names(self) -> list[str]:
        """What there is to look at, as it was last found."""
        self._wake.set()
        return list(self._places)

    def newest(self) -> str | None:
        """Of several runs, the one in which something was written last."""
        return max(self._places, key=lambda name: _last_change(self._places[name]), default=None)

    def see(self, name: str, wanted: list[str]) -> Watched:
        """What is known of a place; it is kept fresh for as long as somebody asks."""
        now = time.monotonic()
        with self._lock:
            found = self._watched.setdefault(name, Watched())
        found.last_wish = now
        for label in wanted[:_MOST_WANTED]:
            if label not in found.wanted:
                self._hurry.set()
            found.wanted[label] = now
        self._wake.set()
        return found

    def report(self, name: str, number: int) -> Path | None:
        """One of the reports that a place has."""
        found = self._watched.get(name)
        there = found.snapshot.reports if found is not None and found.snapshot is not None else ()
        return there[number][1] if 0 <= number < len(there) else None

    def _look(self) -> None:
        while not self.stop.is_set():
            self._wake.wait()
            self._hurry.clear()
            began, is_first = time.process_time(), False
            try:
                self._places = places(self.path)
            except (ConsilienceError, OSError) as error:
                log.warning("%s", error)
            for name, one in self._asked_for():
                is_first = is_first or one.snapshot is None
                self._refresh(one, name)
            if not self._asked_for():
                self._wake.clear()
            self.stop.wait(_LOOK_SECONDS)
            computed = time.process_time() - began
            if not is_first:
                self._hurry.wait(max(0.0, _REST * computed - _LOOK_SECONDS))

    def _refresh(self, one: Watched, name: str) -> None:
        """A new snapshot, or why there is none: files may change while they are read."""
        now = time.monotonic()
        one.wanted = {label: then for label, then in one.wanted.items() if now - then < _UNWANTED_SECONDS}
        try:
            seen = one.reader.snapshot(self._places[name], list(one.wanted))
            if seen != one.snapshot:
                one.snapshot, one.version = seen, one.version + 1
            one.trouble = ""
        except (ConsilienceError, OSError, ValueError, KeyError, IndexError) as error:
            one.trouble = f"{type(error).__name__}: {error}"
            log.info("%s cannot be read now: %s", name, one.trouble)

    def _ask(self) -> None:
        while not self.stop.is_set():
            began = time.monotonic()
            for name, one in self._asked_for():
                self._ask_nodes(one, self._places[name])
            self.stop.wait(max(_ASK_SECONDS, time.monotonic() - began))

    def _ask_nodes(self, one: Watched, place: Place) -> None:
        if place.own is None and place.network is None:
            return
        if place.run is not None:
            one.hearing.take([], time.monotonic())
            return
        try:
            one.hearing.take(ask(place), time.monotonic())
        except ConsilienceError as error:
            one.trouble = str(error)

    def _asked_for(self) -> list[tuple[str, Watched]]:
        """The places that somebody looked at just now."""
        now = time.monotonic()
        with self._lock:
            known = list(self._watched.items())
        return [(n, one) for n, one in known if n in self._places and now - one.last_wish < _FORGET_SECONDS]


def ask(place: Place, seconds: float = 1.0) -> list[dict[str, Any]]:
    """What the nodes of a place say of themselves; of one that does not answer, that it is not here."""
    if place.own is None:
        return network_status(place.network or place.path, seconds)
    settings = NodeSettings.load(place.own)
    answer = ask_status(settings, settings.tls, seconds)
    return [{"agent": settings.agent, "here": answer is not None, **(answer or {})}]


def _last_change(place: Place) -> float:
    runs = [place.run] if place.run else list(place.nodes.values())
    files = [run / name for run in runs for name in ("draws.zarr/zarr.json", "status.json")]
    return max((one.stat().st_mtime for one in files if one.is_file()), default=0.0)
