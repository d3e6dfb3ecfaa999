"""The largest curvature of the agents' potentials where they start, by power iteration."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from consilience.kernel.gradients import MANY_PARAMETERS, local_gradient
from consilience.kernel.parameters import Parameters, initial_positions
from consilience.kernel.quickly import for_work
from consilience.kernel.randomness import Purpose, agent_keys
from consilience.problems import Problem

_ROWS = 256
_ROWS_OF_LARGE_MODELS = 64
_POWER_ITERATIONS = 30


def largest_curvature(
    problem: Problem, seed: int, dtype: str, agents: np.ndarray | None = None, start: jax.Array | None = None
) -> float:
    """The largest curvature `max_i λ_max(∇²U_i)` where the agents of a run with that seed start, estimated.

    Power iteration with Hessian-vector products, on up to 256 rows of each shard (64 for a large model), scaled up to
    all of it. `agents` are the numbers of those whose shards the problem has, if it has not all of them. `start` is
    where they start in the first chain, `(num_agents, size)`, if that is known already: to find it out is to compile
    one more program.

    On private parameters a sampler's step has no factor `n`. There the curvature counts `n` times less: it is that of
    `S ∇²U_i S` with `S = 1` on shared and `n^(−1/2)` on private entries, whose product with `n` is what a step sees.
    """
    with jax.enable_x64(dtype == "float64"):
        return _largest_curvature(
            problem, seed, jnp.dtype(dtype), np.arange(problem.num_agents) if agents is None else agents, start
        )


def _largest_curvature(problem: Problem, seed: int, dtype: Any, agents: np.ndarray, start: jax.Array | None) -> float:
    parameters = Parameters.of(problem, dtype)
    if parameters.groups:
        return max(
            _largest_curvature(problem.of_agents(places), seed, dtype, agents[list(places)], None)
            for places, _ in parameters.groups
        )
    if start is None:
        keys = agent_keys(seed, Purpose.INIT, np.arange(1), agents)
        start = initial_positions(problem, parameters, keys, dtype)[0]
    most = _ROWS if parameters.size <= MANY_PARAMETERS else _ROWS_OF_LARGE_MODELS
    rows = int(min(most, problem.shard_sizes.max()))
    used = np.minimum(problem.shard_sizes, rows)
    weights = np.asarray(np.arange(rows) < used[:, None], dtype)
    data = jax.tree.map(lambda leaf: np.asarray(leaf)[:, :rows], problem.stacked_shards(dtype))
    gradient = local_gradient(problem, parameters)
    is_shared = np.arange(parameters.size) < parameters.num_shared
    counted = np.asarray(np.where(is_shared, 1.0, problem.prior_share**0.5), dtype)

    def one_agent(w: jax.Array, shard: Any, weights: jax.Array, scale: jax.Array) -> jax.Array:
        def hessian_times(v: jax.Array) -> jax.Array:
            if not parameters.private:
                return jax.jvp(lambda w: gradient(w, shard, weights, scale), (w,), (v,))[1]
            return counted * jax.jvp(lambda w: gradient(w, shard, weights, scale), (w,), (counted * v,))[1]

        def iterate(_: int, v: jax.Array) -> jax.Array:
            product = hessian_times(v)
            return product / (jnp.linalg.norm(product) + jnp.finfo(dtype).tiny)

        first = jax.random.normal(jax.random.key(0), w.shape, dtype)
        v = jax.lax.fori_loop(0, _POWER_ITERATIONS, iterate, first / jnp.linalg.norm(first))
        return v @ hessian_times(v)  # negative where the potential curves downwards, which is no stiffness

    scale = np.asarray(problem.shard_sizes / used, dtype)

    def by_agent(*arrays: Any) -> jax.Array:
        """One agent after the other: all at once could need a lot of memory."""
        return jax.lax.map(lambda own: one_agent(*own), arrays)

    work = _POWER_ITERATIONS * parameters.size * used.sum()
    curvatures = np.asarray(for_work(work, by_agent)(start, data, weights, scale))
    return max(0.0, float(np.where(np.isfinite(curvatures), curvatures, 0.0).max()))
