"""Who takes part: which neighbours are here, are done, or send what cannot be used, and whose data counts."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection

import numpy as np

log = logging.getLogger("consilience.peers")
_MOST_BAD = 100
_MOST_REASONS, _LONGEST_REASON = 8, 160


class Membership:
    """What one node knows of the others.

    Args:
        agent: the node's number.
        neighbours: their numbers.
        num_agents: of the whole network.
    """

    def __init__(self, agent: int, neighbours: Collection[int], num_agents: int) -> None:
        self._agent, self.neighbours = agent, list(neighbours)
        self.here: set[int] = set()
        self.done: set[int] = set()
        self.present = np.ones(num_agents, bool)
        self.implausible: Counter[int] = Counter()
        """In how many rounds each neighbour's message was farther away than is plausible."""
        self.reasons: Counter[str] = Counter()
        """Why messages could not be used, the first few reasons."""
        self._bad: Counter[int] = Counter()

    def change(self, number: int, here: bool) -> None:
        """A neighbour came or went; one that comes is believed again."""
        if here:
            self.here.add(number)
            self._bad[number] = 0
        else:
            self.here.discard(number)
        log.info("agent %d is %s", number, "here" if here else "gone")

    def is_believed(self, number: int) -> bool:
        """Whether a neighbour has not sent too much that cannot be used."""
        return self._bad[number] < _MOST_BAD

    def reject(self, number: int, reason: str) -> bool:
        """Count a message that cannot be used; whether it is the first one of that neighbour."""
        self._bad[number] += 1
        told = reason[:_LONGEST_REASON]
        if told in self.reasons or len(self.reasons) < _MOST_REASONS:
            self.reasons[told] += 1
        if self._bad[number] == 1:
            log.warning("a message of agent %d was rejected: %s", number, reason)
        elif self._bad[number] == _MOST_BAD:
            log.error(
                "agent %d keeps sending messages that are rejected (%d so far): it counts as lost until it is "
                "started again", number, _MOST_BAD,
            )  # fmt: skip
        return self._bad[number] == 1

    def doubt(self, number: int, round_: int, times: float) -> None:
        """Count a message that is so many times farther away than it ever was when all was well, and say so."""
        self.implausible[number] += 1
        if self.implausible[number] in (1, 10, 100) or self.implausible[number] % 1000 == 0:
            log.error(
                "agent %d: what agent %d says in round %d is implausible, %.3g times as far away as it was at most "
                "in the first rounds after burn-in (%d such rounds so far). Ask its operator: other data, another "
                "program, or a lie", self._agent, number, round_, times, self.implausible[number],
                extra={"round": round_},
            )  # fmt: skip

    def count_present(self, present: np.ndarray, round_: int) -> None:
        """Take over whose data counts from a round on, and say it where it has changed."""
        if (present == self.present).all():
            return
        told = (
            "the data of all agents counts again"
            if present.all()
            else f"samples the posterior of {names(np.flatnonzero(present).tolist())} only"
        )
        log.warning("agent %d from round %d: %s", self._agent, round_, told)
        self.present = present


def names(numbers: Collection[int]) -> str:
    """Agents in words."""
    return ", ".join(f"agent {number}" for number in numbers)
