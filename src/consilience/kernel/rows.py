"""The rows that agents use in a step: their full shards, or minibatches of them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from consilience.kernel.randomness import replaced_rows, shuffled_rows
from consilience.plans import Plan
from consilience.problems import Problem


class Rows:
    """The shards of all agents, and the rows of them that a step uses.

    Where a problem holds a part of the agents, `all_sizes` are the sizes of everybody's shards: arrays then have the
    shapes that they have everywhere.
    """

    def __init__(self, problem: Problem, plan: Plan, dtype: Any, all_sizes: np.ndarray | None = None) -> None:
        self.batch_size, self.batches = plan.batch_size, plan.batches
        self.sizes = problem.shard_sizes
        everybody = self.sizes if all_sizes is None else all_sizes
        longest = int(everybody.max())
        self.per_chain = problem.replicas is not None
        self.stacked = problem.stacked_shards(dtype, longest)
        self._shards = problem.stacked_replicas(dtype, longest) if self.per_chain else self.stacked
        self.row_weights = None
        self.scale = jnp.asarray(np.ones(len(self.sizes)), dtype)
        if self.batch_size is not None:
            self.scale = jnp.asarray(self.sizes / self.batch_size, dtype)
        elif len(set(everybody)) > 1:
            mask = np.arange(longest) < self.sizes[:, None]
            self.row_weights = jnp.asarray(mask, dtype)

    @property
    def arrays(self) -> Any:
        """Shards, row weights and the scale of the likelihood, as gradients take them."""
        return self._shards, self.row_weights, self.scale

    def chosen_rows(self, keys: jax.Array, k: Any, sizes: Any = None) -> jax.Array | None:
        """`(chains, agents, batch_size)` row numbers for step `k`, or `None` for the full shards.

        `sizes` are the shards' sizes, if not known when the program is made.
        """
        batch_size = self.batch_size
        if batch_size is None:
            return None
        choose = shuffled_rows if self.batches == "shuffled" else replaced_rows
        sizes = jnp.asarray(self.sizes) if sizes is None else sizes
        per_agent = jax.vmap(lambda key, size: choose(key, k, size, batch_size))
        return jax.vmap(lambda chain: per_agent(chain, sizes))(keys)

    def used(self, data: Any, rows: jax.Array | None) -> Any:
        """The data of the given rows, `(chains, agents, batch_size, …)`, or the full shards."""
        if rows is None:
            return data
        agents = jnp.arange(rows.shape[1])[:, None]
        if self.per_chain:
            chains = jnp.arange(rows.shape[0])[:, None, None]
            return jax.tree.map(lambda leaf: leaf[chains, agents, rows], data)
        return jax.tree.map(lambda leaf: leaf[agents, rows], data)
