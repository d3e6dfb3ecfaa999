"""The posterior of a neural network's weights, given labelled inputs.

    weights ~ prior,   label ~ Categorical(softmax(logits(weights, input)))

Priors, with `s = 1/sqrt(fan_in)` of each layer (the scale of Kaiming's initialisation):

- `normal`: `N(0, (scale · s)²)` for every weight; `scale = 1/√3` has the variance of the uniform one;
- `uniform`: uniform on `±s`. Its density is constant where it is not zero, so it has no gradient, and Langevin
  dynamics does not feel its border: weights may leave it. It is there because the paper names it;
- `none`: flat everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from consilience.errors import ProblemError
from consilience.models.networks import Network, Weights
from consilience.problems import Outcomes, Problem

Prior = Literal["normal", "uniform", "none"]


def classifier(
    network: Network,
    shards: Sequence[tuple[Any, Any]],
    prior: Prior = "normal",
    scale: float = 1.0,
    name: str = "classifier",
) -> Problem:
    """The posterior of a network's weights, given each agent's `(inputs, labels)`.

    >>> from consilience.models.networks import mlp
    >>> shards = [(np.zeros((5, 4), np.float32), np.zeros(5, np.int32))] * 2
    >>> classifier(mlp(4, [3], 2), shards).num_agents
    2
    """
    if prior not in ("normal", "uniform", "none"):
        raise ProblemError(f"unknown prior {prior!r}: choose normal, uniform or none")

    def log_likelihood(weights: Weights, rows: tuple[jax.Array, jax.Array]) -> jax.Array:
        inputs, labels = rows
        logs = jax.nn.log_softmax(network.logits(weights, inputs))
        return jnp.take_along_axis(logs, labels[:, None], 1)[:, 0]

    def log_prior(weights: Weights) -> jax.Array:
        if prior != "normal":
            return jnp.zeros((), jax.tree.leaves(weights)[0].dtype)
        squares = [
            fan * jnp.sum(leaf**2) for layer, fan in network.fan_in.items() for leaf in weights[layer].values()
        ]
        return -0.5 / scale**2 * jnp.sum(jnp.stack(squares))

    kept = [(np.asarray(inputs, np.float32), np.asarray(labels, np.int32)) for inputs, labels in shards]
    return Problem(
        log_likelihood, log_prior, network.init, kept, name=name, outcomes=class_outcomes(network.logits)
    )  # fmt: skip


def class_outcomes(logits: Callable[[Any, Any], jax.Array]) -> Outcomes:
    """What logits `(parameters, inputs) -> (rows, classes)` say about labels; rows are pairs, or inputs alone."""

    def inputs(rows: Any) -> Any:
        return rows[0] if isinstance(rows, tuple | list) else rows

    return Outcomes(
        kinds={"label": "class"},
        expected=lambda weights, rows: {"label": jax.nn.softmax(logits(weights, inputs(rows)))},
        simulate=lambda key, weights, rows: {"label": jax.random.categorical(key, logits(weights, inputs(rows)))},
        observed=lambda rows: {"label": rows[1]},
    )
