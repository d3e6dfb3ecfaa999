"""Bayesian logistic regression with a normal prior.

The model is, with labels `y` of 0 and 1:

    w ~ N(0, prior_variance · I),   y ~ Bernoulli(1/(1 + e^(−x·w)))

The curvature of a row's potential is `p(1−p) x xᵀ`, between 0 and `x xᵀ/4`, so the problem brings bounds on its
curvature for the theory: `L_i = λ_max(X_iᵀX_i)/4 + 1/(n · prior_variance)`, and `U` is as convex as the prior.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from consilience.problems import Curvature, Problem


def logistic_regression(shards: Sequence[tuple[Any, Any]], prior_variance: float = 1.0) -> Problem:
    """The posterior of the weights, given each agent's `(features, labels)`.

    >>> logistic_regression([(np.ones((4, 2)), np.array([0, 1, 1, 1]))]).curvature.smoothness
    (3.0,)
    """
    shards = [(np.asarray(features), np.asarray(labels)) for features, labels in shards]
    num_features = shards[0][0].shape[1]

    def log_likelihood(w: jax.Array, rows: tuple[jax.Array, jax.Array]) -> jax.Array:
        features, labels = rows
        logits = features @ w
        return labels * logits - jnp.logaddexp(0.0, logits)

    def log_prior(w: jax.Array) -> jax.Array:
        return -(w @ w) / (2 * prior_variance)

    return Problem(
        log_likelihood,
        log_prior,
        lambda key: jnp.zeros(num_features),
        shards,
        name="logistic regression",
        curvature=_curvature(shards, prior_variance),
    )


def _curvature(shards: Sequence[tuple[Any, Any]], prior_variance: float) -> Curvature:
    squares = [np.asarray(features, float).T @ np.asarray(features, float) for features, _ in shards]
    local = [_largest(square) / 4 + 1 / (len(shards) * prior_variance) for square in squares]
    total = _largest(np.sum(squares, 0)) / 4 + 1 / prior_variance
    return Curvature(tuple(local), total, 1 / prior_variance, "p(1−p) ≤ 1/4 in every row")


def _largest(matrix: np.ndarray) -> float:
    return float(np.linalg.eigvalsh(matrix)[-1])
