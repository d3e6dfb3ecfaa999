"""All agents of all chains in one compiled program: the default engine, and the oracle for the others.

The program itself is in `program.py`.

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

from consilience.engines.base import Segment, first_bad_step
from consilience.engines.program import (
    BLOCK_NUMBERS,
    LONGEST_BLOCK,
    Local,
    each,
    longest_segment,
    run_segment,
    sizes_of,
)
from consilience.engines.rows import Rows
from consilience.errors import PlanError, ProblemError
from consilience.gradients import network_gradients
from consilience.mixing import make_disagreement
from consilience.plans import Plan
from consilience.problems import Parameters, Problem, initial_positions
from consilience.randomness import Purpose, agent_keys, normals
from consilience.usability import require_usable

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
        longest = longest_segment(plan, size, self.dtype.itemsize)
        self.block_steps = max(1, min(LONGEST_BLOCK, BLOCK_NUMBERS // numbers, longest))
        self._sizes = sizes_of(plan, longest, self.block_steps, self.block_steps)
        self.max_steps = self._sizes.max_steps

    def initial_state(self) -> Any:
        """The sampler's state of every chain and agent before the first step."""
        return each(self.plan.sampler.init)(self._start)

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
            positions = np.asarray(each(self.plan.sampler.position)(reached))
            return ~np.isfinite(positions).all(-1)

        found = first_bad_step(bad_after, num_steps)
        if found is None:
            return None
        steps, (chain, agent) = found
        return first_step + steps, int(chain), int(agent)

    def _segment(
        self, state: Any, keys: Any, first_step: Any, num_steps: Any, first_draw: Any, data: Any
    ) -> tuple[Any, jax.Array, jax.Array]:
        size = self.parameters.size
        shards, row_weights, scale = data

        def gradients(positions: jax.Array, rows: jax.Array | None) -> jax.Array:
            used = self._data.used(shards, rows)
            own = rows is not None or self._data.per_chain
            return self._gradients(positions, used, row_weights, scale, own)

        local = Local(
            shape=(*keys[Purpose.NOISE].shape, size),
            noise=lambda steps: normals(keys[Purpose.NOISE], steps, size, self.dtype),
            chosen_rows=partial(self._data.chosen_rows, keys[Purpose.BATCH]),
            gradients=gradients,
            disagreement=jax.vmap(self._disagreement),
            consensus_error=_consensus_error,
        )
        return run_segment(self.plan, self._sizes, self.dtype, local, state, first_step, num_steps, first_draw)


def require_matching(problem: Problem, plan: Plan) -> None:
    """Check that shards, agents and minibatches of a problem and a plan fit together."""
    if problem.num_agents != plan.num_agents:
        raise ProblemError(
            f"the problem has {problem.num_agents} shards but the graph has {plan.num_agents} agents: give "
            "every agent one shard"
        )
    require_replicas(problem, plan)
    require_batches(problem.shard_sizes, plan)


def require_replicas(problem: Problem, plan: Plan) -> None:
    """Check that a problem whose chains have data of their own has them for every chain."""
    if problem.replicas is not None and len(problem.replicas) != plan.num_chains:
        raise ProblemError(
            f"the problem has data for {len(problem.replicas)} chains but the plan has {plan.num_chains}: give every "
            "chain its own, or all the same"
        )


def require_batches(shard_sizes: np.ndarray, plan: Plan) -> None:
    """Check that minibatches are no larger than the shards of all agents."""
    smallest = int(shard_sizes.min())
    if plan.batch_size is not None and plan.batch_size > smallest:
        agent = int(shard_sizes.argmin())
        raise PlanError(
            f"batch_size = {plan.batch_size} is larger than the shard of agent {agent} ({smallest} rows): "
            f"take at most {smallest}, or leave batch_size out to use full shards"
        )
    if plan.batch_size is not None and plan.batch_size * int(shard_sizes.max()) >= 2**32:
        raise PlanError("batch_size times the largest shard must stay below 2^32: take a smaller batch")


def _consensus_error(positions: jax.Array) -> jax.Array:
    return ((positions - positions.mean(1, keepdims=True)) ** 2).sum((1, 2))
