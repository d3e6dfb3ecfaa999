"""One step of every agent, written once: gradient, message, mixing, update.

Arrays have leading axes `(chains, agents, …)`. All agents' messages are read before any state is replaced. An engine
gives `gradients` and `disagreement`, which is where engines differ; one whose messages travel over a network takes
the step in pieces (`message_before`, `message_after`, `completed`), another takes it whole (`one_step`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from consilience.samplers import Sampler, SpeaksFirst, SpeaksLast


def each(function: Any) -> Any:
    """Map over chains and agents."""
    return jax.vmap(jax.vmap(function))


def coefficients_of(sampler: Sampler, num_agents: int, dtype: Any, k: Any) -> Any:
    """The numbers of step `k`, in the precision of the run."""
    return jax.tree.map(lambda number: jnp.asarray(number, dtype), sampler.coefficients(k, num_agents))


def one_step(
    sampler: Sampler,
    state: Any,
    coefficients: Any,
    noise: jax.Array,
    gradients: Callable[[Any], Any],
    disagreement: Callable[[Any], Any],
) -> Any:
    """The states after a step.

    Args:
        sampler: the algorithm.
        state: of all agents here.
        coefficients: of this step.
        noise: standard normal numbers, shaped like the positions.
        gradients: from positions to `∇U_i`.
        disagreement: from messages to `Σ_j a_ij (m_i − m_j)`.
    """
    if isinstance(sampler, SpeaksFirst):
        message = message_before(sampler, state)
        apart = disagreement(message)
        gradient = gradients(each(sampler.position)(state))
    else:
        gradient = gradients(each(sampler.position)(state))
        message = message_after(sampler, state, gradient, coefficients, noise)
        apart = disagreement(message)
    return completed(sampler, state, gradient, message, apart, coefficients, noise)


def message_before(sampler: SpeaksFirst, state: Any) -> Any:
    """What agents say before their gradients are known."""
    return each(sampler.share)(state)


def message_after(sampler: Any, state: Any, gradient: Any, coefficients: Any, noise: Any) -> Any:
    """What agents say when their gradients are known."""
    assert isinstance(sampler, SpeaksLast)
    return each(lambda state, gradient, noise: sampler.share(state, gradient, coefficients, noise))(
        state, gradient, noise
    )


def completed(
    sampler: Sampler, state: Any, gradient: Any, message: Any, disagreement: Any, coefficients: Any, noise: Any
) -> Any:
    """The states after a step whose messages have been exchanged."""

    def one_agent(state: Any, gradient: Any, message: Any, disagreement: Any, noise: Any) -> Any:
        mixed = sampler.mix(message, disagreement, coefficients)
        return sampler.step(state, gradient, message, mixed, coefficients, noise)

    return each(one_agent)(state, gradient, message, disagreement, noise)
