"""The exchanges of one mixing, written once for all samplers and engines (`samplers/mixing.py` has the formula).

An engine whose messages arrive at once calls `mixed`; one whose messages travel goes exchange by exchange: `begun`,
then `exchanged` with the disagreement of what was said last (`now`), then `ended`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from consilience.samplers.mixing import Mixing


class Exchanged(NamedTuple):
    """Where a mixing stands after some exchanges."""

    now: Any
    """`x_k`, which is what the neighbours are told next."""
    before: Any
    """`x_{k−1}`."""
    factor: Any
    """`p_k`."""


def mixed(message: Any, disagreement: Callable[[Any], Any], mixing: Mixing) -> Any:
    """`Q` (or `Q⁺`) applied to messages of all agents here.

    >>> from consilience import graphs
    >>> from consilience.kernel.mixing import make_disagreement
    >>> from consilience.samplers.mixing import chebyshev
    >>> graph = graphs.path(3)
    >>> found = mixed(jnp.array([0.0, 1.0, 5.0]), make_disagreement(graph, float), chebyshev(graph, 2))
    >>> [round(value, 4) for value in found.tolist()]
    [1.7143, 1.8571, 2.4286]
    """
    if isinstance(mixing.exchanges, int) and mixing.exchanges == 1 and _is_zero(mixing.kept):
        return jax.tree.map(lambda m, d: m - mixing.rate * d, message, disagreement(message))

    def once(_: Any, sofar: Exchanged) -> Exchanged:
        return exchanged(sofar, disagreement(sofar.now), mixing)

    first = jax.tree.map(lambda m, d: m - mixing.rate * d, message, disagreement(message))
    sofar = Exchanged(first, message, jnp.ones((), jax.tree.leaves(message)[0].dtype))
    if isinstance(mixing.exchanges, int):
        for number in range(1, mixing.exchanges):
            sofar = once(number, sofar)
    else:
        several = lambda sofar: jax.lax.fori_loop(1, mixing.exchanges, once, sofar)  # noqa: E731
        sofar = jax.lax.cond(mixing.exchanges > 1, several, lambda sofar: sofar, sofar)
    return ended(message, sofar, mixing)


def begun(message: Any) -> Exchanged:
    """Before the first exchange."""
    first = jax.tree.leaves(message)[0]
    return Exchanged(message, message, jnp.zeros((), first.dtype))


def exchanged(sofar: Exchanged, disagreement: Any, mixing: Mixing) -> Exchanged:
    """After one more exchange, in which the disagreement of `sofar.now` was found."""
    is_first, ratio = sofar.factor == 0, mixing.squared_ratio
    later = jnp.where(sofar.factor == 1, 2 / (2 - ratio), 1 / (1 - ratio * sofar.factor / 4))
    factor = jnp.where(is_first, 1.0, later).astype(sofar.factor.dtype)

    def new(now: Any, before: Any, apart: Any) -> Any:
        return factor * (now - mixing.rate * apart) - (factor - 1) * before

    return Exchanged(jax.tree.map(new, sofar.now, sofar.before, disagreement), sofar.now, factor)


def ended(message: Any, sofar: Exchanged, mixing: Mixing) -> Any:
    """The mixed message after the last exchange."""
    if _is_zero(mixing.kept):
        return sofar.now
    return jax.tree.map(lambda x, y: x + mixing.kept * (y - x), sofar.now, message)


def _is_zero(number: Any) -> bool:
    """Whether it is known to be 0 while a program is made."""
    return isinstance(number, int | float) and number == 0
