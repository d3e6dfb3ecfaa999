"""What one agent computes in a round: the step of `simulate`, cut in two where the neighbours' messages come in.

Noise and minibatches are derived from the round, so what is computed again after a restart is identical.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from consilience.engines.rows import Rows
from consilience.gradients import network_gradients
from consilience.plans import Plan
from consilience.problems import Parameters, Problem, initial_positions
from consilience.randomness import Purpose, agent_keys, normals
from consilience.usability import require_usable


class AgentStep:
    """The compiled step of one agent, in all chains at once; states have the shape `(chains, 1, size)`.

    Args:
        problem: what this agent knows.
        plan: the whole network's plan.
        agent: which agent it is.
        weights: of its edges, by the neighbours' numbers.
    """

    def __init__(self, problem: Problem, plan: Plan, agent: int, weights: Mapping[int, float]) -> None:
        self.plan, self.agent, self.weights = plan, agent, weights
        self.dtype = jnp.dtype(plan.dtype)
        self.parameters = Parameters.of(problem, self.dtype)
        self._rows = Rows(problem, plan, self.dtype)
        chains = np.arange(plan.num_chains)
        self._keys = {purpose: agent_keys(plan.seed, purpose, chains, [agent]) for purpose in Purpose}
        self._start = initial_positions(problem, self.parameters, self._keys[Purpose.INIT], self.dtype)
        require_usable(problem, self.parameters, self._start[0], self._rows.stacked)
        self._gradients = network_gradients(problem, self.parameters)
        self.prepare, self.finish = jax.jit(self._before_mixing), jax.jit(self._after_mixing)
        self._share = jax.jit(jax.vmap(jax.vmap(plan.sampler.share)))
        self._position = jax.jit(jax.vmap(jax.vmap(plan.sampler.position)))

    @property
    def shape(self) -> tuple[int, int]:
        """Of a message: `(chains, size)`."""
        return self.plan.num_chains, self.parameters.size

    def initial_state(self) -> Any:
        """The sampler's state in every chain before the first round."""
        return jax.vmap(jax.vmap(self.plan.sampler.init))(self._start)

    def message(self, state: Any) -> np.ndarray:
        """What the agent tells its neighbours, `(chains, size)`."""
        return np.asarray(self._share(state))[:, 0]

    def position(self, state: Any) -> np.ndarray:
        """The draw in a state, `(chains, 1, size)`."""
        return np.asarray(self._position(state))

    def compile(self) -> None:
        """Compile both halves of the step, and what is read off a state."""
        state = self.initial_state()
        others = np.zeros((len(self.weights), *self.shape), self.dtype)
        jax.block_until_ready(self.finish(state, self.prepare(state, np.int32(0)), others))
        self.message(state)
        self.position(state)

    def _before_mixing(self, state: Any, k: Any) -> Any:
        """Coefficients, noise and gradient of round `k`."""
        sampler, plan = self.plan.sampler, self.plan
        numbers = jax.tree.map(lambda x: jnp.asarray(x, self.dtype), sampler.coefficients(k, plan.num_agents))
        noise = normals(self._keys[Purpose.NOISE], k[None], self.parameters.size, self.dtype)
        positions = jax.vmap(jax.vmap(sampler.position))(state)
        shards, row_weights, scale = self._rows.arrays
        rows = self._rows.chosen_rows(self._keys[Purpose.BATCH], k)
        used = self._rows.used(shards, rows)
        own = rows is not None or self._rows.per_chain
        return numbers, noise.reshape(positions.shape), self._gradients(positions, used, row_weights, scale, own)

    def _after_mixing(self, state: Any, prepared: Any, others: jax.Array) -> Any:
        """The state after mixing with the neighbours' messages, `(neighbours, chains, size)`."""
        sampler = self.plan.sampler
        numbers, noise, gradient = prepared
        message = jax.vmap(jax.vmap(sampler.share))(state)
        disagreement = jnp.zeros_like(message)
        for place, weight in enumerate(self.weights.values()):
            disagreement = disagreement + jnp.asarray(weight, self.dtype) * (message - others[place][:, None])
        one = jax.vmap(jax.vmap(lambda s, g, d, v: sampler.step(s, g, d, numbers, v)))
        return one(state, gradient, disagreement, noise)
