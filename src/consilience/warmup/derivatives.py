"""Values, gradients and Hessians of the potentials of the agents that are here, from all their rows, in float64.

Where private parameters differ in length, an agent's filling has gradient 0 and, on the diagonal of its Hessian, 1:
then it is neither moved nor in the way of a factorisation.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from consilience.kernel.parameters import Parameters, potential
from consilience.problems import Problem

_SIDE_BY_SIDE = 32  # parameters; Hessians of larger models are made one agent after the other


class Derivatives(NamedTuple):
    """Of all agents here at one position each."""

    values: np.ndarray
    """`(agents,)`"""
    gradients: np.ndarray
    """`(agents, size)`"""
    hessians: np.ndarray
    """`(agents, size, size)`"""


class LocalPotentials:
    """The potentials of the agents of a problem."""

    def __init__(self, problem: Problem) -> None:
        with jax.enable_x64(True):
            self.parameters = Parameters.of(problem, np.float64)
            groups = [(tuple(range(problem.num_agents)), self.parameters), *self.parameters.groups]
            self._groups = [
                (list(places), own.size, *_derivatives(problem.of_agents(places), own))
                for places, own in groups[1 if self.parameters.groups else 0 :]
            ]
        self.num_agents, self.size = problem.num_agents, self.parameters.size

    def at(self, positions: np.ndarray) -> Derivatives:
        """At positions `(agents, size)`."""
        values, gradients = np.zeros(self.num_agents), np.zeros((self.num_agents, self.size))
        hessians = np.broadcast_to(np.eye(self.size), (self.num_agents, self.size, self.size)).copy()
        with jax.enable_x64(True):
            for places, size, evaluate, _ in self._groups:
                value, gradient, hessian = evaluate(positions[places, :size])
                values[places], gradients[places, :size] = value, gradient
                for place, own in zip(places, np.asarray(hessian), strict=True):
                    hessians[place, :size, :size] = (own + own.T) / 2
        return Derivatives(values, gradients, hessians)

    def values(self, positions: np.ndarray) -> np.ndarray:
        """`(points, agents)` values alone, at positions `(points, agents, size)`."""
        found = np.zeros(positions.shape[:2])
        with jax.enable_x64(True):
            for places, size, _, evaluate in self._groups:
                found[:, places] = evaluate(positions[:, places, :size])
        return found


def _derivatives(problem: Problem, parameters: Parameters) -> tuple[Any, Any]:
    """Functions of positions `(agents, size)` to values, gradients and Hessians, and of many such to values."""
    shards = problem.stacked_shards(np.float64)
    longest = int(problem.shard_sizes.max())
    weights = jnp.asarray(np.arange(longest) < problem.shard_sizes[:, None], np.float64)

    def one_agent(w: jax.Array, shard: Any, weights: jax.Array) -> Any:
        def value(w: jax.Array) -> jax.Array:
            return potential(problem, parameters, w, shard, weights, 1.0)

        return value(w), jax.grad(value)(w), jax.hessian(value)(w)

    def values(points: jax.Array) -> jax.Array:
        def one_point(positions: jax.Array) -> jax.Array:
            return jax.vmap(lambda w, rows, own: potential(problem, parameters, w, rows, own, 1.0))(
                positions, shards, weights
            )

        return jax.lax.map(one_point, points)

    def side_by_side(positions: jax.Array) -> Any:
        return jax.vmap(one_agent)(positions, shards, weights)

    def one_after_the_other(positions: jax.Array) -> Any:
        return jax.lax.map(lambda own: one_agent(*own), (positions, shards, weights))

    return jax.jit(side_by_side if parameters.size <= _SIDE_BY_SIDE else one_after_the_other), jax.jit(values)
