"""How far a neighbour's messages may be from one's own: as far as they were in its first rounds, and some.

Every round an edge pulls both ends together by their difference, so a member that shifts what it says pulls in every
round anew. An edge's own history says what is usual: the widest distance in the first rounds after burn-in, times a
factor. Both ends compute it from the same two messages and so share one limit. Differences that are cut to it move
one end by as much as the other, the other way: the average of the honest ones stays theirs.
"""

from __future__ import annotations

import numpy as np

from consilience.engines.peers.agent_step import Arrays
from consilience.plans import Plan

FACTOR = 2.5
"""Times the widest distance of the first rounds is still plausible. For a single normal number that was seen a
hundred times independently this is 6.5 standard deviations: less than one false alarm in 10^10 rounds."""
_ROUNDING = 1e-6  # far more than the rounding of a sum of squares
_SMALLEST = 1e-280  # squares below lose digits
_MOST_ROUNDS = 1000
_LEAST_ROUNDS = 10


class Plausibility:
    """The limits of one node's edges.

    Args:
        num_neighbours: how many edges.
        plan: says from which round on distances are usual ones.
    """

    def __init__(self, num_neighbours: int, plan: Plan) -> None:
        self.length = min(_MOST_ROUNDS, max(_LEAST_ROUNDS, (plan.num_steps - plan.burn_in) // 10))
        """In how many rounds distances are taken for honest ones."""
        self.first = np.full(num_neighbours, plan.burn_in)
        """The first of them, for each edge; part of checkpoints."""
        self.widest = np.zeros(num_neighbours)
        """The widest distance of each edge in those rounds, over all chains; part of checkpoints."""

    def begin_anew(self, place: int, round_: int) -> None:
        """Learn an edge's distances again, from a round on: one end is a new one."""
        self.first[place], self.widest[place] = round_, 0.0

    def limit(self, place: int, round_: int) -> float:
        """How far the messages of an edge may be apart in a round."""
        known = round_ >= self.first[place] + self.length and self.widest[place] > 0
        return FACTOR * float(self.widest[place]) if known else np.inf

    def is_learning(self, place: int, round_: int) -> bool:
        """Whether an edge's distance in a round counts as an honest one."""
        return bool(self.first[place] <= round_ < self.first[place] + self.length)

    def distances(self, place: int, round_: int, own: Arrays, theirs: Arrays) -> np.ndarray:
        """`(chains,)` how far a neighbour's message is from the own one; learned from while it is time for that."""
        parts = [(np.asarray(a, float) - b).reshape(len(a), -1) for a, b in zip(theirs, own, strict=True)]
        apart = np.abs(np.concatenate(parts, 1))
        largest = apart.max(1, initial=0.0)
        scale = np.where(largest > 0, largest, 1.0)  # the squares of 1e200 are no numbers
        found = scale * np.sqrt(np.square(apart / scale[:, None]).sum(1))
        if self.is_learning(place, round_):
            self.widest[place] = max(self.widest[place], found.max())
        return found


def surely_within(limit: float, own: Arrays, theirs: Arrays) -> bool:
    """Whether messages are nearer than a limit in all chains together, and so in each: quick, and often enough."""
    if limit == np.inf:
        return True
    squares = 0.0
    for mine, other in zip(own, theirs, strict=True):
        apart = np.subtract(other, mine, dtype=float).ravel()
        squares += float(np.dot(apart, apart))
    return _SMALLEST < squares < (1 - _ROUNDING) * limit**2


def clipped(own: Arrays, theirs: Arrays, distances: np.ndarray, limit: float) -> Arrays:
    """A neighbour's message, drawn nearer along the straight line where it is farther away than the limit."""
    share = np.minimum(1.0, limit / np.maximum(distances, limit))

    def nearer(mine: np.ndarray, other: np.ndarray) -> np.ndarray:
        part = share.reshape(-1, *[1] * (mine.ndim - 1))
        moved = np.asarray(mine, float) + part * (np.asarray(other, float) - mine)
        return np.where(part < 1, moved, other).astype(mine.dtype)

    return tuple(nearer(mine, other) for mine, other in zip(own, theirs, strict=True))
