"""Control variates for minibatches: the noise of a batch is measured at an anchor, where the full gradient is known.

With an anchor `a` and the agent's gradient of all its rows there, a step with the rows `b` uses

    ∇U_i(a) + (g_b(w) − g_b(a)),      g_b the gradient of the batch, scaled to the size of the shard,

whose mean over batches is `∇U_i(w)`, as that of `g_b(w)` is (Johnson and Zhang, 2013). Its noise is that of a
difference between two near places: none at the anchor, little in the bulk of a posterior around it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class Anchor(NamedTuple):
    """A place of each agent, and its gradient of all rows there."""

    position: Any
    """`(agents, size)` parameters; of shared ones the same at all agents."""
    gradient: Any
    """`(agents, size)` `∇U_i` there; `(chains, agents, size)` if each chain has data of its own."""


def corrected(
    batch_gradients: Callable[[jax.Array], jax.Array], anchor: Anchor | None
) -> Callable[[jax.Array], jax.Array]:
    """The gradients of minibatches with the noise at the anchor taken out; as they are without an anchor.

    Args:
        batch_gradients: from parameters `(chains, agents, size)` to the gradients of one step's minibatches.
        anchor: where the full gradients are known.

    >>> noisy = corrected(lambda w: 2.0 * w + 7.0, Anchor(jnp.ones((1, 1)), jnp.full((1, 1), 2.0)))
    >>> float(noisy(jnp.full((1, 1, 1), 3.0))[0, 0, 0])
    6.0
    """
    if anchor is None:
        return batch_gradients

    def gradients(positions: jax.Array) -> jax.Array:
        there = batch_gradients(jnp.broadcast_to(anchor.position, positions.shape))
        return anchor.gradient + (batch_gradients(positions) - there)

    return gradients
