"""Gradients of the agents' potentials: of one agent, and of all agents and chains at once.

How they are computed depends on the size of the model and on its own operations, never on timing:

- *few parameters*, and no products of matrices: every agent and chain is a lane of one long axis, for each row;
- *some*: mapped over agents and chains side by side (`vmap`), so that products of matrices stay what they are;
- *many*: one agent after the other, a few rows at a time. The gradient of a sum over rows is the sum of gradients, so
  what a few rows need stays in cache, and memory does not grow with the minibatch.

Agents whose private parameters differ in length are evaluated in groups of equal shapes: a model never sees filling.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from consilience.kernel.grouping import by_group
from consilience.kernel.operations import multiplies_matrices, parameters_first
from consilience.kernel.parameters import Parameters, log_densities, potential
from consilience.problems import Problem

_FEW_PARAMETERS = 8
MANY_PARAMETERS = 5000
_ROWS_AT_ONCE = 128

Gradient = Callable[[jax.Array, Any, jax.Array | None, Any], jax.Array]
NetworkGradients = Callable[[jax.Array, Any, jax.Array | None, jax.Array, bool], jax.Array]
NetworkPotentials = Callable[[jax.Array, Any, jax.Array | None, jax.Array, bool], tuple[jax.Array, jax.Array]]


def local_gradient(problem: Problem, parameters: Parameters) -> Gradient:
    """The function `(w, rows, row_weights, scale) -> ∇U_i(w)` over the flat vector `w`.

    `row_weights` (or `None` for all ones) multiplies each row's log-likelihood and `scale` their sum: 1 for a
    full shard, `m_i/B` for a minibatch.
    """

    def whole(w: jax.Array, rows: Any, row_weights: jax.Array | None, scale: Any) -> jax.Array:
        return jax.grad(lambda w: potential(problem, parameters, w, rows, row_weights, scale))(w)

    if parameters.size <= MANY_PARAMETERS:
        return whole

    @jax.grad
    def likelihood(tree: Any, rows: Any, row_weights: jax.Array | None) -> jax.Array:
        each = problem.log_likelihood(tree, rows)
        return each.sum() if row_weights is None else (each * row_weights).sum()

    def in_parts(w: jax.Array, rows: Any, row_weights: jax.Array | None, scale: Any) -> jax.Array:
        count = jax.tree.leaves(rows)[0].shape[0]
        parts = count // _ROWS_AT_ONCE
        used = parts * _ROWS_AT_ONCE
        tree, to_vector = jax.vjp(parameters.unravel, w)

        def split(leaf: jax.Array) -> jax.Array:
            return leaf[:used].reshape(parts, _ROWS_AT_ONCE, *leaf.shape[1:])

        def add(total: Any, part: Any) -> tuple[Any, None]:
            return jax.tree.map(jnp.add, total, likelihood(tree, *part)), None

        given = (rows, row_weights)
        total = jax.tree.map(jnp.zeros_like, tree)
        if parts:
            total, _ = jax.lax.scan(add, total, jax.tree.map(split, given))
        if used < count:
            total, _ = add(total, jax.tree.map(lambda leaf: leaf[used:], given))
        return -scale * to_vector(total)[0] - _beside_rows(problem, parameters, lambda gradient: gradient(w))

    return in_parts


def _multiplies(problem: Problem, parameters: Parameters) -> bool:
    """Whether the model's likelihood is made of products of matrices."""
    w = jax.ShapeDtypeStruct((parameters.size,), "float32")
    row = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((1, *leaf.shape[1:]), leaf.dtype), problem.shards[0])
    return multiplies_matrices(lambda w, row: problem.log_likelihood(parameters.unravel(w), row), w, row)


def _beside_rows(problem: Problem, parameters: Parameters, at: Callable[[Any], jax.Array]) -> jax.Array:
    """The gradient of what an agent's log-posterior has besides its rows; `at` evaluates it where it is wanted."""
    if parameters.is_plain:
        return problem.prior_share * at(jax.grad(lambda w: problem.log_prior(parameters.unravel(w))))
    return at(jax.grad(lambda w: log_densities(problem, parameters, w)))


