"""Arithmetic on arrays and pytrees of them; JAX, which takes a while to load, is loaded when it is first used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def tree_map(function: Callable[..., Any], *trees: Any) -> Any:
    """The function of the leaves at each place, as `jax.tree.map`."""
    import jax

    return jax.tree.map(function, *trees)


def square_root(value: Any) -> Any:
    """The square root of a number or an array."""
    import jax.numpy as jnp

    return jnp.sqrt(value)


def exponential(value: Any) -> Any:
    """`e` to the power of a number or an array."""
    import jax.numpy as jnp

    return jnp.exp(value)
