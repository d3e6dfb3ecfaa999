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

from consilience.errors import ProblemError
from consilience.kernel.parameters import Parameters, initial_positions, potential
from consilience.kernel.quickly import compiled_quickly, for_work
from consilience.problems import Problem

_STARTS = 4096
_SOME_STARTS = 8
_AT_ONCE = 16
_CALLS = 300  # of a program, about


def require_all_shared(problem: Problem) -> None:
    """Check that a problem is one that the theory speaks about: agents share all parameters, as they are."""
    if problem.private:
        raise ProblemError(
            f"the theory is for agents that share all parameters; {', '.join(problem.private)} is private here"
        )
    if problem.constraints:
        raise ProblemError(
            "the theory is for parameters without constraints, as it compares them with draws; here "
            f"{', '.join(problem.constraints)} has one"
        )
    if not callable(problem.init):
        raise ProblemError("the theory is for agents that start by the same function; here each has its own init")


class Potentials:
    """All agents' potentials of a problem, as functions of one flat vector of `size` parameters."""

    def __init__(self, problem: Problem) -> None:
        require_all_shared(problem)
        self.problem, self.num_agents = problem, problem.num_agents
        with jax.enable_x64(True):
            self.parameters = Parameters.of(problem, jnp.float64)
            self._data = problem.stacked_shards(jnp.float64)
        self.size = self.parameters.size
        self._weights = (np.arange(problem.shard_sizes.max()) < problem.shard_sizes[:, None]).astype(float)

    def values(self, point: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """`(n,)` values `U_i(w)`, up to a constant, and `(n, size)` gradients."""
        return self._run(self._programs["gradient"], point)

    def gradients(self, point: np.ndarray) -> np.ndarray:
        """`(n, size)` gradients `∇U_i(w)`."""
        return self.values(point)[1]

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

    @cached_property
    def starts(self) -> np.ndarray:
        """`(4096, size)` independent draws of where an agent starts."""
        with jax.enable_x64(True):

            def drawn(key: jax.Array) -> jax.Array:
                return initial_positions(self.problem, self.parameters, jax.random.split(key, _STARTS), jnp.float64)

            return np.asarray(compiled_quickly(drawn, same_bits=True)(jax.random.key(0)))

    @property
    def some_starts(self) -> np.ndarray:
        """A few different ones of the starts."""
        return np.unique(self.starts[:_SOME_STARTS], axis=0)

    @cached_property
    def modes(self) -> np.ndarray:
        """`(modes, size)` minima of `U` that descents from some of the agents' starts find, the deepest first."""
        from scipy.optimize import minimize

        def potential_and_gradient(w: np.ndarray) -> tuple[float, np.ndarray]:
            values, gradients = self.values(w)
            return float(values.sum()), gradients.sum(0)

        found: list[tuple[float, np.ndarray]] = []
        for start in self.some_starts:
            result = minimize(potential_and_gradient, start, jac=True, method="L-BFGS-B")
            apart = [np.linalg.norm(result.x - other) > 1e-3 * (1 + np.linalg.norm(other)) for _, other in found]
            if np.isfinite(result.fun) and all(apart):
                found.append((float(result.fun), result.x))
        if not found:
            raise ProblemError("no mode was found: the log-posterior is not finite where a descent from init leads")
        return np.stack([point for _, point in sorted(found, key=lambda pair: pair[0])])

    def _run(self, program: Any, *points: np.ndarray) -> Any:
        with jax.enable_x64(True):
            return jax.tree.map(np.asarray, program(*(np.asarray(point, np.float64) for point in points)))

    @cached_property
    def _programs(self) -> dict[str, Any]:
        problem, parameters = self.problem, self.parameters
        work = _CALLS * self.size * problem.shard_sizes.sum()

        def value(w: jax.Array, rows: Any, weights: jax.Array) -> jax.Array:
            return potential(problem, parameters, w, rows, weights, 1.0)

        gradient = jax.grad(value)

        def product(w: jax.Array, rows: Any, weights: jax.Array, v: jax.Array) -> jax.Array:
            return jax.jvp(lambda w: gradient(w, rows, weights), (w,), (v,))[1]

        def hessian(w: jax.Array, rows: Any, weights: jax.Array) -> jax.Array:
            columns = jnp.eye(self.size)
            return _batched(lambda v: product(w, rows, weights, v), columns)

        def by_agent(function: Any) -> Any:
            def everywhere(w: jax.Array, *more: jax.Array) -> jax.Array:
                return jax.lax.map(lambda own: function(w, *own, *more), (self._data, self._weights))

            return for_work(work, everywhere)

        def own(positions: jax.Array) -> jax.Array:
            agents = (self._data, self._weights, jnp.moveaxis(positions, 1, 0))
            each = jax.lax.map(lambda a: _batched(lambda w: gradient(w, a[0], a[1]), a[2]), agents)
            return jnp.moveaxis(each, 0, 1)

        programs = {"gradient": jax.value_and_grad(value), "hessian": hessian, "product": product}
        return {name: by_agent(function) for name, function in programs.items()} | {"own": for_work(work, own)}


def _batched(function: Any, arguments: jax.Array) -> jax.Array:
    """A function of each argument, a few at once: all at once could need much memory."""
    return jax.lax.map(function, arguments, batch_size=_AT_ONCE)
