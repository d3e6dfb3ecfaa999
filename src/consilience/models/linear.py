"""Bayesian linear regression: every local posterior is Gaussian, so the network's dynamics are known exactly.

The model is:

    w ~ N(0, prior_variance · I),   y ~ N(x·w, noise_variance)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from consilience.problems import Problem


def linear_regression(
    shards: Sequence[tuple[Any, Any]], noise_variance: float = 1.0, prior_variance: float = 1.0
) -> Problem:
    """The posterior of the weights, given each agent's `(features, targets)`.

    >>> linear_regression([(jnp.ones((4, 2)), jnp.zeros(4))]).shard_sizes.tolist()
    [4]
    """
    shards = [(np.asarray(features), np.asarray(targets)) for features, targets in shards]
    num_features = shards[0][0].shape[1]

    def log_likelihood(w: jax.Array, rows: tuple[jax.Array, jax.Array]) -> jax.Array:
        features, targets = rows
        return -((targets - features @ w) ** 2) / (2 * noise_variance)

    def log_prior(w: jax.Array) -> jax.Array:
        return -(w @ w) / (2 * prior_variance)

    return Problem(log_likelihood, log_prior, lambda key: jnp.zeros(num_features), shards, name="linear regression")
