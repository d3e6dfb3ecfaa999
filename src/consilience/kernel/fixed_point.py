"""Exact sums of floating-point numbers: integers on a grid, added modulo 2^64.

A number `x` travels as the integer nearest to `x · 2^exponent`. Integers are added exactly, in any order and by
whomever, so the sum has the same bits whatever the graph, the algorithm and the masks; its error is at most
`n · 2^−(exponent + 1)`. A number fits if its integer is below `2^63 / n`: then no sum of `n` of them wraps round.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

_HEADROOM = 16  # bits by which numbers may grow before the grid is chosen anew
_LOWEST, _BINS = -128, 320
"""Magnitudes are counted by their binary exponent, from `2^_LOWEST` on; none is expected beyond `2^192`."""


class Grid(NamedTuple):
    """The exponents of a grid, integers."""

    energy: Any
    gradient: Any


def power_of_two(exponent: Any) -> jax.Array:
    """`2^exponent` to the bit, for exponents between −1022 and 1023.

    >>> with jax.enable_x64(True):
    ...     float(power_of_two(-3)), float(power_of_two(70)) == 2.0**70
    (0.125, True)
    """
    bits = (jnp.asarray(exponent, jnp.int64) + 1023) << 52
    return jax.lax.bitcast_convert_type(bits, jnp.float64)


def to_words(values: jax.Array, exponent: Any, num_agents: int) -> tuple[jax.Array, jax.Array]:
    """The integers of some numbers, and which numbers fit; those that do not (or are none) are 0.

    >>> with jax.enable_x64(True):
    ...     words, fit = to_words(jnp.array([1.5, -2.0, 1e30, jnp.nan]), 4, 3)
    ...     words.tolist(), fit.tolist()
    ([24, -32, 0, 0], [True, True, False, False])
    """
    scaled = values * power_of_two(exponent)
    fit = jnp.abs(scaled) < 2.0**63 / num_agents
    return jnp.rint(jnp.where(fit, scaled, 0.0)).astype(jnp.int64), fit


def from_words(words: jax.Array, exponent: Any) -> jax.Array:
    """The numbers of some integers.

    >>> with jax.enable_x64(True):
    ...     from_words(jnp.array([24, -32]), 4).tolist()
    [1.5, -2.0]
    """
    return words.astype(jnp.float64) * power_of_two(-jnp.asarray(exponent))


def magnitude_counts(values: jax.Array) -> jax.Array:
    """A count of 1 at the binary exponent of the largest of some numbers, and 0 elsewhere; of nothing but 0, none.

    The sum of these over all agents says where the largest of all is. Numbers that are not finite do not count.
    """
    largest = jnp.max(jnp.abs(jnp.where(jnp.isfinite(values), values, 0.0)), initial=0.0)
    place = jnp.clip(jnp.frexp(largest)[1] - _LOWEST, 0, _BINS - 1)
    return ((jnp.arange(_BINS) == place) & (largest > 0)).astype(jnp.int64)


def grid_exponent(counts: jax.Array, num_agents: int, least: int = _LOWEST) -> jax.Array:
    """The exponent of a grid on which numbers of the counted magnitudes fit, with room to grow.

    Numbers up to `2^least` have that room in any case; if nothing was counted, those up to 1 at least.

    >>> with jax.enable_x64(True):
    ...     int(grid_exponent(magnitude_counts(jnp.array([3.0, -900.0])), 4))
    34
    """
    largest = _LOWEST + (_BINS - 1) - jnp.argmax(counts[::-1] > 0)
    largest = jnp.maximum(jnp.where(counts.any(), largest, 0), least)
    return (62 - (num_agents - 1).bit_length() - _HEADROOM - largest).astype(jnp.int32)
