"""The noise of samplers: standard normal numbers that depend on key, step and place alone.

The `j`-th number of a key and step comes from one Threefry hash of the counter `(step, j)`: its first word chooses
one of 2^24 equal intervals of probability, and the number is the normal quantile of that interval's middle. Noise is
most of a small model's step, so two things are made for vector units:

- *One long axis.* Vectors of parameters, agents and chains stand behind each other, as do several steps where these
  are few. Keys and places of such a row are written to memory once, before the loop over steps: found anew from the
  place in a long vector, by divisions and look-ups, they cost as much as the hash.
- *A quantile without branches.* That of JAX (`erf_inv`) evaluates `log1p` and chooses each coefficient of a
  polynomial from two tables. One rational function of `log2(1 − u²)` takes half of its time and is more precise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from consilience.kernel.randomness import threefry

_LONG_VECTOR = 256  # parameters from which on each agent's vector is an axis that is long enough
_LONG_ROW = 2048  # numbers from which on a row of several steps is

# The quantile of (1 + u)/2 is u N(w)/D(w) with w = −log2(1 − u²), within 1.4e-8 for all u of float32, and log2 x is
# L(x − 1.5), within 2.8e-7, which makes 5e-8 of the quantile. Minimax, by Lawson's iteration.
_NUMERATOR = (1.2533141545538815, 0.3006123808302802, 0.04051068134364441, 0.003659394800775302, 0.00021029088723114843, 5.487334003811051e-06)  # fmt: skip  # noqa: E501
_DENOMINATOR = (1.0, 0.05838873732415906, 0.015465204459881188, 0.0006262009295109728, 4.1387609077377837e-05, 2.057892443678358e-07)  # fmt: skip  # noqa: E501
_LOG2 = (0.58496276529909, 0.9617953799739308, -0.3206323283897267, 0.14254530940391924, -0.07058974315174305, 0.03731139962954966, -0.025122968172263782, 0.015125138336118837)  # fmt: skip  # noqa: E501


def noise_of_steps(
    own: jax.Array, common: jax.Array | None, num_shared: int, count: int, size: int, dtype: Any, first: Any = 0
) -> Callable[[Any], jax.Array]:
    """The function from a step to the noise of it and of the `count − 1` steps after it, for `noise_of_step`.

    Of a step and key it has `size` numbers, which begin with the `first`-th. To be called before a loop over steps,
    which then calls what it gives.

    Args:
        own: keys of chains and agents, any shape.
        common: keys of the same shape for the noise that agents share, if there is some.
        num_shared: of how many parameters it is.
        count: how many steps.
        size: parameters of an agent, or of its slice here.
        dtype: of the numbers.
        first: where the slice begins.
    """
    place = jnp.arange(size, dtype=jnp.uint32) + jnp.asarray(first, jnp.uint32)
    keys = jax.random.key_data(own)[..., None, :]
    if common is not None:
        keys = jnp.where((place < num_shared)[:, None], jax.random.key_data(common)[..., None, :], keys)
    words = [keys[..., 0], keys[..., 1], place]
    together, offset = 1, jnp.uint32(0)
    if size < _LONG_VECTOR:
        numbers = own.size * size
        together = next(steps for steps in range(1, count + 1) if steps == count or _is_row(steps, numbers, count))
        words = [jnp.tile(jnp.broadcast_to(word, (*own.shape, size)).reshape(-1), together) for word in words]
        offset = jnp.repeat(jnp.arange(together, dtype=jnp.uint32), numbers)

    def noise(step: Any) -> jax.Array:
        rows = jnp.asarray(step, jnp.uint32) + together * jnp.arange(count // together, dtype=jnp.uint32)
        step_of_each = rows.reshape(-1, *[1] * words[0].ndim) + offset
        return _normal(*threefry(words[0], words[1], step_of_each, words[2]), dtype)

    return noise


def noise_of_step(noise: jax.Array, number: Any, shape: tuple[int, ...]) -> jax.Array:
    """The noise of one of the steps, in the shape of keys and entries.

    It is taken from rows as they are: after a reshaping, compilers would find each place in a row by division.
    """
    size = math.prod(shape)
    together = math.prod(noise.shape[1:]) // size
    if together == 1:
        return jax.lax.dynamic_index_in_dim(noise, number, keepdims=False).reshape(shape)
    row = jax.lax.dynamic_slice(noise, (number // together, number % together * size), (1, size))
    return row.reshape(shape)


def _is_row(steps: int, numbers: int, count: int) -> bool:
    return count % steps == 0 and steps * numbers >= _LONG_ROW


@partial(jax.jit, static_argnames=("size", "dtype"))
def normals(keys: jax.Array, step: Any, size: int, dtype: Any) -> jax.Array:
    """`(*keys.shape, size)` standard normal numbers of one step, those that `noise_of_steps` gives for it."""
    return noise_of_step(noise_of_steps(keys, None, 0, 1, size, dtype)(step), 0, (*keys.shape, size))


def _normal(high: jax.Array, low: jax.Array, dtype: Any) -> jax.Array:
    """Normal numbers from the words of a hash; in single precision the first suffices."""
    if jnp.dtype(dtype) == jnp.float64:
        fraction = high.astype(dtype) * 2.0**-31 + low.astype(dtype) * 2.0**-63  # of (0, 2)
        return math.sqrt(2) * jax.lax.erf_inv(fraction - (1 - 2.0**-53))
    fraction = (high >> 8).astype(jnp.int32).astype(dtype) * 2.0**-23
    return quantile(fraction - (1 - 2.0**-24))


def quantile(u: jax.Array) -> jax.Array:
    """The normal quantile of `(1 + u)/2`, for `|u| < 1` in single precision, within 3e-7 of itself.

    >>> [f"{number:.4f}" for number in quantile(jnp.float32([-0.95, 0.0, 0.95]))]
    ['-1.9600', '0.0000', '1.9600']
    """
    bits = jax.lax.bitcast_convert_type((1 - u) * (1 + u), jnp.int32)
    exponent = (bits >> 23).astype(u.dtype) - 127
    mantissa = jax.lax.bitcast_convert_type((bits & 0x7FFFFF) | 0x3F800000, u.dtype)
    w = -(exponent + _polynomial(_LOG2, mantissa - 1.5))
    return u * _polynomial(_NUMERATOR, w) / _polynomial(_DENOMINATOR, w)


def _polynomial(coefficients: tuple[float, ...], x: jax.Array) -> jax.Array:
    value = jnp.full_like(x, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        value = value * x + np.asarray(coefficient, x.dtype)
    return value
