"""Dealing rows out to agents: which rows belong to whom. Every row goes to exactly one agent, no agent is empty."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from consilience.errors import DataError


def equal(num_rows: int, num_agents: int, seed: int) -> list[np.ndarray]:
    """Rows at random, as evenly as they go.

    >>> [len(rows) for rows in equal(10, 3, seed=0)]
    [4, 3, 3]
    """
    _require_enough(num_rows, num_agents)
    return [np.sort(rows) for rows in np.array_split(np.random.default_rng(seed).permutation(num_rows), num_agents)]


def unequal(num_rows: int, shares: Sequence[float], seed: int) -> list[np.ndarray]:
    """Rows at random, in the given proportions; every agent gets at least one.

    >>> [len(rows) for rows in unequal(100, [1, 2, 7], seed=0)]
    [10, 20, 70]
    """
    weights = np.asarray(shares, float)
    if not (np.isfinite(weights) & (weights > 0)).all():
        raise DataError(f"shares must be positive numbers, got {list(shares)}")
    _require_enough(num_rows, len(weights))
    exact = weights / weights.sum() * num_rows
    sizes = np.floor(exact).astype(int)
    sizes[np.argsort(sizes - exact, kind="stable")[: num_rows - sizes.sum()]] += 1  # the largest remainders
    while (sizes == 0).any():
        sizes[sizes.argmax()] -= 1
        sizes[sizes.argmin()] += 1
    ends = np.cumsum(sizes)
    return [np.sort(rows) for rows in np.split(np.random.default_rng(seed).permutation(num_rows), ends[:-1])]


def by_label(labels: Any, num_agents: int, concentration: float, seed: int) -> list[np.ndarray]:
    """Rows by label: each label's rows go to the agents in proportions drawn from a Dirichlet distribution.

    A small `concentration` (the Dirichlet's `α`) gives agents few labels each, a large one gives everybody the same
    mixture. A draw that leaves an agent without rows is an error, as that agent would have nothing to say.
    """
    labels = np.asarray(labels)
    _require_enough(len(labels), num_agents)
    if not concentration > 0:
        raise DataError(f"the concentration of a split by label must be positive, got {concentration:g}")
    rng = np.random.default_rng(seed)
    owned: list[list[np.ndarray]] = [[] for _ in range(num_agents)]
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        shares = rng.dirichlet(np.full(num_agents, concentration))
        ends = np.round(np.cumsum(shares)[:-1] * len(rows)).astype(int)
        for own, part in zip(owned, np.split(rows, ends), strict=True):
            own.append(part)
    split = [np.sort(np.concatenate(own)) for own in owned]
    empty = [agent for agent, rows in enumerate(split) if not len(rows)]
    if empty:
        raise DataError(
            f"the split by label leaves agent {empty[0]} without rows (concentration {concentration:g}, {num_agents} "
            "agents): raise the concentration, take fewer agents, or another seed"
        )
    return split


def by_column(column: Any, num_agents: int | None = None) -> list[np.ndarray]:
    """Rows by the value of a column: one agent for each value, or for ranges of it if `num_agents` is given.

    >>> [rows.tolist() for rows in by_column(np.array([3, 1, 3, 2]))]
    [[1], [3], [0, 2]]
    >>> [len(rows) for rows in by_column(np.linspace(0, 1, 10), 2)]
    [5, 5]
    """
    column = np.asarray(column)
    if num_agents is None:
        return [np.flatnonzero(column == value) for value in np.unique(column)]
    _require_enough(len(column), num_agents)
    return [np.sort(rows) for rows in np.array_split(np.argsort(column, kind="stable"), num_agents)]


def _require_enough(num_rows: int, num_agents: int) -> None:
    if num_agents < 1 or num_agents > num_rows:
        raise DataError(f"{num_rows} rows cannot be split among {num_agents} agents: every agent needs at least one")
