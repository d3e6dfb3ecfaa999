"""Which draws the network repeats, and how all agents come to know.

Replicas on other kinds of processors round differently, and once in a long while one of them makes another number of
leapfrogs in a draw. Whoever finds that out tells all to go back to the start of that draw. The list of the draws that
were repeated, one for each attempt after the first, spreads from neighbour to neighbour. An attempt's number is the
length of the list; labels begin with it, so no label of an earlier attempt is ever used again.

Agents that find it out at the same time add the same draw: nobody completes the first total of a draw while another
agent is still in the draw before, so all waiting agents are in one draw or just behind its end. Should two lists of
the same length ever differ, both sides replace them by the same longer one.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence


class Retries:
    """The repeated draws, as one node knows them; other threads bring news.

    >>> retries = Retries([5])
    >>> retries.merge([5, 8]), retries.merge([5]), retries.merge([5, 7]), retries.draws
    (True, False, True, (5, 7, 7))
    >>> retries.next_draw(attempt=1), retries.next_draw(attempt=3)
    (7, None)
    """

    def __init__(self, draws: Sequence[int] = ()) -> None:
        self._lock = threading.Lock()
        self.draws = tuple(draws)
        """The draw that each attempt after the first began with."""

    def merge(self, theirs: Sequence[int]) -> bool:
        """Take over a neighbour's list if it is news; whether it was."""
        with self._lock:
            other = tuple(theirs)
            if len(other) < len(self.draws) or other == self.draws:
                return False
            if len(other) == len(self.draws):
                least = tuple(min(pair) for pair in zip(other, self.draws, strict=True))
                other = (*least, least[-1])
            self.draws = other
            return True

    def add(self, draw: int, attempt: int) -> None:
        """Repeat a draw as the attempt after `attempt`, unless somebody has said so already."""
        with self._lock:
            if len(self.draws) == attempt:
                self.draws = (*self.draws, draw)

    def next_draw(self, attempt: int) -> int | None:
        """The draw with which the attempt after this one begins, if there is one."""
        draws = self.draws
        return draws[attempt] if attempt < len(draws) else None
