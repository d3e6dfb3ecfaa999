"""Curvature of models too large for Hessians: power iteration with sums of Hessian-vector products.

On a part of each agent's rows, scaled up to all of them. The vector of the iteration has the shared parameters, the
same at all agents, and each agent's own private ones.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from consilience.errors import DivergedError
from consilience.kernel.gradients import MANY_PARAMETERS, local_gradient
from consilience.kernel.grouping import by_group
from consilience.kernel.parameters import Parameters
from consilience.kernel.whitening import Diagonal
from consilience.problems import Problem
from consilience.warmup.curvature import Curvature
from consilience.warmup.network import Network

_ROWS, _ROWS_OF_LARGE_MODELS = 256, 64
_ITERATIONS = 12
_QUANTILE = 0.9
_LEAST_CURVATURE = 1e-3


class LargePotentials:
    """Hessian-vector products of the agents of a problem."""

    def __init__(self, problem: Problem, dtype: Any) -> None:
        self.parameters = Parameters.of(problem, dtype)
        self.dtype = jnp.dtype(dtype)
        most = _ROWS if self.parameters.size <= MANY_PARAMETERS else _ROWS_OF_LARGE_MODELS
        rows = int(min(most, problem.shard_sizes.max()))
        used = np.minimum(problem.shard_sizes, rows)
        self._weights = jnp.asarray(np.arange(rows) < used[:, None], dtype)
        self._scale = jnp.asarray(problem.shard_sizes / used, dtype)
        self._rows = jax.tree.map(lambda leaf: leaf[:, :rows], problem.stacked_shards(dtype))
        self._products = jax.jit(self._made(problem))

    def _made(self, problem: Problem) -> Any:
        def make(problem: Problem, parameters: Parameters) -> Any:
            gradient = local_gradient(problem, parameters)

            def one_agent(both: jax.Array, rows: Any, weights: jax.Array, scale: Any) -> jax.Array:
                w, v = both[0], both[1]
                return jax.jvp(lambda w: gradient(w, rows, weights, scale), (w,), (v,))[1]

            def all_agents(both: jax.Array, rows: Any, weights: Any, scale: Any, _: bool) -> jax.Array:
                """Positions and vectors `(2, agents, size)`."""
                pairs = jnp.swapaxes(both, 0, 1)
                return jax.lax.map(lambda own: one_agent(*own), (pairs, rows, weights, scale))[None]

            return all_agents

        whole = by_group(problem, self.parameters, make) if self.parameters.groups else make(problem, self.parameters)

        def products(positions: jax.Array, vectors: jax.Array) -> jax.Array:
            both = jnp.stack([positions, vectors])
            return whole(both, self._rows, self._weights, self._scale, False)[0]

        return products

    def times(self, positions: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        """`∇²U_i(w) v` of all agents, `(agents, size)` each."""
        given = (jnp.asarray(values, self.dtype) for values in (positions, vectors))
        return np.asarray(self._products(*given), np.float64)


def large_curvature(
    potentials: LargePotentials, network: Network, whitening: Diagonal, places: np.ndarray
) -> Curvature:
    """`Λ` and `ℓ` at positions `(draws, agents here, size)`."""
    d, agents = potentials.parameters.num_shared, len(network.agents)
    scales = np.concatenate([np.broadcast_to(whitening.scale, (agents, d)), whitening.own_scale], 1)
    first = np.random.default_rng(0).normal(size=d)
    own = np.random.default_rng(1).normal(size=scales.shape[1] - d)
    start = np.concatenate([np.broadcast_to(first, (agents, d)), np.broadcast_to(own, (agents, len(own)))], 1)
    together = [_together(potentials, network, place, scales, start) for place in places]
    alone = np.stack([_alone(potentials, place, scales, start) for place in places])  # (draws, agents)
    found = network.summed(network.largest(alone.T))
    if found is None:
        raise DivergedError("curvatures are not finite where the warm-up has been: check the model for overflow")
    largest = max(float(np.quantile(together, _QUANTILE)), _LEAST_CURVATURE)
    most = float(np.quantile(network.num_agents * found[0].max(0), _QUANTILE))
    return Curvature(largest, max(1.0, most / largest))


def _together(
    potentials: LargePotentials, network: Network, place: np.ndarray, scales: np.ndarray, start: np.ndarray
) -> float:
    """The largest eigenvalue's magnitude of the whole network's Hessian at one draw."""
    d, vectors, size = potentials.parameters.num_shared, start, 0.0
    for _ in range(_ITERATIONS):
        products = scales * potentials.times(place, scales * vectors)
        own, before = products[:, d:], vectors[:, d:]
        found = network.summed(products[:, :d], (own**2).sum(1), (before**2).sum(1))
        if found is None:
            raise DivergedError("curvatures are not finite where the warm-up has been: check the model for overflow")
        shared, squares, earlier = found
        norm = float(np.sqrt((shared**2).sum() + squares))
        size = norm / float(np.sqrt((vectors[0, :d] ** 2).sum() + earlier))
        vectors = np.concatenate([np.broadcast_to(shared, (len(products), d)), own], 1) / max(norm, 1e-300)
    return size


def _alone(potentials: LargePotentials, place: np.ndarray, scales: np.ndarray, start: np.ndarray) -> np.ndarray:
    """`(agents,)` the same of each agent's own Hessian, which needs nobody else."""
    vectors, size = start, np.zeros(len(start))
    for _ in range(_ITERATIONS):
        products = scales * potentials.times(place, scales * vectors)
        norm = np.sqrt((products**2).sum(1))
        size = norm / np.sqrt((vectors**2).sum(1))
        vectors = products / np.maximum(norm, 1e-300)[:, None]
    return size
