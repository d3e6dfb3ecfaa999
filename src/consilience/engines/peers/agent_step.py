"""What one agent computes in a step: the step of every engine (`kernel/step.py`), cut where messages travel.

Noise and minibatches are derived from the step, so what is computed again after a restart is identical. A message
leaves here as its arrays, in the order of its pytree; what they mean is the sampler's business. It holds shared
parameters only: private ones, in number the agent's own, never leave it.

Samplers with one exchange in a step are done with `finish`. Those with several go through `begin`, `exchange` for
each of them, and `end`; what they take besides the state are the numbers of their warm-up, if they had one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from consilience.kernel.chebyshev import Exchanged, begun, ended, exchanged, mixed
from consilience.kernel.gradients import network_gradients
from consilience.kernel.mixing import Neighbours, disagreement, neighbour_tables
from consilience.kernel.model_checks import require_usable
from consilience.kernel.noise import noise_of_steps
from consilience.kernel.parameters import Parameters, initial_positions
from consilience.kernel.randomness import Purpose, agent_keys
from consilience.kernel.rows import Rows
from consilience.kernel.step import (
    coefficients_of,
    completed,
    each,
    message_after,
    message_before,
    shared_coefficients,
)
from consilience.kernel.tuning import Tuning, anchor_of, blank_tuning, coordinates_of, in_precision, tuned_sampler
from consilience.kernel.variates import corrected
from consilience.kernel.whitening import identity
from consilience.plans import Plan
from consilience.problems import Problem
from consilience.samplers import Corrected, SpeaksFirst
from consilience.samplers.mixing import Mixing

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
        self.problem, self.plan, self.agent, self.weights = problem, plan, agent, weights
        self.num_agents = plan.num_agents
        self.dtype = jnp.dtype(plan.dtype)
        self.parameters = Parameters.of(problem, self.dtype)
        self._rows = Rows(problem, plan, self.dtype)
        chains = np.arange(plan.num_chains)
        self._keys = {purpose: agent_keys(plan.seed, purpose, chains, [agent]) for purpose in Purpose}
        self._keys[Purpose.COMMON_NOISE] = agent_keys(plan.seed, Purpose.COMMON_NOISE, chains, [0])
        self.start = initial_positions(problem, self.parameters, self._keys[Purpose.INIT], self.dtype)
        require_usable(problem, self.parameters, self.start[0], self._rows.stacked, [agent])
        self._gradients = network_gradients(problem, self.parameters)
        self._private_start = self.parameters.private_start
        self._neighbours = _own_neighbours(weights, self.dtype)
        self.speaks_first = isinstance(plan.sampler, SpeaksFirst)
        self.prepare = jax.jit(self._before_mixing)
        self._finish, self._message = jax.jit(self._after_mixing), jax.jit(self._said)
        self._exchange, self._end = jax.jit(self._after_exchange), jax.jit(self._after_exchanges)
        self._position = jax.jit(self._drawn)
        state = jax.eval_shape(self.initial_state)
        prepared = jax.eval_shape(self._before_mixing, state, np.int32(0), self._blank_tuning())
        said = jax.eval_shape(self._said, state, prepared)
        leaves, self._structure = jax.tree.flatten(said)
        self.message_shapes = [(leaf.shape[:1] + leaf.shape[2:], str(leaf.dtype)) for leaf in leaves]

    def among(self, num_agents: int) -> AgentStep:
        """The step in a network of so many: they share the prior out, and gradient and noise are scaled for them."""
        other = copy(self)
        other.problem, other.num_agents = replace(self.problem, network_size=num_agents), num_agents
        other._gradients = network_gradients(other.problem, self.parameters)
        other.prepare = jax.jit(other._before_mixing)
        return other

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

    def position(self, state: Any, tuning: Tuning | None = None) -> np.ndarray:
        """The draw in a state, `(chains, 1, size)`."""
        return np.asarray(self._position(state, tuning))

    # --- several exchanges in a step ---------------------------------------------------------------------------

    def tuned(self, tuning: Tuning | None) -> Tuning | None:
        """The numbers of a warm-up as the other functions take them."""
        return in_precision(tuning, self.dtype)

    def begin(self, message: Arrays) -> Exchanged:
        """Before the first exchange of a message."""
        return begun(self.as_message([jnp.asarray(leaf)[:, None] for leaf in message]))

    def as_message(self, leaves: Sequence[Any]) -> Any:
        """A message's arrays, or what belongs to each of them, in their places."""
        return jax.tree.unflatten(self._structure, leaves)

    def exchange(self, sofar: Exchanged, others: Arrays, tuning: Tuning | None) -> tuple[Exchanged, Arrays]:
        """After an exchange with what the neighbours said, and what is said in the next one."""
        after = self._exchange(sofar, others, tuning)
        return after, tuple(np.asarray(leaf)[:, 0] for leaf in jax.tree.leaves(after.now))

    def end(self, state: Any, prepared: Prepared, message: Arrays, sofar: Exchanged, tuning: Tuning | None) -> Any:
        """The state after the last exchange."""
        return self._end(state, prepared, message, sofar, tuning)

    # --- programs ----------------------------------------------------------------------------------------------

    def compile(self) -> None:
        """Compile the parts of a step, and what is read off a state."""
        state, sampler, tuning = self.initial_state(), self.plan.sampler, self._blank_tuning()
        prepared = self.prepare(state, np.int32(0), tuning)
        message = self.message(state, prepared)
        others = tuple(np.zeros((len(self.weights), *own.shape), own.dtype) for own in message)
        if isinstance(sampler, Corrected):
            sofar, _ = self.exchange(self.begin(message), others, tuning)
            jax.block_until_ready(self.end(state, prepared, message, sofar, tuning))
        else:
            jax.block_until_ready(self.finish(state, prepared, message, others))
        self.position(state, tuning)

    def _blank_tuning(self) -> Tuning | None:
        """A tuning of the right shapes, if the sampler tunes itself."""
        if not self.plan.sampler.tunes_itself:
            return None
        shared = self.parameters.num_shared
        size = self.parameters.size
        return self.tuned(blank_tuning(identity(shared, 1, size - shared), 1, size, self.plan.has_control_variates))

    def _drawn(self, state: Any, tuning: Tuning | None) -> jax.Array:
        return coordinates_of(tuning)[0](each(self.plan.gossip.position)(state))

    def _before_mixing(self, state: Any, k: Any, tuning: Tuning | None = None) -> Prepared:
        """Coefficients, noise and gradient of step `k`."""
        sampler = tuned_sampler(self.plan.gossip, tuning, self.dtype)
        parameters, pulled_back = coordinates_of(tuning)
        numbers = coefficients_of(sampler, self.num_agents, self.dtype, k, self._private_start)
        common = self._keys[Purpose.COMMON_NOISE] if sampler.has_common_noise else None
        own, size = self._keys[Purpose.NOISE], self.parameters.size
        positions = each(sampler.position)(state)
        noise = noise_of_steps(own, common, self.parameters.num_shared, 1, size, self.dtype)(k)
        shards, row_weights, scale = self._rows.arrays
        chosen = self._rows.chosen_rows(self._keys[Purpose.BATCH], k[None])
        rows = None if chosen is None else chosen[0]
        used = self._rows.used(shards, rows)
        per_chain = rows is not None or self._rows.per_chain

        def of_batch(where: jax.Array) -> jax.Array:
            return self._gradients(where, used, row_weights, scale, per_chain)

        gradient = corrected(of_batch, anchor_of(tuning))(parameters(positions))
        return Prepared(numbers, noise.reshape(positions.shape), pulled_back(gradient))

    def _said(self, state: Any, prepared: Prepared | None) -> Any:
        sampler = self.plan.sampler
        if isinstance(sampler, SpeaksFirst):
            return message_before(sampler, state, self._private_start)
        assert prepared is not None
        return message_after(
            sampler, state, prepared.gradient, prepared.coefficients, prepared.noise, self._private_start
        )

    def _after_mixing(self, state: Any, prepared: Prepared, message: Arrays, others: Arrays) -> Any:
        own = [leaf[:, None] for leaf in message]
        said = self.as_message(own)
        sampler, numbers = self.plan.gossip, prepared.coefficients
        mixing = sampler.mixing(self.plan.graph, shared_coefficients(numbers, self._private_start))
        heard = mixed(said, lambda _: self._disagreement(own, others), mixing)
        return self._completed(state, prepared, said, heard)

    def _after_exchange(self, sofar: Exchanged, others: Arrays, tuning: Tuning | None) -> Exchanged:
        return exchanged(sofar, self._disagreement(jax.tree.leaves(sofar.now), others), self.mixing(tuning))

    def _after_exchanges(
        self, state: Any, prepared: Prepared, message: Arrays, sofar: Exchanged, tuning: Tuning | None
    ) -> Any:
        said = self.as_message([leaf[:, None] for leaf in message])
        return self._completed(state, prepared, said, ended(said, sofar, self.mixing(tuning)))

    def mixing(self, tuning: Tuning | None) -> Mixing:
        """Of a sampler whose mixing does not depend on the step."""
        return tuned_sampler(self.plan.gossip, tuning, self.dtype).mixing(self.plan.graph, None)

    def _disagreement(self, own: list[Any], others: Arrays) -> Any:
        """From own leaves `(chains, 1, …)` and those of the neighbours."""
        seen = [
            jnp.concatenate([leaf, jnp.moveaxis(jnp.asarray(theirs), 0, 1)], 1)
            for leaf, theirs in zip(own, others, strict=True)
        ]
        apart = jax.vmap(lambda own, seen: disagreement(own, seen, self._neighbours))(own, seen)
        return self.as_message(apart)

    def _completed(self, state: Any, prepared: Prepared, said: Any, heard: Any) -> Any:
        numbers, noise, gradient = prepared
        return completed(self.plan.gossip, state, gradient, said, heard, numbers, noise, self._private_start)


def _own_neighbours(weights: Mapping[int, float], dtype: Any) -> Neighbours:
    """One place, whose neighbours stand behind it in the table."""
    count = len(weights)
    tables = neighbour_tables(
        "slots", (1, 1, 1 + count), np.zeros(count, int), np.zeros(count, int), 1 + np.arange(count),
        np.array([*weights.values()], float), dtype,
    )  # fmt: skip
    return Neighbours(*(None if one is None else one[0] for one in tables))
