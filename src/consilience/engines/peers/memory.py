"""A network in memory: nodes of one process, joined without sockets, whose lines can be cut.

What is published arrives at once, in the thread that publishes it. It lets tests decide what is lost, and when.
"""

from __future__ import annotations

import threading
from collections.abc import Collection

from consilience.engines.peers.transport import Connect, Handlers


class MemoryNetwork:
    """Lines between agents.

    Attributes:
        cut: pairs that hear nothing of each other.
        deaf: pairs (speaker, listener) whose connection is dead in that direction, until one of them connects anew.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._here: dict[int, tuple[Handlers, frozenset[int]]] = {}
        self.cut: set[frozenset[int]] = set()
        self.deaf: set[tuple[int, int]] = set()

    def connect(self, agent: int, neighbours: Collection[int]) -> Connect:
        """How one agent joins."""

        def join(handlers: Handlers) -> MemoryTransport:
            with self._lock:
                self.deaf -= {pair for pair in self.deaf if agent in pair}
                self._here[agent] = handlers, frozenset(neighbours)
                for number in self._joined(agent):
                    handlers.change(number, True)
                    self._here[number][0].change(agent, True)
            return MemoryTransport(self, agent)

        return join

    def reached(self, agent: int) -> list[tuple[int, Handlers]]:
        """The neighbours that hear an agent, and what they do with it."""
        with self._lock:
            near = self._joined(agent) if agent in self._here else []
            return [(number, self._here[number][0]) for number in near if self.hears(number, agent)]

    def hears(self, listener: int, speaker: int) -> bool:
        """Whether what one agent says reaches another."""
        return frozenset((speaker, listener)) not in self.cut and (speaker, listener) not in self.deaf

    def leave(self, agent: int) -> None:
        """Take an agent away; its neighbours see it go."""
        with self._lock:
            near = self._joined(agent) if agent in self._here else []
            for number in near:
                self._here[number][0].change(agent, False)
            self._here.pop(agent, None)

    def _joined(self, agent: int) -> list[int]:
        return [number for number in sorted(self._here[agent][1]) if number in self._here]


class MemoryTransport:
    """One agent's end of a network in memory."""

    def __init__(self, network: MemoryNetwork, agent: int) -> None:
        self._network, self._agent = network, agent

    def publish(self, content: bytes) -> None:
        """Hand a message to all neighbours that hear this agent."""
        for _, handlers in self._network.reached(self._agent):
            handlers.receive(self._agent, content)

    def send(self, neighbour: int, content: bytes) -> None:
        """Hand a message to one neighbour, if it hears this agent."""
        for number, handlers in self._network.reached(self._agent):
            if number == neighbour:
                handlers.receive(self._agent, content)

    def notify(self, content: bytes) -> None:
        """Hand a last word to all neighbours that hear this agent."""
        for _, handlers in self._network.reached(self._agent):
            handlers.notice(self._agent, content)

    def ask(self, neighbour: int, what: str, seconds: float, content: bytes | None = None) -> bytes | None:
        """What a neighbour answers; nothing if it does not hear the question."""
        for number, handlers in self._network.reached(self._agent):
            if number == neighbour:
                answer = handlers.answer(what, content or b"")
                return answer if self._network.hears(self._agent, neighbour) else None
        return None

    def close(self) -> None:
        """Leave the network."""
        self._network.leave(self._agent)
