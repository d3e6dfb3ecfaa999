"""Who takes part in an epoch of the network's sums, and by which edges: everybody, until somebody is lost."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from consilience.engines.peers.masks import partners
from consilience.graphs import Graph, from_edges
from consilience.graphs.spanning import NOBODY, SpanningTree, spanning_tree


@dataclass(frozen=True)
class Participants:
    """The agents of an epoch.

    Attributes:
        agents: their numbers, ascending.
        edges: between them, that are in use.
        epoch: its number; 0 is the network as planned.
        step: with which the epoch begins.
        source: the agent from whose replica it begins.

    >>> some = Participants((0, 2, 5), ((0, 5), (2, 5)), epoch=1)
    >>> some.root, some.parent(0), some.children(5), some.neighbours(2)
    (5, 5, (0, 2), (5,))
    """

    agents: tuple[int, ...]
    edges: tuple[tuple[int, int], ...]
    epoch: int = 0
    step: int = 0
    source: int = 0

    @classmethod
    def everybody(cls, graph: Graph) -> Participants:
        """The network as planned."""
        return cls(tuple(range(graph.num_agents)), tuple((int(i), int(j)) for i, j in graph.edges))

    @classmethod
    def of(cls, note: Mapping[str, Any]) -> Participants:
        """What `note` made."""
        edges = tuple((int(i), int(j)) for i, j in note["edges"])
        return cls(tuple(note["agents"]), edges, note["epoch"], note["step"], note["source"])

    def note(self) -> dict[str, Any]:
        """All of it, for a checkpoint."""
        return asdict(self)

    @cached_property
    def _graph(self) -> Graph:
        """The same with numbers from 0 on."""
        place = {agent: number for number, agent in enumerate(self.agents)}
        return from_edges(len(self.agents), [(place[i], place[j]) for i, j in self.edges])

    @cached_property
    def _tree(self) -> SpanningTree:
        return spanning_tree(self._graph)

    @property
    def root(self) -> int:
        """Where sums are complete."""
        return self.agents[self._tree.root]

    def parent(self, agent: int) -> int | None:
        """To whom an agent reports; nobody's is the root."""
        found = self._tree.parent[self.agents.index(agent)]
        return None if found == NOBODY else self.agents[found]

    def children(self, agent: int) -> tuple[int, ...]:
        """Who reports to an agent."""
        return tuple(self.agents[child] for child in self._tree.children[self.agents.index(agent)])

    def neighbours(self, agent: int) -> tuple[int, ...]:
        """With whom it has an edge."""
        return tuple(sorted({one for edge in self.edges if agent in edge for one in edge} - {agent}))

    def partners(self, agent: int) -> tuple[int, ...]:
        """With whom it shares masks."""
        return tuple(self.agents[one] for one in partners(self._graph)[self.agents.index(agent)])

    def digest(self) -> bytes:
        """By which agents see that they mean the same."""
        return hashlib.sha256(json.dumps(self.note()).encode()).digest()[:16]

    def present(self, num_agents: int) -> np.ndarray:
        """`(num_agents,)`: who takes part."""
        found = np.zeros(num_agents, bool)
        found[list(self.agents)] = True
        return found


def reachable(agent: int, neighbours: Sequence[Sequence[int]], lost: dict[int, frozenset[int]]) -> set[int] | None:
    """Whom an agent reaches by edges that no end has lost; `None` while somebody on the way has not spoken.

    Args:
        agent: from where.
        neighbours: of every agent, in the network as planned.
        lost: by agent that has spoken, the neighbours it has lost.

    >>> line = [[1], [0, 2], [1]]
    >>> reachable(0, line, {0: frozenset(), 1: frozenset({2})})
    {0, 1}
    >>> reachable(0, line, {0: frozenset(), 1: frozenset()}) is None
    True
    """
    found, open_ = {agent}, [agent]
    while open_:
        one = open_.pop()
        for other in neighbours[one]:
            if other in lost[one] or other in found:
                continue
            if other not in lost:
                return None
            if one not in lost[other]:
                found.add(other)
                open_.append(other)
    return found
