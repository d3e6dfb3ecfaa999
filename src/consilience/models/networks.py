"""Neural networks as pure functions: where to start, and logits of some inputs.

In LeNet-5 the batch is the last axis (`models/convolutions.py` says why). Pooling comes before the bias and `tanh`,
which gives the same numbers (both are increasing) with a quarter of the `tanh`s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from consilience.models.convolutions import convolve_and_pool, in_blocks

Weights = dict[str, dict[str, jax.Array]]


class Network(NamedTuple):
    """A classifier's parts."""

    init: Callable[[jax.Array], Weights]
    """From a key to weights, drawn uniformly from ±1/sqrt(fan_in)."""
    logits: Callable[[Weights, jax.Array], jax.Array]
    """From weights and inputs `(rows, …)` to logits `(rows, classes)`."""
    fan_in: dict[str, int]
    """The number of inputs of a unit in each layer."""


def mlp(num_inputs: int, hidden: Sequence[int], num_classes: int) -> Network:
    """A network of fully connected layers with `tanh` between them; inputs of any shape are flattened.

    >>> network = mlp(64, [32], 10)
    >>> network.logits(network.init(jax.random.key(0)), jnp.zeros((5, 8, 8))).shape
    (5, 10)
    """
    sizes = [num_inputs, *hidden, num_classes]
    layers = [f"layer_{i + 1}" for i in range(len(sizes) - 1)]
    shapes = {name: (inner, outer) for name, inner, outer in zip(layers, sizes[:-1], sizes[1:], strict=True)}

    def logits(weights: Weights, inputs: jax.Array) -> jax.Array:
        values = inputs.reshape(len(inputs), -1)
        for name in layers[:-1]:
            values = jnp.tanh(values @ weights[name]["weight"] + weights[name]["bias"])
        return values @ weights[layers[-1]]["weight"] + weights[layers[-1]]["bias"]

    return Network(_uniform_init(shapes, sizes[:-1]), logits, dict(zip(layers, sizes[:-1], strict=True)))


def lenet5(num_classes: int = 10) -> Network:
    """LeNet-5 for images `(rows, 32, 32)`: two convolutions with max-pooling, three full layers, `tanh`.

    >>> network = lenet5()
    >>> weights = network.init(jax.random.key(0))
    >>> network.logits(weights, jnp.zeros((3, 32, 32))).shape, sum(leaf.size for leaf in jax.tree.leaves(weights))
    ((3, 10), 61706)
    """
    shapes = {
        "convolution_1": (6, 25),
        "convolution_2": (16, 150),
        "full_1": (120, 400),
        "full_2": (84, 120),
        "full_3": (num_classes, 84),
    }
    fans = [25, 150, 400, 120, 84]

    def logits(weights: Weights, inputs: jax.Array) -> jax.Array:
        values = in_blocks(inputs, 4)
        for name in ("convolution_1", "convolution_2"):
            pooled = convolve_and_pool(weights[name]["weight"], values)
            values = jnp.tanh(pooled + weights[name]["bias"][:, None, None, None])
        values = values.reshape(400, -1)
        for name in ("full_1", "full_2"):
            values = jnp.tanh(weights[name]["weight"] @ values + weights[name]["bias"][:, None])
        return (weights["full_3"]["weight"] @ values + weights["full_3"]["bias"][:, None]).T

    return Network(_uniform_init(shapes, fans, outputs_first=True), logits, dict(zip(shapes, fans, strict=True)))


def _uniform_init(
    shapes: dict[str, tuple[int, int]], fans: Sequence[int], outputs_first: bool = False
) -> Callable[[jax.Array], Weights]:
    def init(key: jax.Array) -> Weights:
        weights: Weights = {}
        for number, ((name, shape), fan) in enumerate(zip(shapes.items(), fans, strict=True)):
            first, second = jax.random.split(jax.random.fold_in(key, number))
            bound, units = 1 / np.sqrt(fan), shape[0] if outputs_first else shape[1]
            weights[name] = {
                "weight": jax.random.uniform(first, shape, minval=-bound, maxval=bound),
                "bias": jax.random.uniform(second, (units,), minval=-bound, maxval=bound),
            }
        return weights

    return jax.jit(init)
