"""Anchors of control variates, and how much noise minibatches leave.

The noise is that of single rows, at draws of a window; of all rows, as a few that have what others have not may make
most of it (in large models of some). With `δ_r` the whitened gradient of row `r` less that at the anchor, a batch of
`B` of the agent's `m` rows has the variance

    m²/B · Var_r(δ_r) · (m − B)/(m − 1),

where the last factor is that of batches from shuffled epochs, and 1 for rows drawn with replacement.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from consilience.errors import DivergedError
from consilience.kernel.gradients import MANY_PARAMETERS, network_gradients
from consilience.kernel.parameters import Parameters
from consilience.kernel.variates import Anchor
from consilience.kernel.whitening import Whitening
from consilience.plans import Plan
from consilience.problems import Problem
from consilience.warmup.network import Network

_ROWS_OF_LARGE_MODELS = 64
_NUMBERS_AT_ONCE = 2**22


class Noise(NamedTuple):
    """Variances of the agents' minibatch gradients, `(agents, size)`, in whitened coordinates."""

    plain: np.ndarray
    anchored: np.ndarray
    """With the control variate; the same as `plain` without one."""


class BatchGradients:
    """Gradients of the agents of a problem from all rows, and from single ones."""

    def __init__(self, problem: Problem, plan: Plan) -> None:
        assert plan.batch_size is not None
        is_large = Parameters.of(problem, np.float32).size > MANY_PARAMETERS
        self.dtype = np.dtype(plan.dtype if is_large else np.float64)
        with self._precision():
            parameters = Parameters.of(problem, self.dtype)
            self._evaluate = jax.jit(network_gradients(problem, parameters), static_argnums=4)
            self._shards = problem.stacked_shards(self.dtype)
            self._chains = problem.stacked_replicas(self.dtype) if problem.chains_apart else None
        self.sizes, self._scale = problem.shard_sizes, np.ones(problem.num_agents, self.dtype)
        self._weights = (np.arange(self.sizes.max()) < self.sizes[:, None]).astype(self.dtype)
        self._choose_rows(_ROWS_OF_LARGE_MODELS if is_large else None, parameters.size)
        self._factor = self.sizes**2 / plan.batch_size
        if plan.batches == "shuffled":
            self._factor = self._factor * np.maximum(self.sizes - plan.batch_size, 0) / np.maximum(self.sizes - 1, 1)

    def _precision(self) -> AbstractContextManager[Any]:
        return jax.enable_x64(self.dtype == np.float64)

    def _choose_rows(self, most: int | None, size: int) -> None:
        """`(parts, rows at once, agents)`: each agent's rows, or so many that are evenly spread over them.

        An agent of fewer rows than others is filled up by rows that do not count.
        """
        self._count = self.sizes if most is None else np.minimum(most, self.sizes)
        parts = -(-int(self._count.max()) // max(1, _NUMBERS_AT_ONCE // (len(self.sizes) * size)))
        numbers = np.arange(-(-int(self._count.max()) // parts) * parts)[:, None]
        counts = numbers < self._count
        rows = np.where(counts, (numbers + 0.5) * self.sizes / self._count, 0).astype(int)
        self._rows, self._counts = (one.reshape(parts, -1, len(self.sizes)) for one in (rows, counts))

    def anchor(self, positions: np.ndarray) -> Anchor:
        """The anchor at positions `(agents, size)`: one pass over all rows, of every chain if each has its own."""
        with self._precision():
            where = jnp.asarray(positions, self.dtype)[None]

            def gradient(shards: Any) -> np.ndarray:
                found = self._evaluate(where, shards, self._weights, self._scale, False)
                return np.asarray(found[0], np.float64)

            if self._chains is None:
                found = gradient(self._shards)
            else:
                count = len(jax.tree.leaves(self._chains)[0])
                chains = (jax.tree.map(lambda leaf, one=one: leaf[one], self._chains) for one in range(count))
                found = np.stack([gradient(shards) for shards in chains])
        return Anchor(np.asarray(positions, np.float64), found)

    def noise(self, anchor: Anchor | None, whitening: Whitening, places: np.ndarray) -> Noise:
        """The mean over places `(draws, agents, size)` of the variances there."""
        plain, anchored = np.zeros(places.shape[1:]), np.zeros(places.shape[1:])
        for place in places:
            sums = np.zeros((4, *place.shape))
            for rows, counts in zip(self._rows, self._counts[..., None], strict=True):
                here = counts * self._by_row(place, rows, whitening)
                away = here if anchor is None else here - counts * self._by_row(anchor.position, rows, whitening)
                sums += np.stack([here.sum(0), (here**2).sum(0), away.sum(0), (away**2).sum(0)])
            means = sums / self._count[:, None]
            plain += np.maximum(means[1] - means[0] ** 2, 0)
            anchored += np.maximum(means[3] - means[2] ** 2, 0)
        factor = self._factor[:, None] / len(places)
        return Noise(factor * plain, factor * anchored)

    def _by_row(self, place: np.ndarray, rows: np.ndarray, whitening: Whitening) -> np.ndarray:
        """Whitened gradients of single rows `(rows, agents, size)`; each has the whole of what is no row's."""
        with self._precision():
            agents = np.arange(len(self.sizes))
            chosen = jax.tree.map(lambda leaf: leaf[agents, rows][:, :, None], self._shards)
            where = jnp.broadcast_to(jnp.asarray(place, self.dtype), (*rows.shape, place.shape[-1]))
            found = self._evaluate(where, chosen, None, self._scale, True)
            return np.asarray(whitening.pulled_back(found), np.float64)


def largest_noise(network: Network, noise: Noise, num_shared: int) -> np.ndarray:
    """`σ²`, the largest variance of a coordinate: without and with the control variate.

    The average of the agents, which follows the posterior, has the noise of all of them added up; private parameters
    have that of their agent.
    """
    both = np.stack(noise, 1)  # (agents, 2, size)
    own = both[..., num_shared:].max(-1, initial=0.0)
    found = network.summed(both[..., :num_shared], network.largest(own))
    if found is None:
        raise DivergedError("gradients are not finite where the warm-up has been: check the model for overflow")
    return np.maximum(found[0].max(-1), found[1].max(0))
