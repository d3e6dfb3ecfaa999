"""An ordinary differential equation solved by the classical method of order 4, in steps of one length.

    k_1 = f(t, x)            k_2 = f(t + h/2, x + h k_1/2)
    k_3 = f(t + h/2, x + h k_2/2)      k_4 = f(t + h, x + h k_3)
    x(t + h) = x + h (k_1 + 2 k_2 + 2 k_3 + k_4)/6 + O(h⁵)

Steps of one length make the log-density a smooth function of the parameters, whatever they are.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp


def solve(
    slope: Callable[[jax.Array, jax.Array], jax.Array], start: jax.Array, interval: float, count: int, steps: int
) -> jax.Array:
    """`(count + 1, …)`: the solution at 0 and at so many multiples of the interval, each reached in so many steps.

    >>> decay = solve(lambda time, x: -x, jnp.ones(1), interval=0.5, count=2, steps=8)
    >>> decay[:, 0].round(4).tolist() == jnp.exp(-0.5 * jnp.arange(3)).round(4).tolist()
    True
    """
    size = interval / steps

    def step(x: jax.Array, place: jax.Array) -> tuple[jax.Array, None]:
        time = place * size
        first = slope(time, x)
        second = slope(time + size / 2, x + size / 2 * first)
        third = slope(time + size / 2, x + size / 2 * second)
        fourth = slope(time + size, x + size * third)
        return x + size / 6 * (first + 2 * second + 2 * third + fourth), None

    def until_next(x: jax.Array, number: jax.Array) -> tuple[jax.Array, jax.Array]:
        x = jax.lax.scan(step, x, number * steps + jnp.arange(steps))[0]
        return x, x

    after = jax.lax.scan(until_next, start, jnp.arange(count))[1]
    return jnp.concatenate([start[None], after])
