"""The agents' potentials `U_i` in double precision: values, gradients and Hessians at any point.

This is for analysis, not for sampling: it goes through the agents one after the other, so that memory stays that of
one shard.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from consilience.problems import Parameters, Problem, initial_positions

_COLUMNS_AT_ONCE = 16


class Potentials:
    """All agents' potentials of a problem, as functions of one flat vector of `size` parameters."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.num_agents = problem, problem.num_agents
        with jax.enable_x64(True):
            self.parameters = Parameters.of(problem, jnp.float64)
            self._data = problem.stacked_shards(jnp.float64)
        self.size = self.parameters.size
        self._weights = (np.arange(problem.shard_sizes.max()) < problem.shard_sizes[:, None]).astype(float)

    def value(self, point: np.ndarray) -> float:
        """`U(w) = Σ_i U_i(w)`, up to a constant."""
        return float(self._run(self._programs["value"], point).sum())

    def gradients(self, point: np.ndarray) -> np.ndarray:
        """`(n, size)` gradients `∇U_i(w)`."""
        return self._run(self._programs["gradient"], point)

    def hessians(self, point: np.ndarray) -> np.ndarray:
        """`(n, size, size)` Hessians `∇²U_i(w)`."""
        found = self._run(self._programs["hessian"], point)
        return (found + found.swapaxes(1, 2)) / 2

    def hessian_times(self, point: np.ndarray, vector: np.ndarray) -> np.ndarray:
        """`(n, size)` products `∇²U_i(w) v`."""
        return self._run(self._programs["product"], point, vector)

    def own_gradients(self, positions: np.ndarray) -> np.ndarray:
        """`(…, n, size)` gradients `∇U_i(w_i)` of agents that stand at different points `(…, n, size)`."""
        flat = np.asarray(positions, float).reshape(-1, *positions.shape[-2:])
        return self._run(self._programs["own"], flat).reshape(positions.shape)

    def starts(self, count: int, seed: int = 0) -> np.ndarray:
        """`(count, size)` independent draws of where an agent starts."""
        with jax.enable_x64(True):
            keys = jax.random.split(jax.random.key(seed), count)
            return np.asarray(initial_positions(self.problem, self.parameters, keys, jnp.float64))

    def _run(self, program: Any, *points: np.ndarray) -> np.ndarray:
        with jax.enable_x64(True):
            return np.asarray(program(*(jnp.asarray(point, jnp.float64) for point in points)))

    @cached_property
    def _programs(self) -> dict[str, Any]:
        problem, parameters = self.problem, self.parameters

        def potential(w: jax.Array, rows: Any, weights: jax.Array) -> jax.Array:
            tree = parameters.unravel(w)
            each = problem.log_likelihood(tree, rows)
            return -(each * weights).sum() - problem.log_prior(tree) / problem.num_agents

        gradient = jax.grad(potential)

        def product(w: jax.Array, rows: Any, weights: jax.Array, v: jax.Array) -> jax.Array:
            return jax.jvp(lambda w: gradient(w, rows, weights), (w,), (v,))[1]

        def hessian(w: jax.Array, rows: Any, weights: jax.Array) -> jax.Array:
            columns = jnp.eye(self.size)
            return jax.lax.map(lambda v: product(w, rows, weights, v), columns, batch_size=_COLUMNS_AT_ONCE)

        def by_agent(function: Any) -> Any:
            def everywhere(w: jax.Array, *more: jax.Array) -> jax.Array:
                return jax.lax.map(lambda own: function(w, *own, *more), (self._data, self._weights))

            return jax.jit(everywhere)

        def own(positions: jax.Array) -> jax.Array:
            agents = (self._data, self._weights, jnp.moveaxis(positions, 1, 0))
            each = jax.lax.map(lambda a: jax.lax.map(lambda w: gradient(w, a[0], a[1]), a[2]), agents)
            return jnp.moveaxis(each, 0, 1)

        programs = {
            "value": potential, "gradient": gradient, "hessian": hessian, "product": product
        }  # fmt: skip
        return {name: by_agent(function) for name, function in programs.items()} | {"own": jax.jit(own)}
