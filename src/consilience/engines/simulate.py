"""All agents of all chains in one compiled program: the default engine, and the oracle for the others.

The program is two nested loops. The outer one goes over blocks of steps: it computes what the steps of a
block need besides the state (noise, step sizes, rows of minibatches) at once, and measures the consensus
error. The inner one goes over the block's steps: gradient, mixing, update, and a write into the slot of the
draw that the step belongs to (the last step of a slot stays). The number of steps is an argument, so one
program serves every segment, and a position depends only on the step, not on how a run was cut.

Chains are independent, so they are sampled in up to four groups, each by the same program in a thread of its own.
The groups depend on the number of chains alone: the draws do not depend on the number of cores.
"""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from consilience.engines.base import Segment
from consilience.engines.rows import Rows
from consilience.errors import PlanError, ProblemError
from consilience.gradients import network_gradients
from consilience.mixing import make_disagreement
from consilience.plans import Plan
from consilience.problems import Parameters, Problem, initial_positions, require_usable
from consilience.randomness import Purpose, agent_keys, normals

_BLOCK_NUMBERS = 2**18  # numbers prepared at once: about 1 MB, which stays in cache
_LONGEST_BLOCK = 32  # longer ones get split among threads, which then wait for each other
_BUFFER_BYTES = 2**24  # draws kept in memory until a segment ends
_MOST_SLOTS = 2**16
_LONGEST_SEGMENT = 2**22
_MOST_GROUPS = 4
_FEWEST_CHAINS = 4  # in a group: fewer leave vector units idle


