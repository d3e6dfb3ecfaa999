"""One step of every agent, written once: gradient, message, mixing, update.

Arrays have leading axes `(chains, agents, …)`. All agents' messages are read before any state is replaced. An engine
gives `gradients` and `disagreement`, which is where engines differ; one whose messages travel over a network takes
the step in pieces (`message_before` or `message_after`, the exchanges of `chebyshev.py`, `completed`), another takes
it whole (`one_step`).

Where a model has private parameters, they begin at the entry `private_start` of every vector. There an agent takes
the same step as a network of one: with the coefficients of a single agent, and its own message takes the place of the
mixed one. Messages hold what comes before. Other numbers of a state are those of the shared part.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from consilience.graphs import Graph
from consilience.kernel.chebyshev import mixed
from consilience.samplers import Gossip, Leaf, SpeaksFirst, SpeaksLast

Apart = Callable[[Callable[..., Any]], Callable[..., Any]]
"""From a part of a step to the same part, as something that a program runs by itself (`engines/program.py`)."""


class BothCoefficients(NamedTuple):
    """The numbers of one step of a model with private parameters."""

    shared: Any
    private: Any


def each(function: Any) -> Any:
    """Map over chains and agents."""
    return jax.vmap(jax.vmap(function))


def coefficients_of(sampler: Gossip, num_agents: int, dtype: Any, k: Any, private_start: int | None = None) -> Any:
    """The numbers of step `k`, in the precision of the run."""

    def numbers(count: int) -> Any:
        return jax.tree.map(lambda number: jnp.asarray(number, dtype), sampler.coefficients(k, count))

    return numbers(num_agents) if private_start is None else BothCoefficients(numbers(num_agents), numbers(1))


def shared_coefficients(coefficients: Any, private_start: int | None) -> Any:
    """Those of the shared parameters."""
    return coefficients if private_start is None else coefficients.shared


def one_step(
    sampler: Gossip,
    graph: Graph,
    state: Any,
    coefficients: Any,
    noise: jax.Array,
    gradients: Callable[[Any], Any],
    disagreement: Callable[[Any], Any],
    private_start: int | None = None,
    apart: Apart = lambda part: part,
) -> Any:
    """The states after a step.

    Args:
        sampler: the algorithm.
        graph: who talks to whom.
        state: of all agents here.
        coefficients: of this step.
        noise: standard normal numbers, shaped like the positions.
        gradients: from positions to `∇U_i`.
        disagreement: from messages to `Σ_j a_ij (m_i − m_j)`.
        private_start: where private parameters begin, if there are some.
        apart: what becomes of the parts of a step after the gradient, where it has several.
    """
    mixing = sampler.mixing(graph, shared_coefficients(coefficients, private_start))
    if isinstance(sampler, SpeaksFirst):
        message = message_before(sampler, state, private_start)
        heard = mixed(message, disagreement, mixing)
        gradient = gradients(each(sampler.position)(state))
        return completed(sampler, state, gradient, message, heard, coefficients, noise, private_start)

    def said(state: Any, gradient: Any) -> Any:
        return message_after(sampler, state, gradient, coefficients, noise, private_start)

    def mixed_and_completed(state: Any, gradient: Any, message: Any) -> Any:
        heard = mixed(message, disagreement, mixing)
        return completed(sampler, state, gradient, message, heard, coefficients, noise, private_start)

    gradient = gradients(each(sampler.position)(state))
    return apart(mixed_and_completed)(state, gradient, apart(said)(state, gradient))


def message_before(sampler: SpeaksFirst, state: Any, private_start: int | None = None) -> Any:
    """What agents say before their gradients are known."""
    return each(sampler.share)(_of_block(sampler, state, slice(private_start)))


def message_after(
    sampler: Any, state: Any, gradient: Any, coefficients: Any, noise: Any, private_start: int | None = None
) -> Any:
    """What agents say when their gradients are known."""
    assert isinstance(sampler, SpeaksLast)
    if private_start is not None:
        shared = slice(private_start)
        state, coefficients = _of_block(sampler, state, shared), coefficients.shared
        gradient, noise = gradient[..., shared], noise[..., shared]
    return each(lambda state, gradient, noise: sampler.share(state, gradient, coefficients, noise))(
        state, gradient, noise
    )


def completed(
    sampler: Gossip,
    state: Any,
    gradient: Any,
    message: Any,
    heard: Any,
    coefficients: Any,
    noise: Any,
    private_start: int | None = None,
) -> Any:
    """The states after a step whose messages have been mixed; `heard` is what came of them."""
    if private_start is not None:
        shared, private = slice(private_start), slice(private_start, None)
        new = completed(
            sampler, _of_block(sampler, state, shared), gradient[..., shared], message, heard,
            coefficients.shared, noise[..., shared],
        )  # fmt: skip
        alone = _alone(
            sampler, _of_block(sampler, state, private), gradient[..., private], coefficients.private,
            noise[..., private],
        )  # fmt: skip
        return _by_leaf(
            sampler, lambda kind, a, b: jnp.concatenate([a, b], -1) if kind is Leaf.VECTOR else a, new, alone
        )

    def one_agent(state: Any, gradient: Any, message: Any, heard: Any, noise: Any) -> Any:
        return sampler.step(state, gradient, message, heard, coefficients, noise)

    return each(one_agent)(state, gradient, message, heard, noise)


def _alone(sampler: Any, state: Any, gradient: Any, coefficients: Any, noise: Any) -> Any:
    """The states after a step of agents without neighbours, to whom mixing does nothing."""

    def one_agent(state: Any, gradient: Any, noise: Any) -> Any:
        first = isinstance(sampler, SpeaksFirst)
        message = sampler.share(state) if first else sampler.share(state, gradient, coefficients, noise)
        return sampler.step(state, gradient, message, message, coefficients, noise)

    return each(one_agent)(state, gradient, noise)


def _of_block(sampler: Gossip, state: Any, block: slice) -> Any:
    """A state with some of the entries of its vectors."""
    if block == slice(None):
        return state
    return _by_leaf(sampler, lambda kind, leaf: leaf[..., block] if kind is Leaf.VECTOR else leaf, state)


def _by_leaf(sampler: Gossip, function: Callable[..., Any], *states: Any) -> Any:
    """States made leaf by leaf from others, knowing what each leaf is."""
    return jax.tree.map(
        lambda kind, *parts: jax.tree.map(lambda *leaves: function(kind, *leaves), *parts),
        sampler.state_leaves, *states,
    )  # fmt: skip
