"""Neural networks as pure functions: where to start, and logits of some inputs.

LeNet-5 is written for CPUs: the batch is the last axis, so that every operation works on long runs of neighbouring
numbers, and a convolution is one matrix product with the image's patches (of one channel, a sum of shifted images).
Pooling comes before the bias and `tanh`, which gives the same numbers (both are increasing) with a quarter of the
`tanh`s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

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
        values = jnp.moveaxis(inputs, 0, -1)[None]
        for name in ("convolution_1", "convolution_2"):
            layer = weights[name]
            values = jnp.tanh(_pool(_convolve(layer["weight"], values)) + layer["bias"][:, None, None, None])
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


def _plain_convolution(weight: jax.Array, images: jax.Array) -> jax.Array:
    """A 5 × 5 convolution of `(channels, height, width, batch)` with a weight `(filters, channels · 25)`.

    With one channel a product with the patches would have 25 terms for few filters, and making the patches would take
    most of the time: there it is a sum of 25 shifted images, in one fused loop.
    """
    _, height, width, batch = images.shape
    if len(images) == 1:
        terms = [
            taps[:, None, None, None] * shifted for taps, shifted in zip(weight.T, _shifted(images), strict=True)
        ]
        return sum(terms[1:], terms[0])
    return (weight @ _patches(images)).reshape(len(weight), height - 4, width - 4, batch)


_convolve = jax.custom_vjp(_plain_convolution)


def _convolve_forward(weight: jax.Array, images: jax.Array) -> tuple[jax.Array, Any]:
    return _plain_convolution(weight, images), (weight, images)


def _convolve_backward(kept: Any, gradient: jax.Array) -> tuple[jax.Array, jax.Array]:
    weight, images = kept
    flat = gradient.reshape(len(gradient), -1)
    _, to_images = jax.vjp(_patches, images)
    return flat @ _patches(images).T, to_images(weight.T @ flat)[0]


_convolve.defvjp(_convolve_forward, _convolve_backward)


def _patches(images: jax.Array) -> jax.Array:
    """`(channels · 25, places · batch)`: what each tap of a 5 × 5 convolution sees."""
    return jnp.stack(_shifted(images), 1).reshape(len(images) * 25, -1)


def _shifted(images: jax.Array) -> list[jax.Array]:
    _, height, width, _ = images.shape
    return [images[:, i : i + height - 4, j : j + width - 4] for i in range(5) for j in range(5)]


def _largest_of_squares(images: jax.Array) -> jax.Array:
    """The largest of each 2 × 2 square of `(channels, height, width, batch)`.

    With ties (a constant background has many) the gradient goes to the first of them alone: a maximum made of
    `jnp.maximum` would share or multiply it.
    """
    wide = jnp.maximum(images[:, :, ::2], images[:, :, 1::2])
    return jnp.maximum(wide[:, ::2], wide[:, 1::2])


_pool = jax.custom_vjp(_largest_of_squares)


def _pool_forward(images: jax.Array) -> tuple[jax.Array, Any]:
    pooled = _largest_of_squares(images)
    return pooled, (images, pooled)


def _pool_backward(kept: Any, gradient: jax.Array) -> tuple[jax.Array]:
    images, pooled = kept
    channels, height, width, batch = images.shape
    squares = images.reshape(channels, height // 2, 2, width // 2, 2, batch)
    first, second, third = (squares[:, :, i, :, j] == pooled for i, j in ((0, 0), (0, 1), (1, 0)))
    second, third = second & ~first, third & ~first & ~second
    fourth = ~(first | second | third)
    parts = [jnp.where(chosen, gradient, 0) for chosen in (first, second, third, fourth)]
    upper, lower = jnp.stack(parts[:2], 3), jnp.stack(parts[2:], 3)
    return (jnp.stack([upper, lower], 2).reshape(images.shape),)


_pool.defvjp(_pool_forward, _pool_backward)
