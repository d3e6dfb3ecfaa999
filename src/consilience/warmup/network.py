"""Sums over the network for the warm-up: flat vectors of float64, and whether everybody had numbers to add.

Each sum carries one more number: how many agents have a value that is none. If it is not 0 there is no sum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

Total = Callable[[np.ndarray], np.ndarray]
"""From values `(agents here, k)` to their sum over all agents of the network, `(k,)`."""


@dataclass
class Network:
    """What the warm-up sees of the other agents.

    Attributes:
        agents: the numbers of the agents that are here.
        num_agents: of the whole network.
        total: the sum over all agents.
        largest_number: what is not below it counts as no number.
        sums: how many sums were made.
    """

    agents: np.ndarray
    num_agents: int
    total: Total
    largest_number: float = np.inf
    sums: int = field(default=0)

    def summed(self, *values: np.ndarray) -> list[np.ndarray] | None:
        """The sums of arrays `(agents here, …)`, all by one sum; `None` if some agent has what is no number.

        >>> network = Network(np.arange(2), 2, lambda values: values.sum(0))
        >>> network.summed(np.ones((2, 3)), np.array([1.0, 2.0]))
        [array([2., 2., 2.]), array(3.)]
        >>> network.summed(np.array([1.0, np.nan])) is None
        True
        """
        here = len(self.agents)
        flat = np.concatenate([np.asarray(one, np.float64).reshape(here, -1) for one in values], 1)
        bad = ~(np.abs(flat) < self.largest_number).all(1)
        flat = np.where(bad[:, None], 0.0, flat)
        total = np.asarray(self.total(np.concatenate([bad[:, None].astype(np.float64), flat], 1)))
        self.sums += 1
        if total[0] > 0:
            return None
        found, place = [], 1
        for one in values:
            shape = np.shape(one)[1:]
            count = int(np.prod(shape))
            found.append(total[place : place + count].reshape(shape))
            place += count
        return found

    def largest(self, values: np.ndarray) -> np.ndarray:
        """By agent, what each of those here brings, as a vector to be summed: `(agents here, num_agents, k)`.

        The sum of it has everybody's values beside each other, so that the largest of them can be taken.
        """
        spread = np.zeros((len(self.agents), self.num_agents, *values.shape[1:]))
        spread[np.arange(len(self.agents)), self.agents] = values
        return spread
