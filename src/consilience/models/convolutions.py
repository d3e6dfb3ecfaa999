"""A small convolution and the 2 × 2 maximum after it, as one matrix product. Written for CPUs.

The batch is the last axis, so that every operation works on long runs of neighbouring numbers. Images are cut into
blocks of `side × side` pixels, whose places come first:

    (side, side, channels, height / side, width / side, batch)

What a block of pooled outputs sees are then a few neighbouring blocks, which stand one below the other after a few
shifts of the whole array. A filter is padded with zeros once for every output of a block and every place of its pool,
and the pool is a maximum of four contiguous parts of the product. That multiplies by zeros, but makes far smaller
matrices of patches than the convolution alone would need.
"""

from __future__ import annotations

from math import isqrt

import jax
import jax.numpy as jnp

from consilience.errors import ProblemError


def in_blocks(images: jax.Array, side: int) -> jax.Array:
    """Images `(batch, height, width)` of one channel, or `(batch, height, width, channels)`, cut into blocks.

    >>> in_blocks(jnp.zeros((7, 32, 32)), 4).shape
    (4, 4, 1, 8, 8, 7)
    """
    batch, height, width, *channels = images.shape
    if height % side or width % side:
        raise ProblemError(
            f"images of {height} x {width} cannot be cut into blocks of {side} x {side}: enlarge them or fill them up"
        )
    blocks = images.reshape(batch, height // side, side, width // side, side, *(channels or [1]))
    return blocks.transpose(2, 4, 5, 1, 3, 0)


def convolve_and_pool(weight: jax.Array, blocks: jax.Array) -> jax.Array:
    """The largest of each 2 × 2 square of a convolution without padding, in blocks of half the side.

    Each layer halves the side, so that a network of `n` such layers begins with blocks of `2^n`. With ties (a
    constant background has many) the gradient goes to the first of them alone.

    Args:
        weight: `(filters, channels · size²)`, of filters of `size × size`; `size − 1` is a multiple of the side.
        blocks: as `in_blocks` gives them.

    >>> convolve_and_pool(jnp.zeros((6, 25)), jnp.zeros((4, 4, 1, 8, 8, 7))).shape
    (2, 2, 6, 7, 7, 7)
    """
    side, _, channels, *_, batch = blocks.shape
    size = isqrt(weight.shape[1] // channels)
    if side % 2 or (size - 1) % side:
        raise ProblemError(
            f"a convolution of {size} x {size} and a pool need blocks of an even side that divides {size - 1}, not "
            f"of {side} x {side}: choose another size of filter or of block"
        )
    seen = (size - 1) // side + 1
    patches = _neighbours(_neighbours(blocks, 4, 1, seen), 3, 0, seen)
    height, width = patches.shape[3:5]
    padded = _padded_filters(weight.reshape(-1, channels, size, size), side // 2, seen * side)
    product = padded.reshape(-1, seen * side * seen * side * channels) @ patches.reshape(-1, height * width * batch)
    pooled = _largest(product.reshape(4, len(product) // 4, -1))
    return pooled.reshape(side // 2, side // 2, -1, height, width, batch)


def _neighbours(blocks: jax.Array, axis: int, inside: int, count: int) -> jax.Array:
    """Each block and the `count − 1` after it along `axis`, one after the other along the axis `inside` of blocks."""
    length = blocks.shape[axis] - count + 1
    shifted = [jax.lax.slice_in_dim(blocks, first, first + length, axis=axis) for first in range(count)]
    return jnp.concatenate(shifted, inside)


def _padded_filters(filters: jax.Array, outputs: int, seen: int) -> jax.Array:
    """`(4 · outputs², filters, seen, seen, channels)`: for each place of a pool, and in it for each output.

    Of a block of `outputs × outputs` pooled numbers, place `i, j` of the pool of number `p, q` is a filter `i + 2p`
    pixels down and `j + 2q` to the right.
    """
    left = seen - filters.shape[-1]
    shifts = [
        (place + 2 * output, beside + 2 * next_to)
        for place in (0, 1) for beside in (0, 1) for output in range(outputs) for next_to in range(outputs)
    ]  # fmt: skip
    padded = [
        jnp.pad(filters, ((0, 0), (0, 0), (down, left - down), (right, left - right))) for down, right in shifts
    ]
    return jnp.moveaxis(jnp.stack(padded), 2, -1)


def _plain_largest(values: jax.Array) -> jax.Array:
    return values.max(0)


_largest = jax.custom_vjp(_plain_largest)
"""The largest along the first axis; a maximum's own gradient would share or multiply that of ties."""


def _largest_forward(values: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    largest = _plain_largest(values)
    return largest, (values, largest)


def _largest_backward(kept: tuple[jax.Array, jax.Array], gradient: jax.Array) -> tuple[jax.Array]:
    values, largest = kept
    parts, given = [], jnp.zeros(largest.shape, bool)
    for some in values[:-1]:
        first = (some == largest) & ~given
        parts.append(jnp.where(first, gradient, 0))
        given = given | first
    return (jnp.stack([*parts, jnp.where(given, 0, gradient)]),)


_largest.defvjp(_largest_forward, _largest_backward)
