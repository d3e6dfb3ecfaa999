"""The rows that agents use in a step: their full shards, or minibatches of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import cycle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from consilience.kernel.lengths import by_length, places_by_length
from consilience.kernel.randomness import replaced_rows, shuffled_rows
from consilience.plans import Plan
from consilience.problems import Problem


class Rows:
    """The shards of all agents, and the rows of them that a step uses.

    Where steps use all rows, programs hold long tables of them with the rows last, and agents group by group where
    their shards differ much in length; `used` and `evaluated` are what undoes both.

    Where a problem holds a part of the agents, `all_sizes` are the sizes of everybody's shards: arrays then have the
    shapes that they have everywhere, and there are no groups. `grouped=False` says that agents are grouped elsewhere.
    """

    def __init__(
        self, problem: Problem, plan: Plan, dtype: Any, all_sizes: np.ndarray | None = None, grouped: bool = True
    ) -> None:
        self.batch_size, self.batches = plan.batch_size, plan.batches
        self.sizes = problem.shard_sizes
        everybody = self.sizes if all_sizes is None else all_sizes
        longest = int(everybody.max())
        self._stacked = lambda: problem.stacked_shards(dtype, longest)
        self._numbers_of_a_row = _numbers_of_a_row(problem)
        self.per_chain = problem.replicas is not None
        self.groups = None
        self._is_long: list[Any] = []  # of each array of a shard: whether it is a table that lies with rows last
        self.row_weights: Any = None
        self.scale = jnp.asarray(np.ones(len(self.sizes), dtype))
        if self.batch_size is not None:
            self.scale = jnp.asarray(np.asarray(self.sizes / self.batch_size, dtype))
        elif len(set(everybody)) > 1:
            self.row_weights = _mask(self.sizes, longest, dtype)
        if self.per_chain:
            self._shards = problem.stacked_replicas(dtype, longest)
            return
        if self.batch_size is None:
            self._is_long = [np.ndim(leaf) == 2 and np.shape(leaf)[1] <= longest for leaf in _leaves(problem)]
        if self.row_weights is not None and all_sizes is None and grouped:
            groups = places_by_length(self.sizes, plan.num_chains * self._numbers_of_a_row)
            if len(groups) > 1:
                self.groups = groups
                self.row_weights = tuple(_mask(self.sizes[own], int(self.sizes[own].max()), dtype) for own in groups)
                each = [problem.of_agents(own.tolist()).stacked_shards(dtype) for own in groups]
                self._shards = self._turned(tuple(each), 1, 2)
                return
        self._shards = self._turned(self.stacked, 1, 2)

    @property
    def stacked(self) -> Any:
        """All shards as arrays `(agents, rows, …)`, made anew."""
        return self._stacked()

    @property
    def numbers_of_a_step(self) -> int:
        """How many numbers of data all agents of one chain read in a step."""
        rows = self.sizes.sum() if self.batch_size is None else self.batch_size * len(self.sizes)
        return int(rows) * self._numbers_of_a_row

    def evaluated(self, evaluate: Callable[..., Any]) -> Callable[..., Any]:
        """A function of positions, what `used` gives, row weights and so on, from one for agents side by side."""
        return evaluate if self.groups is None else by_length(self.groups, evaluate)

    @property
    def arrays(self) -> Any:
        """Shards, row weights and the scale of the likelihood, as programs hold them."""
        return self._shards, self.row_weights, self.scale

    def _turned(self, data: Any, source: int, to: int) -> Any:
        """Long tables `(agents, rows, columns)` as `(agents, columns, rows)` or back, of all agents or groups.

        Products with few columns then go along the rows. In a program it is only the order in which data is read.
        """

        def turned(leaf: Any) -> jax.Array:
            if isinstance(leaf, jax.core.Tracer):
                return jnp.moveaxis(leaf, source, to)
            return jnp.asarray(np.moveaxis(np.asarray(leaf), source, to))  # without a program for each shape

        leaves, structure = jax.tree.flatten(data)
        each = zip(leaves, cycle(self._is_long or [False]), strict=False)
        return jax.tree.unflatten(structure, [turned(leaf) if is_long else leaf for leaf, is_long in each])

    def chosen_rows(self, keys: jax.Array, steps: jax.Array, sizes: Any = None) -> jax.Array | None:
        """`(steps, chains, agents, batch_size)` row numbers, or `None` for the full shards.

        `sizes` are the shards' sizes, if not known when the program is made.
        """
        batch_size = self.batch_size
        if batch_size is None:
            return None
        sizes = jnp.asarray(self.sizes) if sizes is None else sizes
        if self.batches == "shuffled":
            return shuffled_rows(keys, steps, sizes, batch_size)
        per_agent = jax.vmap(lambda key, step, size: replaced_rows(key, step, size, batch_size), (0, None, 0))
        per_chain = jax.vmap(per_agent, (0, None, None))
        return jax.vmap(per_chain, (None, 0, None))(keys, steps, sizes)

    def used(self, data: Any, rows: jax.Array | None = None) -> Any:
        """The data of the given rows, `(chains, agents, batch_size, …)`, or the full shards."""
        if rows is None:
            return self._turned(data, 2, 1)
        agents = jnp.arange(rows.shape[1])[:, None]
        if self.per_chain:
            chains = jnp.arange(rows.shape[0])[:, None, None]
            return jax.tree.map(lambda leaf: leaf[chains, agents, rows], data)
        return jax.tree.map(lambda leaf: leaf[agents, rows], data)


def _numbers_of_a_row(problem: Problem) -> int:
    """How many numbers of data a row is."""
    return sum(math.prod(np.shape(leaf)[1:]) for leaf in _leaves(problem))


def _leaves(problem: Problem) -> list[Any]:
    """The arrays of a shard."""
    return jax.tree.leaves(problem.shards[0])


def _mask(sizes: np.ndarray, longest: int, dtype: Any) -> jax.Array:
    """`(agents, rows)`: 1 for an agent's own rows, 0 for filling."""
    return jnp.asarray(np.asarray(np.arange(longest) < sizes[:, None], dtype))