class Simulation:
    """Samples every agent of every chain in this process."""

    def __init__(self, problem: Problem, plan: Plan) -> None:
        require_matching(problem, plan)
        self.problem, self.plan = problem, plan
        self.dtype = jnp.dtype(plan.dtype)
        self.parameters = Parameters.of(problem, self.dtype)
        self._data = Rows(problem, plan, self.dtype)
        chains, agents = np.arange(plan.num_chains), np.arange(plan.num_agents)
        self._keys = {purpose: agent_keys(plan.seed, purpose, chains, agents) for purpose in Purpose}
        self._start = initial_positions(problem, self.parameters, self._keys[Purpose.INIT], self.dtype)
        require_usable(problem, self.parameters, self._start[0], self._data.stacked)
        self._gradients = network_gradients(problem, self.parameters)
        self._disagreement = make_disagreement(plan.graph, self.dtype)
        self._groups = np.array_split(chains, min(_MOST_GROUPS, math.ceil(plan.num_chains / _FEWEST_CHAINS)))
        self._choose_sizes()
        self._programs: dict[int, Any] = {}
        self._threads = ThreadPoolExecutor(os.cpu_count()) if len(self._groups) > 1 else None

    def _choose_sizes(self) -> None:
        """Blocks that fit the cache, segments that fit the buffer; from sizes alone, never from timing."""
        plan, size = self.plan, self.parameters.size
        numbers = len(self._groups[0]) * plan.num_agents * (size + (plan.batch_size or 0))
        slot_bytes = plan.num_chains * plan.num_agents * size * self.dtype.itemsize
        slots = max(1, min(_MOST_SLOTS, _BUFFER_BYTES // slot_bytes, plan.num_draws))
        longest = min(slots * plan.store_every, plan.num_steps, _LONGEST_SEGMENT)
        self.block_steps = max(1, min(_LONGEST_BLOCK, _BLOCK_NUMBERS // numbers, longest))
        self._blocks = max(1, longest // self.block_steps)
        self.max_steps = self._blocks * self.block_steps
        self._slots = math.ceil(self.max_steps / plan.store_every) + 1

    def initial_state(self) -> Any:
        """The sampler's state of every chain and agent before the first step."""
        return _each(self.plan.sampler.init)(self._start)

    def compile(self) -> None:
        """Compile the program for segments of any length, once for each size of a group of chains."""
        for group in self._groups:
            if len(group) not in self._programs:
                state, keys = self._of_group((self.initial_state(), self._keys), group)
                numbers = (jnp.int32(0), jnp.int32(1), jnp.int32(0))
                lowered = jax.jit(self._segment).lower(state, keys, *numbers, self._data_of(group))
                self._programs[len(group)] = lowered.compile()

    def advance(self, state: Any, first_step: int, num_steps: int) -> tuple[Any, Segment]:
        """Make `num_steps` steps from `first_step`."""
        self.compile()
        first_draw = self.plan.draws_after(first_step)
        numbers = (jnp.int32(first_step), jnp.int32(num_steps), jnp.int32(first_draw))
        new_state, draws, consensus = self._run_groups(jax.tree.map(jnp.asarray, state), numbers)
        last_step = first_step + num_steps
        blocks = math.ceil(num_steps / self.block_steps)
        measured = np.minimum(first_step + self.block_steps * np.arange(1, blocks + 1), last_step)
        complete = self.plan.draws_after(last_step) - first_draw
        draws, consensus = np.asarray(draws), np.asarray(consensus)  # JAX would compile a slice of every length
        return new_state, Segment(last_step, draws[:complete], measured, consensus[:blocks], first_draw)

    def _run_groups(self, state: Any, numbers: Any) -> Any:
        """Run the program on every group of chains, and put the results together again."""
        if self._threads is None:
            return self._programs[self.plan.num_chains](state, self._keys, *numbers, self._data.arrays)

        def run(group: np.ndarray) -> Any:
            own_state, own_keys = self._of_group((state, self._keys), group)
            results = self._programs[len(group)](own_state, own_keys, *numbers, self._data_of(group))
            return jax.tree.map(np.asarray, results)

        states, draws, consensus = zip(*self._threads.map(run, self._groups), strict=True)
        together = jax.tree.map(lambda *leaves: np.concatenate(leaves), *states)
        return jax.tree.map(jnp.asarray, together), np.concatenate(draws, 1), np.concatenate(consensus, 1)

    def _of_group(self, tree: Any, group: np.ndarray) -> Any:
        """The part of arrays over chains that belongs to a group."""
        return jax.tree.map(lambda leaf: leaf[group[0] : group[-1] + 1], tree)

    def _data_of(self, group: np.ndarray) -> Any:
        """The data that a group of chains needs: all of it, or its own if every chain has its own."""
        shards, row_weights, scale = self._data.arrays
        return (self._of_group(shards, group) if self._data.per_chain else shards), row_weights, scale

    def find_non_finite(self, state: Any, first_step: int, num_steps: int) -> tuple[int, int, int] | None:
        """Bisect a segment for the first step after which a position is not finite."""

        def bad_after(steps: int) -> np.ndarray:
            reached = self.advance(state, first_step, steps)[0] if steps else state
            positions = np.asarray(_each(self.plan.sampler.position)(reached))
            return ~np.isfinite(positions).all(-1)

        if not bad_after(num_steps).any():
            return None
        good, bad = 0, num_steps
        while bad - good > 1:
            middle = (good + bad) // 2
            good, bad = (good, middle) if bad_after(middle).any() else (middle, bad)
        chain, agent = np.argwhere(bad_after(bad))[0]
        return first_step + bad, int(chain), int(agent)

    def _segment(
        self, state: Any, keys: Any, first_step: Any, num_steps: Any, first_draw: Any, data: Any
    ) -> tuple[Any, jax.Array, jax.Array]:
        plan, length = self.plan, self.block_steps
        shape = (*keys[Purpose.NOISE].shape, self.parameters.size)
        draws = jnp.zeros((self._slots + 1, *shape), self.dtype)  # the last slot takes what is not stored
        consensus = jnp.zeros((self._blocks, shape[0]), self.dtype)

        def block(b: Any, carry: Any) -> Any:
            state, draws, consensus = carry
            steps = first_step + b * length + jnp.arange(length, dtype=jnp.int32)
            numbers = jax.vmap(self._coefficients)(steps)
            noise = normals(keys[Purpose.NOISE], steps, self.parameters.size, self.dtype)
            rows = jax.vmap(partial(self._data.chosen_rows, keys[Purpose.BATCH]))(steps)
            slots = (steps - plan.burn_in) // plan.store_every - first_draw
            slots = jnp.where(steps < plan.burn_in, self._slots, slots)

            def step(j: Any, carry: Any) -> Any:
                state, draws = carry
                own = jax.lax.dynamic_slice_in_dim(noise, j * math.prod(shape), math.prod(shape)).reshape(shape)
                now, chosen = jax.tree.map(lambda leaf: leaf[j], (numbers, rows))
                state = self._step(state, now, own, chosen, data)
                positions = _each(plan.sampler.position)(state)
                return state, jax.lax.dynamic_update_index_in_dim(draws, positions, slots[j], 0)

            here = jnp.minimum(length, num_steps - b * length)
            state, draws = jax.lax.fori_loop(0, here, step, (state, draws))
            error = _consensus_error(_each(plan.sampler.position)(state))
            return state, draws, jax.lax.dynamic_update_index_in_dim(consensus, error, b, 0)

        blocks = (num_steps + length - 1) // length
        return jax.lax.fori_loop(0, blocks, block, (state, draws, consensus))

    def _coefficients(self, k: Any) -> Any:
        numbers = self.plan.sampler.coefficients(k, self.plan.num_agents)
        return jax.tree.map(lambda number: jnp.asarray(number, self.dtype), numbers)

    def _step(self, state: Any, numbers: Any, noise: Any, rows: Any, data: Any) -> Any:
        sampler = self.plan.sampler
        disagreement = jax.vmap(self._disagreement)(_each(sampler.share)(state))
        positions = _each(sampler.position)(state)
        shards, row_weights, scale = data
        used = self._data.used(shards, rows)
        own = rows is not None or self._data.per_chain
        gradient = self._gradients(positions, used, row_weights, scale, own)

        def one_agent(state: Any, gradient: Any, disagreement: Any, noise: Any) -> Any:
            return sampler.step(state, gradient, disagreement, numbers, noise)

        return _each(one_agent)(state, gradient, disagreement, noise)


def require_matching(problem: Problem, plan: Plan) -> None:
    """Check that shards, agents and minibatches of a problem and a plan fit together."""
    if problem.num_agents != plan.num_agents:
        raise ProblemError(
            f"the problem has {problem.num_agents} shards but the graph has {plan.num_agents} agents: give "
            "every agent one shard"
        )
    if problem.replicas is not None and len(problem.replicas) != plan.num_chains:
        raise ProblemError(
            f"the problem has data for {len(problem.replicas)} chains but the plan has {plan.num_chains}: give every "
            "chain its own, or all the same"
        )
    smallest = int(problem.shard_sizes.min())
    if plan.batch_size is not None and plan.batch_size > smallest:
        agent = int(problem.shard_sizes.argmin())
        raise PlanError(
            f"batch_size = {plan.batch_size} is larger than the shard of agent {agent} ({smallest} rows): "
            f"take at most {smallest}, or leave batch_size out to use full shards"
        )
    if plan.batch_size is not None and plan.batch_size * int(problem.shard_sizes.max()) >= 2**32:
        raise PlanError("batch_size times the largest shard must stay below 2^32: take a smaller batch")


def _each(function: Any) -> Any:
    """Map over chains and agents."""
    return jax.vmap(jax.vmap(function))


def _consensus_error(positions: jax.Array) -> jax.Array:
    return ((positions - positions.mean(1, keepdims=True)) ** 2).sum((1, 2))
