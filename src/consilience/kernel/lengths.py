"""Shards of unequal length: agents with about as many rows go side by side, so that short shards are hardly padded.

Sums over rows do not mind how agents are grouped. Agents are put in groups by length (`places_by_length`), and what
is computed for all of them is computed group by group (`by_length`). The groups depend on sizes alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_MOST_GROUPS = 4
_HARDLY_PADDED = 1.2
"""Padded to the longest, shards may be so many times their rows."""
_CALL = 2_000
"""What a group costs by itself, in numbers of rows that are gone through in the same time."""
_MOST_LENGTHS = 100
"""From more lengths than these, groups end at evenly spaced ones."""


def places_by_length(sizes: np.ndarray, row_numbers: int) -> list[np.ndarray]:
    """At most four groups of agents by the lengths of their shards, such that padding each group costs least.

    Args:
        sizes: `(agents,)` rows of every shard.
        row_numbers: the numbers that are gone through for one row.

    >>> [group.tolist() for group in places_by_length(np.array([900, 3, 1000, 5]), 20)]
    [[1, 3], [0, 2]]
    >>> [group.tolist() for group in places_by_length(np.array([100, 3, 110, 5]), 2)]
    [[0, 1, 2, 3]]
    """
    everybody = [np.arange(len(sizes))]
    if len(sizes) * sizes.max() <= _HARDLY_PADDED * sizes.sum():
        return everybody
    ends = np.unique(sizes)
    if len(ends) > _MOST_LENGTHS:
        ends = ends[np.linspace(0, len(ends) - 1, _MOST_LENGTHS).round().astype(int)]
    agents = np.searchsorted(np.sort(sizes), ends, side="right")  # with at most so many rows
    before = np.concatenate([[0], agents])
    cuts = _cheapest_cuts(before, ends, _CALL / row_numbers)
    if len(cuts) == 1:
        return everybody
    return [np.flatnonzero((sizes > low) & (sizes <= high)) for low, high in zip([0, *cuts], cuts, strict=False)]


def _cheapest_cuts(before: np.ndarray, ends: np.ndarray, call: float) -> list[int]:
    """The longest shard of each group; `best[j]` is what the first `j` lengths cost in so many groups at least."""
    best = np.where(np.arange(len(before)) == 0, 0.0, np.inf)
    chosen, total = [], []
    for _ in range(min(_MOST_GROUPS, len(ends))):
        # from the first i lengths to the first j: agents between them, padded to the length j
        cost = best[:, None] + (before[None, 1:] - before[:, None]) * ends + call
        cost[np.arange(len(before))[:, None] > np.arange(len(ends))[None]] = np.inf
        chosen.append(cost.argmin(0))
        best = np.concatenate([[np.inf], cost.min(0)])
        total.append(best[-1])
    group, last, cuts = int(np.argmin(total)), len(ends), []
    while last > 0:
        cuts.append(int(ends[last - 1]))
        last, group = int(chosen[group][last - 1]), group - 1
    return cuts[::-1]


def by_length(groups: list[np.ndarray], evaluate: Callable[..., Any]) -> Callable[..., Any]:
    """What `evaluate` gives for all agents, from rows and row weights that come group by group."""
    order = np.argsort(np.concatenate(groups))

    def all_agents(w: jax.Array, rows: Any, weights: Any, scale: jax.Array, rows_per_chain: bool) -> Any:
        found = [
            evaluate(w[:, places], some, own, scale[places], rows_per_chain)
            for places, some, own in zip(groups, rows, weights, strict=True)
        ]
        return jax.tree.map(lambda *leaves: jnp.concatenate(leaves, 1)[:, order], *found)

    return all_agents