def network_gradients(problem: Problem, parameters: Parameters) -> NetworkGradients:
    """The gradients of all chains and agents at once: `(positions, rows, row_weights, scale, rows_per_chain)`.

    Shapes: positions and gradients `(chains, agents, size)`; rows `(agents, rows, …)`, or `(chains, agents,
    rows, …)` if every chain has its own; row weights `(agents, rows)` or `None`; scale `(agents,)`.

    With few parameters every agent and chain becomes one lane of a single long axis, on which each row is evaluated,
    and the rows are then summed by one product. Compilers vectorise over one long axis, not over several short ones;
    with chains last, neighbouring lanes have neighbouring numbers, and sums go along lanes (on CPU, mixture, 16
    chains: twice as fast as with rows last). With many parameters it would cost memory for nothing, and a product of
    matrices it would take apart into one small product for each row.
    """
    if parameters.groups:
        return by_group(problem, parameters, network_gradients)
    if parameters.size > MANY_PARAMETERS:
        return one_after_the_other(local_gradient(problem, parameters))
    if parameters.size > _FEW_PARAMETERS or _multiplies(problem, parameters):
        return _side_by_side(local_gradient(_parameters_first(problem), parameters))

    def one_row(w: jax.Array, row: Any) -> Any:
        single = jax.tree.map(lambda leaf: leaf[None], row)
        if not parameters.is_plain:
            return jax.grad(lambda w: problem.log_likelihood(parameters.unravel(w), single)[0])(w)
        return jax.grad(lambda tree: problem.log_likelihood(tree, single)[0])(parameters.unravel(w))

    def all_rows(w: jax.Array, rows: Any, weights: Any, scale: jax.Array, rows_per_chain: bool) -> jax.Array:
        chains, agents, size = w.shape
        num_rows = jax.tree.leaves(rows)[0].shape[2 if rows_per_chain else 1]

        def to_lanes(leaf: jax.Array) -> jax.Array:
            of_chains = leaf if rows_per_chain else leaf[None]
            by_row = jnp.moveaxis(of_chains, (2, 1, 0), (0, 1, 2))
            rest = by_row.shape[3:]
            return jnp.broadcast_to(by_row, (num_rows, agents, chains, *rest)).reshape(num_rows, -1, *rest)

        of_lanes = jax.vmap(one_row, (-1, 0))
        each = jax.vmap(of_lanes, (None, 0))(w.T.reshape(size, -1), jax.tree.map(to_lanes, rows))
        ones = jnp.ones(num_rows, w.dtype)

        def total(leaf: jax.Array) -> jax.Array:
            by_row = leaf.reshape(num_rows, agents * chains, -1)
            if weights is not None:
                by_row = by_row * jnp.repeat(weights.T, chains, 1)[:, :, None]
            return jnp.moveaxis((ones @ by_row.reshape(num_rows, -1)).reshape(agents, chains, -1), 1, 0)

        likelihood = jnp.concatenate([total(leaf) for leaf in jax.tree.leaves(each)], -1)
        beside = _beside_rows(problem, parameters, lambda gradient: jax.vmap(jax.vmap(gradient))(w))
        return -scale[:, None] * likelihood - beside

    return all_rows


def local_potential(problem: Problem, parameters: Parameters) -> Callable[..., tuple[jax.Array, jax.Array]]:
    """The function `(w, rows, row_weights, scale) -> (U_i(w), ∇U_i(w))`, with the arguments of `local_gradient`."""

    def whole(w: jax.Array, rows: Any, row_weights: jax.Array | None, scale: Any) -> tuple[jax.Array, jax.Array]:
        return jax.value_and_grad(lambda w: potential(problem, parameters, w, rows, row_weights, scale))(w)

    if parameters.size <= MANY_PARAMETERS:
        return whole
    gradient = local_gradient(problem, parameters)

    def apart(w: jax.Array, rows: Any, row_weights: jax.Array | None, scale: Any) -> tuple[jax.Array, jax.Array]:
        """The value costs a forward pass of its own, without the memory that a gradient of all rows needs."""
        value = potential(problem, parameters, w, rows, row_weights, scale)
        return value, gradient(w, rows, row_weights, scale)

    return apart


def network_potentials(problem: Problem, parameters: Parameters) -> NetworkPotentials:
    """Values `(chains, agents)` and gradients `(chains, agents, size)` of all potentials, as `network_gradients`.

    The value is all of `U_i`, up to a constant of the model: rows, private parameters, the share of the prior, and
    Jacobians.
    """
    if parameters.groups:
        return by_group(problem, parameters, network_potentials)
    if parameters.size > MANY_PARAMETERS:
        return one_after_the_other(local_potential(problem, parameters))
    return _side_by_side(local_potential(_parameters_first(problem), parameters))


def _parameters_first(problem: Problem) -> Problem:
    """The problem with the products of its likelihood in the order that suits many chains."""
    return replace(problem, log_likelihood=parameters_first(problem.log_likelihood))


def _side_by_side(one_agent: Any) -> Any:
    """What one agent's function gives for all chains and agents, mapped over them."""
    one_chain = jax.vmap(one_agent)
    shared = jax.vmap(one_chain, in_axes=(0, None, None, None))
    own = jax.vmap(one_chain, in_axes=(0, 0, None, None))
    return lambda w, rows, weights, scale, rows_per_chain: (own if rows_per_chain else shared)(
        w, rows, weights, scale
    )


def one_after_the_other(one_agent: Any) -> Any:
    """What one agent's function gives for all chains and agents, in turn: what one needs is needed once."""

    def all_agents(w: jax.Array, rows: Any, weights: Any, scale: jax.Array, rows_per_chain: bool) -> Any:
        def one_chain(positions: jax.Array, rows: Any) -> Any:
            return jax.lax.map(lambda own: one_agent(*own), (positions, rows, weights, scale))

        if rows_per_chain:
            return jax.lax.map(lambda own: one_chain(*own), (w, rows))
        return jax.lax.map(lambda positions: one_chain(positions, rows), w)

    return all_agents
