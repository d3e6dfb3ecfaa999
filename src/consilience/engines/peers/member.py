"""What every node has as a member of its network, whatever it samples: when to stop and why, and whom to serve."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Generic, TypeVar

from consilience.engines.peers.clock import Clock
from consilience.engines.peers.connections import Connections
from consilience.engines.peers.membership import Membership
from consilience.engines.peers.notices import Notice
from consilience.engines.peers.settings import NodeSettings
from consilience.engines.peers.transport import Connect

log = logging.getLogger("consilience.peers")
Wired = TypeVar("Wired", bound=Connections)
Write = Callable[[Path, bytes], None]
"""Writes a file as a whole."""
_TELL_SECONDS = 0.3


class Member(Generic[Wired]):
    """A member of a network, with connections of some kind."""

    settings: NodeSettings
    time: Clock
    members: Membership
    wire: Wired
    stop: threading.Event
    notice: Notice | None = None
    """Why the network cannot continue, if somebody said so."""

    @property
    def neighbours(self) -> Collection[int]:
        """Their numbers."""
        return self.members.neighbours

    def stop_for(self, notice: Notice) -> None:
        """Stop, since the network cannot continue; the first reason counts."""
        if self.notice is None:
            self.notice = notice
            log.error("agent %d stops: %s", self.settings.agent, self.told)
        self.stop.set()

    @property
    def told(self) -> str:
        """Why the network cannot continue."""
        if self.notice is None:
            return ""
        whose = "" if self.notice.agent == self.settings.agent else f"agent {self.notice.agent} cannot continue: "
        return f"{whose}{self.notice.reason}"

    def spread(self, connect: Connect, seconds: float) -> None:
        """Tell the neighbours why the network cannot continue, until each has said it too or so long has passed."""
        assert self.notice is not None
        self.time.beside(lambda: self.wire.open(connect))  # beside: a relay that is away would hold it up
        deadline = self.time.now() + seconds
        while self.time.now() < deadline:
            self.wire.tell(self.notice)
            self.time.sleep(threading.Event(), _TELL_SECONDS)
            if self.wire.told_by.issuperset(self.neighbours):
                break
        self.wire.close()

    def linger(self, seconds: float) -> list[int]:
        """Serve neighbours that are not done for so long; those that are still not done."""
        deadline = self.time.now() + seconds
        while self.time.now() < deadline and not self.stop.is_set():
            for number in self._not_done():
                if self.wire.ask_json(number, "status").get("done") is True:
                    self.members.done.add(number)
            if not self._not_done():
                return []
            self.time.sleep(self.stop, 0.3)
        return self._not_done()

    def _not_done(self) -> list[int]:
        """The neighbours that may still need this node."""
        return sorted(set(self.neighbours) - self.members.done)
