"""How wide a posterior is in directions about which its Hessian says nothing.

A prior with a kink, as Laplace's, has no curvature anywhere but at the kink; where the likelihood says nothing either
(features that add up to one, a feature without rows) the Hessian is singular and the posterior is not. What counts is
how the potential rises over the posterior's own width: the `s` with

    U(w + 2 s e) + U(w − 2 s e) − 2 U(w) = 4,

which for a normal law is its standard deviation and for a Laplace law its scale. It is found from above, by sums of
values.
"""

from __future__ import annotations

import numpy as np

from consilience.warmup.derivatives import LocalPotentials
from consilience.warmup.network import Network

_REACH = 2.0
_TRIALS = 16
_NEAR = 0.05  # of the logarithm


def widths(
    potentials: LocalPotentials,
    network: Network,
    positions: np.ndarray,
    value: float,
    directions: np.ndarray,
    widest: float,
) -> np.ndarray:
    """The width in each direction, at most `widest`.

    Args:
        potentials: of the agents here.
        network: makes sums.
        positions: `(agents here, size)` around which to look.
        value: the sum of all agents' potentials there.
        directions: `(count, agents here, size)` of shared parameters the same at all agents.
        widest: what is not exceeded where the potential does not rise.
    """
    count = len(directions)
    found = np.full(count, widest)
    for _ in range(_TRIALS):
        away = _REACH * found[:, None, None] * directions
        values = potentials.values(np.concatenate([positions + away, positions - away])).T  # (agents, 2 count)
        usable = np.abs(values) < network.largest_number
        summed = network.summed(~usable, np.where(usable, values, 0.0))
        assert summed is not None  # what is no number was left out
        outside = (summed[0][:count] + summed[0][count:]) > 0
        rise = summed[1][:count] + summed[1][count:] - 2 * value
        wanted = _REACH * found / np.sqrt(np.maximum(rise, (_REACH * found / widest) ** 2))
        better = np.where(outside, found / 4, wanted)
        moved, found = np.abs(np.log(better / found)).max(), better
        if moved < _NEAR:
            break
    return found
