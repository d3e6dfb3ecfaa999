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
    """
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
            place[last] = values.reshape(-1, *values.shape[2:])
        yield tree
