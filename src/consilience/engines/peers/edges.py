"""The edges of a node that continues without lost neighbours: which are in use, and what has flowed over each.

An edge moves one end by `−F` and the other by `+F`, so the average of all agents stays where it is. When an edge is
lost, its ends may disagree about the last round in which it was used. Each end therefore keeps a ledger: the sum
`F_ij = Σ_k β_k a_ij (m_i − m_j)` of what it has subtracted from its own message because of the edge, part of its
checkpoints. `β_k` is the sampler's `edge_rate`; every array of a message has a ledger. Before an edge is used again
the ends compare ledgers. `F_ij + F_ji` is the amount by which the sum of the two has drifted; each end adds half of
it to its message and takes as much off its ledger. Whatever was lost on the way (a message, an answer, the memory of
a killed process), the next comparison finds it. An agent that has lost all its memory begins anew: it has another
`life` than before, by which both ends know that their ledgers have nothing to do with each other.

Corrected samplers compare nothing: they undo what flowed over an edge as soon as it is lost (`flows.py`).
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from consilience.engines.peers.mailbox import AHEAD, Arrays
from consilience.engines.peers.messages import LONGEST_LIFE, Message


class EdgeRecord(NamedTuple):
    """What a checkpoint holds of the edges."""

    ledger: tuple[np.ndarray, ...]
    """`(neighbours, chains, …)` for each array of a message, in double precision."""
    up: np.ndarray
    """`(neighbours,)`: whether the edge is in use."""
    heard: np.ndarray
    """`(agents,)`: the latest round of each agent that has reached this one."""
    returned: np.ndarray
    """`(neighbours,)`: the round in which each edge came back last; −1 if it was never lost."""
    lives: np.ndarray
    """`(1 + neighbours,)`: the own life, and that of each neighbour in which the edge was used."""


class Wish(NamedTuple):
    """What one end tells the other before an edge is used again."""

    ledger: Arrays
    life: int
    known: int


class Edges:
    """The edges of one node.

    One thread makes rounds, one answers neighbours that want an edge back, one asks for lost edges: a lock keeps
    ledgers and decisions together.

    Args:
        agent: the node's number.
        weights: of the edges, by the neighbours' numbers.
        shapes: of the arrays of a message.
        num_agents: of the whole network.
        compares: whether the ends of an edge that comes back compare what has flowed over it.
    """

    def __init__(
        self,
        agent: int,
        weights: Mapping[int, float],
        shapes: Sequence[tuple[int, ...]],
        num_agents: int,
        compares: bool = True,
    ) -> None:
        self._lock = threading.Lock()
        self._agent, self._weights, self._num_agents = agent, dict(weights), num_agents
        self._compares = compares
        self._ledger: dict[int, Arrays] = {number: tuple(np.zeros(shape) for shape in shapes) for number in weights}
        self._up = dict.fromkeys(weights, True)
        self._again: dict[int, int] = {}
        self._owed: dict[int, Arrays] = {}
        self._asking: set[int] = set()
        self._jump = 0
        self.life = 1 + secrets.randbelow(LONGEST_LIFE)
        """A number of this agent's memory; with the memory it is lost."""
        self._lives = dict.fromkeys(weights, 0)
        self.returned = dict.fromkeys(weights, -1)
        """The round in which each edge came back last."""
        self.anew: dict[int, int] = {}
        """Edges that begin anew, as one end has lost its memory, and the round from which on."""
        self.heard = np.zeros(num_agents, np.int64)

    def record(self) -> EdgeRecord:
        """A copy, for a checkpoint."""
        with self._lock:
            kept = self._ledger.values() if self._compares else ()
            ledger = tuple(np.array(same) for same in zip(*kept, strict=True))
            return EdgeRecord(
                ledger, np.array([*self._up.values()], bool), self.heard.copy(),
                np.array([*self.returned.values()], np.int64), np.array([self.life, *self._lives.values()], np.int64),
            )  # fmt: skip

    def restore(self, record: EdgeRecord) -> None:
        """Resume from a checkpoint."""
        with self._lock:
            for place, number in enumerate(self._weights):
                if self._compares:
                    self._ledger[number] = tuple(np.array(same[place], float) for same in record.ledger)
            self._up = dict(zip(self._weights, np.asarray(record.up).tolist(), strict=True))
            self.heard = np.array(record.heard, np.int64)
            self.returned = dict(zip(self._weights, np.asarray(record.returned).tolist(), strict=True))
            self.life, *lives = np.asarray(record.lives).tolist()
            self._lives = dict(zip(self._weights, lives, strict=True))

    def used(self, round_: int) -> list[int]:
        """The neighbours whose messages a round needs; edges that come back in it are among them."""
        with self._lock:
            for number in [number for number, first in self._again.items() if first <= round_]:
                self._up[number] = True
                self.returned[number] = self._again.pop(number)
            return [number for number, up in self._up.items() if up]

    def is_up(self, number: int) -> bool:
        """Whether an edge is in use."""
        return self._up[number]

    def lose(self, number: int) -> None:
        """Use an edge no longer."""
        with self._lock:
            self._up[number] = False

    def down(self) -> list[int]:
        """The neighbours whose edges are not in use."""
        with self._lock:
            return [number for number, up in self._up.items() if not up]

    def lost(self) -> list[int]:
        """The neighbours whose edges are lost, and not about to come back."""
        with self._lock:
            return [number for number, up in self._up.items() if not up and number not in self._again]

    def settle(self, round_: int, message: Arrays, found: Mapping[int, Message], rate: float) -> Arrays:
        """What to mix with in a round, `(neighbours, chains, …)` in every array, noted in the ledgers.

        In the place of a neighbour that is not mixed with stands the agent's own message, which moves nothing; what
        the ledgers owe is added to it.

        Args:
            round_: the round.
            message: the agent's own.
            found: the messages of neighbours that came.
            rate: `β_k`; unused where nothing is compared.
        """
        others = tuple(np.empty((len(self._weights), *own.shape), own.dtype) for own in message)
        with self._lock:
            for place, (number, weight) in enumerate(self._weights.items()):
                targets, ledger = message, self._ledger[number]
                if self._up[number] and number in found:
                    targets = found[number].values
                    self.heard = np.maximum(self.heard, found[number].heard)
                    self._lives[number] = found[number].life
                    for own, target, moved in zip(message, targets, ledger, strict=True) if self._compares else ():
                        moved += rate * weight * (np.asarray(own, float) - target)
                owed = self._owed.pop(number, None)
                if owed is not None:
                    targets = tuple(one + due / (rate * weight) for one, due in zip(targets, owed, strict=True))
                    for moved, due in zip(ledger, owed, strict=True):
                        moved -= due
                for other, target in zip(others, targets, strict=True):
                    other[place] = target
            self.heard[self._agent] = round_
        return others

    def present(self, round_: int) -> np.ndarray:
        """`(agents,)`: whose data counts in a round. News of an agent takes fewer rounds than there are agents."""
        return round_ - self.heard < self._num_agents

    def ask(self, number: int) -> Wish | None:
        """What to send with the wish to use a lost edge again; `None` if that is settled already."""
        with self._lock:
            if self._up[number] or number in self._again:
                return None
            self._asking.add(number)
            return self._wish(number)

    def _wish(self, number: int) -> Wish:
        return Wish(_copied(self._ledger[number]), self.life, self._lives[number])

    def agreed(self, number: int, first: int, theirs: Wish | None, own_round: int, their_round: int) -> bool:
        """Take the answer to the wish to use an edge from round `first` on."""
        with self._lock:
            self._asking.discard(number)
            if theirs is None or own_round + 1 >= first or self._up[number] or number in self._again:
                return False
            self._come_back(number, first, theirs, own_round, their_round)
            return True

    def accept(self, number: int, first: int, theirs: Wish, own_round: int, their_round: int) -> Wish | None:
        """Answer a neighbour's wish to use an edge from round `first` on: with the own one, or not at all.

        If both ask at the same time, the wish of the one with the lower number holds.
        """
        with self._lock:
            if own_round + 1 >= first or (number in self._asking and self._agent < number):
                return None
            mine = self._wish(number)
            self._up[number] = False
            self._come_back(number, first, theirs, own_round, their_round)
            return mine

    def _come_back(self, number: int, first: int, theirs: Wish, own_round: int, their_round: int) -> None:
        self._again[number] = first
        if theirs.known not in (0, self.life) or self._lives[number] not in (0, theirs.life):
            self._begin_anew(number, first)
        elif self._compares:
            self._compare(number, theirs.ledger)
        self._lives[number] = theirs.life
        if their_round - own_round > AHEAD:
            self._jump = max(self._jump, their_round)

    def _begin_anew(self, number: int, first: int) -> None:
        """Forget what has flowed: one end has lost its memory, and its position with it."""
        self._ledger[number] = tuple(np.zeros_like(one) for one in self._ledger[number])
        self._owed.pop(number, None)
        self.anew[number] = first

    def _compare(self, number: int, theirs: Arrays) -> None:
        """Owe half of what the two ledgers do not agree on; the other half is the neighbour's to add."""
        both = zip(self._ledger[number], theirs, strict=True)
        self._owed[number] = tuple((mine + their) / 2 for mine, their in both)

    def must_jump(self, round_: int) -> bool:
        """Whether a neighbour is so far ahead that this node takes up its round."""
        return self._jump > round_

    def jump(self, round_: int) -> int:
        """The round to continue with; edges in use before a jump are lost by it."""
        with self._lock:
            if self._jump <= round_:
                return round_
            self._up = dict.fromkeys(self._up, False)
            return self._jump


def _copied(arrays: Arrays) -> Arrays:
    return tuple(one.copy() for one in arrays)
