"""Bayesian logistic regression with a normal or a Laplace prior.

The model is, with labels `y` of 0 and 1:

    w ~ N(0, scale² I)  or  w_j ~ Laplace(0, scale),      y ~ Bernoulli(1/(1 + e^(−x·w)))

The curvature of a row's potential is `p(1−p) x xᵀ`, between 0 and `x xᵀ/4`. With the normal prior the problem
therefore brings bounds on its curvature for the theory: `L_i = λ_max(X_iᵀX_i)/4 + 1/(n scale²)`, and `U` is as convex
as the prior. The Laplace prior pulls every weight towards 0 with the same force, `−sign(w)/scale`; its gradient jumps
there, so it has no Lipschitz constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from consilience.errors import ProblemError
from consilience.models.softplus import softplus
from consilience.problems import Curvature, Problem


def logistic_regression(
    shards: Sequence[tuple[Any, Any]], prior: Literal["normal", "laplace"] = "normal", scale: float = 1.0
) -> Problem:
    """The posterior of the weights, given each agent's `(features, labels)`.

    >>> logistic_regression([(np.ones((4, 2)), np.array([0, 1, 1, 1]))]).curvature.smoothness
    (3.0,)
    """
    if prior not in ("normal", "laplace"):
        raise ProblemError(f"unknown prior {prior!r}: choose normal or laplace")
    shards = [(np.asarray(features), np.asarray(labels)) for features, labels in shards]
    for agent, (_, labels) in enumerate(shards):
        if not np.isin(labels, (0, 1)).all():
            raise ProblemError(f"the labels of agent {agent} are not all 0 or 1: recode them")
    num_features = shards[0][0].shape[1]

    def log_likelihood(w: jax.Array, rows: tuple[jax.Array, jax.Array]) -> jax.Array:
        features, labels = rows
        logits = features @ w
        return labels * logits - softplus(logits)

    def log_prior(w: jax.Array) -> jax.Array:
        return -(w @ w) / (2 * scale**2) if prior == "normal" else -jnp.abs(w).sum() / scale

    return Problem(
        log_likelihood,
        log_prior,
        lambda key: jnp.zeros(num_features),
        shards,
        name="logistic regression",
        curvature=_curvature(shards, scale) if prior == "normal" else None,
    )


def _curvature(shards: Sequence[tuple[Any, Any]], scale: float) -> Curvature:
    squares = [np.asarray(features, float).T @ np.asarray(features, float) for features, _ in shards]
    local = [_largest(square) / 4 + 1 / (len(shards) * scale**2) for square in squares]
    total = _largest(np.sum(squares, 0)) / 4 + 1 / scale**2
    return Curvature(tuple(local), total, 1 / scale**2, "p(1−p) ≤ 1/4 in every row")


def _largest(matrix: np.ndarray) -> float:
    return float(np.linalg.eigvalsh(matrix)[-1])
