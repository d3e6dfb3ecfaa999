"""An agent's draws as a model's parameters, a few at a time, from a run's data set."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np


def parameter_draws(draws: Any, agent: int, at_once: int = 64) -> Iterator[Any]:
    """The draws of one agent, all chains together, as nested dictionaries of arrays `(draws, …)`.

    Args:
        draws: a run's draws, an `xarray.Dataset` whose variables are named like `layer_1.weight`.
        agent: which agent.
        at_once: how many draws of each chain to read at once.

    A private parameter of which the agent has fewer entries than others has its own number of them.
    """
    private = draws.attrs.get("private", [])
    own = draws.sel(agent=agent)
    for start in range(0, own.sizes["draw"], at_once):
        some = own.isel(draw=slice(start, start + at_once))
        tree: dict[str, Any] = {}
        for name in draws.attrs["parameters"]:
            values = np.asarray(some[name])
            *path, last = name.split(".")
            place = tree
            for part in path:
                place = place.setdefault(part, {})
            values = values.reshape(-1, *values.shape[2:])
            place[last] = _without_filling(values) if name in private and values.ndim > 1 else values
        yield tree


def _without_filling(values: np.ndarray) -> np.ndarray:
    """Draws `(draws, entries, …)` up to the last entry that the agent has; others are never a number.

    >>> _without_filling(np.array([[1.0, 2.0, np.nan], [3.0, 4.0, np.nan]])).tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    there = ~np.isnan(values).reshape(*values.shape[:2], -1).all((0, 2))
    return values[:, : int(np.flatnonzero(there).max(initial=-1)) + 1]
