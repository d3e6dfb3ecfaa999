"""Agents whose private parameters differ in length, evaluated with the shapes that are their own.

Two ways. Where it is known which agents there are when a program is made, agents of equal shapes go side by side,
group by group. Where devices run one program for agents of different groups, one agent after the other takes the
branch of its own group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from consilience.kernel.parameters import Parameters
from consilience.problems import Problem

Evaluated = Callable[..., Any]
"""From positions, rows, row weights, scale and `rows_per_chain` to arrays `(chains, agents, …)`."""
Make = Callable[[Problem, Parameters], Evaluated]


def by_group(problem: Problem, parameters: Parameters, make: Make) -> Evaluated:
    """What `make` gives for each group of agents, in the order of the agents; gradients of filling are 0."""
    parts = [
        (np.array(places), int(problem.shard_sizes[list(places)].max()), _filled(problem, parameters, place, make))
        for place, (places, _) in enumerate(parameters.groups)
    ]
    order = np.argsort(np.concatenate([places for places, _, _ in parts]))

    def all_agents(w: jax.Array, rows: Any, weights: Any, scale: jax.Array, rows_per_chain: bool) -> Any:
        found = []
        for places, longest, evaluate in parts:
            count = None if weights is None else longest  # rows beyond that are filling
            own = (slice(None), places, slice(count)) if rows_per_chain else (places, slice(count))
            some = jax.tree.map(lambda leaf, own=own: leaf[own], rows)
            chosen = None if weights is None else weights[places, :count]
            found.append(evaluate(w[:, places], some, chosen, scale[places], rows_per_chain))
        return jax.tree.map(lambda *leaves: jnp.concatenate(leaves, 1)[:, order], *found)

    return all_agents


def by_number(problem: Problem, parameters: Parameters, make: Make) -> Callable[[jax.Array], Evaluated]:
    """The same where the agents are known to the program only by the numbers `(agents,)` of their groups."""
    branches = [_filled(problem, parameters, place, make) for place, _ in enumerate(parameters.groups)]

    def of_numbers(numbers: jax.Array) -> Evaluated:
        def all_agents(w: jax.Array, rows: Any, weights: Any, scale: jax.Array, rows_per_chain: bool) -> Any:
            def one_agent(own: Any) -> Any:
                number, w, rows, weights, scale = own
                rows = jax.tree.map(lambda leaf: leaf[:, None] if rows_per_chain else leaf[None], rows)
                given = (w[:, None], rows, None if weights is None else weights[None], scale[None])
                calls = [lambda given, branch=branch: branch(*given, rows_per_chain) for branch in branches]
                return jax.tree.map(lambda leaf: leaf[:, 0], jax.lax.switch(number, calls, given))

            if rows_per_chain:
                rows = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 1, 0), rows)
            found = jax.lax.map(one_agent, (numbers, jnp.moveaxis(w, 1, 0), rows, weights, scale))
            return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, 1), found)

        return all_agents

    return of_numbers


def group_numbers(parameters: Parameters) -> np.ndarray | None:
    """`(agents,)` the number of each agent's group; `None` if there is only one."""
    if not parameters.groups:
        return None
    found = {place: number for number, group in enumerate(parameters.groups) for place in group.places}
    return np.array([found[place] for place in range(len(found))], np.int32)


def _filled(problem: Problem, parameters: Parameters, number: int, make: Make) -> Evaluated:
    """What `make` gives for one group, from positions with filling; vectors are filled up again with zeros."""
    places, own = parameters.groups[number]
    evaluate = make(problem.of_agents(places), own)

    def of_group(w: jax.Array, *others: Any) -> Any:
        found = evaluate(w[..., : own.size], *others)

        def fill(leaf: jax.Array) -> jax.Array:
            """Values `(chains, agents)` have no filling, vectors have."""
            return jnp.pad(leaf, ((0, 0), (0, 0), (0, parameters.size - own.size))) if leaf.ndim == w.ndim else leaf

        return jax.tree.map(fill, found)

    return of_group
