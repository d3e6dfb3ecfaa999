"""What one agent computes in a round: the step of every engine (`kernel/step.py`), cut where messages travel.

Noise and minibatches are derived from the round, so what is computed again after a restart is identical. A message
leaves here as its arrays, in the order of its pytree; what they mean is the sampler's business. It holds shared
parameters only: private ones, in number the agent's own, never leave it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from consilience.errors import PlanError
from consilience.kernel.chebyshev import mixed
from consilience.kernel.gradients import network_gradients
from consilience.kernel.mixing import Neighbours, disagreement, neighbour_tables
from consilience.kernel.model_checks import require_usable
from consilience.kernel.parameters import Parameters, initial_positions
from consilience.kernel.randomness import Purpose, agent_keys, normals
from consilience.kernel.rows import Rows
from consilience.kernel.step import (
    coefficients_of,
    completed,
    each,
    message_after,
    message_before,
    shared_coefficients,
)
from consilience.plans import Plan
from consilience.problems import Problem
from consilience.samplers import Corrected, SpeaksFirst

Arrays = tuple[np.ndarray, ...]
"""A message: one array `(chains, …)` for each leaf."""


class Prepared(NamedTuple):
    """What a round needs besides messages."""

    coefficients: Any
    noise: jax.Array
    gradient: jax.Array


class AgentStep:
    """The compiled step of one agent, in all chains at once; states have the leading axes `(chains, 1)`.

    Args:
        problem: what this agent knows.
        plan: the whole network's plan.
        agent: which agent it is.
        weights: of its edges, by the neighbours' numbers.
    """

    def __init__(self, problem: Problem, plan: Plan, agent: int, weights: Mapping[int, float]) -> None:
        if isinstance(plan.sampler, Corrected):
            raise PlanError(
                f"the sampler {plan.sampler.kind} does not yet run on nodes: take the engine simulate or mesh"
            )
        self.plan, self.agent, self.weights = plan, agent, weights
        self.dtype = jnp.dtype(plan.dtype)
        self.parameters = Parameters.of(problem, self.dtype)
        self._rows = Rows(problem, plan, self.dtype)
        chains = np.arange(plan.num_chains)
        self._keys = {purpose: agent_keys(plan.seed, purpose, chains, [agent]) for purpose in Purpose}
        self.start = initial_positions(problem, self.parameters, self._keys[Purpose.INIT], self.dtype)
        require_usable(problem, self.parameters, self.start[0], self._rows.stacked, [agent])
        self._gradients = network_gradients(problem, self.parameters)
        self._private_start = self.parameters.private_start
        self._neighbours = _own_neighbours(weights, self.dtype)
        self.speaks_first = isinstance(plan.sampler, SpeaksFirst)
        self.prepare = jax.jit(self._before_mixing)
        self._finish, self._message = jax.jit(self._after_mixing), jax.jit(self._said)
        self._position = jax.jit(each(plan.gossip.position))
        state = jax.eval_shape(self.initial_state)
        said = jax.eval_shape(self._said, state, jax.eval_shape(self._before_mixing, state, np.int32(0)))
        leaves, self._structure = jax.tree.flatten(said)
        self.message_shapes = [(leaf.shape[:1] + leaf.shape[2:], str(leaf.dtype)) for leaf in leaves]

    def initial_state(self) -> Any:
        """The sampler's state in every chain before the first round."""
        return each(self.plan.gossip.init)(self.start)

    def message(self, state: Any, prepared: Prepared | None = None) -> Arrays:
        """What the agent tells its neighbours; a sampler that speaks last needs what was prepared."""
        said = self._message(state, None if self.speaks_first else prepared)
        return tuple(np.asarray(leaf)[:, 0] for leaf in jax.tree.leaves(said))

    def finish(self, state: Any, prepared: Prepared, message: Arrays, others: Arrays) -> Any:
        """The state after mixing with the neighbours' messages, `(neighbours, chains, …)` in every array."""
        return self._finish(state, prepared, message, others)

    def edge_rate(self, prepared: Prepared) -> float | None:
        """By how much an edge moves the message in this round, if the sampler can do without one."""
        rate = self.plan.gossip.edge_rate(shared_coefficients(prepared.coefficients, self._private_start))
        return None if rate is None else float(rate)

    def position(self, state: Any) -> np.ndarray:
        """The draw in a state, `(chains, 1, size)`."""
        return np.asarray(self._position(state))

    def compile(self) -> None:
        """Compile both halves of the step, and what is read off a state."""
        state = self.initial_state()
        prepared = self.prepare(state, np.int32(0))
        message = self.message(state, prepared)
        others = tuple(np.zeros((len(self.weights), *own.shape), own.dtype) for own in message)
        jax.block_until_ready(self.finish(state, prepared, message, others))
        self.position(state)

    def _before_mixing(self, state: Any, k: Any) -> Prepared:
        """Coefficients, noise and gradient of round `k`."""
        sampler, plan = self.plan.gossip, self.plan
        numbers = coefficients_of(sampler, plan.num_agents, self.dtype, k, self._private_start)
        noise = normals(self._keys[Purpose.NOISE], k[None], self.parameters.size, self.dtype)
        positions = each(sampler.position)(state)
        shards, row_weights, scale = self._rows.arrays
        rows = self._rows.chosen_rows(self._keys[Purpose.BATCH], k)
        used = self._rows.used(shards, rows)
        own = rows is not None or self._rows.per_chain
        gradient = self._gradients(positions, used, row_weights, scale, own)
        return Prepared(numbers, noise.reshape(positions.shape), gradient)

    def _said(self, state: Any, prepared: Prepared | None) -> Any:
        sampler = self.plan.sampler
        if isinstance(sampler, SpeaksFirst):
            return message_before(sampler, state, self._private_start)
        assert prepared is not None
        return message_after(
            sampler, state, prepared.gradient, prepared.coefficients, prepared.noise, self._private_start
        )

    def _after_mixing(self, state: Any, prepared: Prepared, message: Arrays, others: Arrays) -> Any:
        numbers, noise, gradient = prepared
        own = [leaf[:, None] for leaf in message]
        seen = [
            jnp.concatenate([leaf[:, None], jnp.moveaxis(jnp.asarray(theirs), 0, 1)], 1)
            for leaf, theirs in zip(message, others, strict=True)
        ]
        apart = jax.vmap(lambda own, seen: disagreement(own, seen, self._neighbours))(own, seen)
        said, apart = (jax.tree.unflatten(self._structure, leaves) for leaves in (own, apart))
        sampler = self.plan.gossip
        mixing = sampler.mixing(self.plan.graph, shared_coefficients(numbers, self._private_start))
        heard = mixed(said, lambda _: apart, mixing)
        return completed(sampler, state, gradient, said, heard, numbers, noise, self._private_start)


def _own_neighbours(weights: Mapping[int, float], dtype: Any) -> Neighbours:
    """One place, whose neighbours stand behind it in the table."""
    count = len(weights)
    tables = neighbour_tables(
        "slots", (1, 1, 1 + count), np.zeros(count, int), np.zeros(count, int), 1 + np.arange(count),
        np.array([*weights.values()], float), dtype,
    )  # fmt: skip
    return Neighbours(*(None if one is None else one[0] for one in tables))
