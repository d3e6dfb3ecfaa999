"""The numbers that a warm-up finds, as compiled programs take them: the same program serves every window."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from consilience.kernel.variates import Anchor
from consilience.kernel.whitening import Whitening
from consilience.samplers import Corrected, Gossip

Change = Callable[[jax.Array], jax.Array]


class Tuning(NamedTuple):
    """A corrected sampler's numbers and its coordinates."""

    step_size: Any
    exchanges: Any
    temperature: Any
    whitening: Whitening
    anchor: Anchor | None = None
    """Where minibatches have their control variate, if they have one."""


def tuned_sampler(sampler: Gossip, tuning: Tuning | None, dtype: Any) -> Gossip:
    """The sampler with the numbers of a tuning; as it is, if its numbers were given."""
    if tuning is None:
        return sampler
    assert isinstance(sampler, Corrected)
    step, temperature = (jnp.asarray(number, dtype) for number in (tuning.step_size, tuning.temperature))
    return sampler.tuned(step, jnp.asarray(tuning.exchanges, jnp.int32), temperature)


def blank_tuning(whitening: Whitening, num_agents: int, size: int, has_anchor: bool, chains_apart: int = 0) -> Tuning:
    """A tuning of the right shapes, before anything is known; `chains_apart` is how many have data of their own."""
    nothing, own = np.zeros((num_agents, size)), (chains_apart,) if chains_apart else ()
    anchor = Anchor(nothing, np.zeros((*own, num_agents, size))) if has_anchor else None
    return Tuning(np.float64(1.0), np.int64(1), np.float64(1.0), whitening, anchor)


def anchor_of(tuning: Tuning | None) -> Anchor | None:
    """Where the control variate is, if there is one."""
    return None if tuning is None else tuning.anchor


def of_chains(tuning: Tuning | None, chains: slice) -> Tuning | None:
    """What is for some of the chains; all but the anchors of chains with data of their own is for all of them."""
    anchor = anchor_of(tuning)
    if tuning is None or anchor is None or anchor.gradient.ndim == 2:
        return tuning
    return tuning._replace(anchor=anchor._replace(gradient=anchor.gradient[chains]))


def coordinates_of(tuning: Tuning | None) -> tuple[Change, Change]:
    """From the sampler's coordinates to parameters, and from gradients there to those in its coordinates."""
    if tuning is None:
        return _same, _same
    return tuning.whitening.position, tuning.whitening.pulled_back


def _same(values: jax.Array) -> jax.Array:
    return values


def in_precision(tuning: Tuning | None, dtype: Any) -> Tuning | None:
    """The tuning with all its numbers in the precision of the run."""
    if tuning is None:
        return None
    numbers = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), tuning._replace(exchanges=()))
    return numbers._replace(exchanges=jnp.asarray(tuning.exchanges, jnp.int32))
