"""The consensus error `‖w̃‖² = Σ_i ‖w_i − w̄‖²`: how far agents are apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def consensus_error(
    positions: Any, num_agents: int | None = None, total: Callable[[Any], Any] = lambda values: values.sum(-2)
) -> Any:
    """`‖w̃‖²` for positions `(…, agents, size)`, arrays of NumPy or JAX.

    Args:
        positions: of all agents, or of those that are here.
        num_agents: how many there are, if some are elsewhere.
        total: sums `(…, agents, size)` over all agents, also over those that are elsewhere.

    >>> import numpy as np
    >>> consensus_error(np.array([[0.0], [2.0]])).item()
    2.0
    """
    mean = total(positions) / (num_agents or positions.shape[-2])
    return total((positions - mean[..., None, :]) ** 2).sum(-1)
