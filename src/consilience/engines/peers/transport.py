"""What a node asks of its connections: publish a message or send it to one, hear the neighbours', ask them something.

`zenoh_transport.py` is the real one; `memory.py` joins nodes of one process, for tests.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

LONGEST_OBJECT = 1_000_000
"""Bytes that a plan or a status has at most, as JSON."""


@dataclass(frozen=True)
class Handlers:
    """What a node does with what arrives; called from other threads.

    Attributes:
        receive: called with a neighbour's number and the bytes of its message, to all or to this node alone.
        answer: called with what a neighbour asks for (`since/7`) and what it sends along; returns bytes or `None`.
        change: called when a neighbour comes (`True`) or goes.
        notice: called with a neighbour's number and the bytes of its last word.
        longest: bytes that anything a neighbour sends has at most; what is longer need not be taken in.
    """

    receive: Callable[[int, bytes], None]
    answer: Callable[[str, bytes], bytes | None]
    change: Callable[[int, bool], None]
    notice: Callable[[int, bytes], None]
    longest: int


class Transport(Protocol):
    """The open connections of one node."""

    def publish(self, content: bytes) -> None:
        """Send a message to all neighbours that are connected."""

    def send(self, neighbour: int, content: bytes) -> None:
        """Send a message to one neighbour, if it is connected; no other gets it."""

    def notify(self, content: bytes) -> None:
        """Send a last word to all neighbours that are connected."""

    def ask(self, neighbour: int, what: str, seconds: float, content: bytes | None = None) -> bytes | None:
        """What a neighbour answers to `what`, or `None` if it does not within so many seconds."""

    def close(self) -> None:
        """Leave the network."""


Connect = Callable[[Handlers], Transport]
"""Opens a node's connections."""


def read_object(content: bytes) -> dict[str, Any]:
    """A JSON object that somebody sent; empty if it is none, whatever it is instead.

    >>> [read_object(content) for content in (b'{"done": true}', b"[1]", b"no", b"[" * 100_000, b"")]
    [{'done': True}, {}, {}, {}, {}]
    """
    try:
        found = json.loads(content) if len(content) < LONGEST_OBJECT else None
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
