"""Two more words by which every agent sees whether a sum is whole.

To the first each agent adds 0: the sum is 0 unless masks do not cancel or a message was changed. To the second each
adds 1: the sum is the number of agents unless one is missing or counted twice. Masks cover both.
"""

from __future__ import annotations

import numpy as np

from consilience.engines.peers.sum_messages import Label
from consilience.errors import SumError

_CHECKS = np.array([0, 1], np.uint64)
NUM_CHECKS = len(_CHECKS)


def require_words(words: np.ndarray, most: int) -> np.ndarray:
    """Check that something can be summed."""
    if words.dtype != np.uint64 or words.ndim != 1:
        raise SumError(f"expected a vector of uint64, got {words.dtype} of shape {words.shape}: encode values first")
    if words.size > most:
        raise SumError(f"{words.size:,} words are more than most_words = {most:,}: raise it at every agent")
    return words


def with_checks(words: np.ndarray) -> np.ndarray:
    """An agent's words with what it adds to the checks.

    >>> with_checks(np.array([7], np.uint64)).tolist()
    [7, 0, 1]
    """
    return np.concatenate([words, _CHECKS])


def without_checks(total: np.ndarray, num_agents: int, label: Label) -> np.ndarray:
    """The sum itself, if it is whole.

    >>> without_checks(np.array([21, 0, 3], np.uint64), 3, Label(0, 0, 0, 0)).tolist()
    [21]
    """
    zero, count = total[-NUM_CHECKS:].tolist()
    if (zero, count) != (0, num_agents):
        cause = (
            f"it counts {count:,} of {num_agents} agents, so one is missing or counted twice"
            if zero == 0
            else "masks do not cancel or a message was changed, so an agent has another mask key than it announced"
        )
        raise SumError(
            f"the sum in {label} does not check: {cause}. Start all nodes again; if it happens again, move the run "
            "directories of all agents away and start anew"
        )
    return total[:-NUM_CHECKS].astype(np.uint64)
