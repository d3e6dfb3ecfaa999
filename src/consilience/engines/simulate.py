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

from consilience.engines.base import (
    Alone,
    Gossiping,
    PlainForm,
    Segment,
    StateForm,
    Stepper,
    Storage,
    Team,
    first_bad_step,
    leaves_are_finite,
)
from consilience.engines.matching import require_matching
from consilience.engines.program import (
    BLOCK_NUMBERS,
    LONGEST_BLOCK,
    Local,
    Place,
    Stored,
    longest_segment,
    measurements,
    run_segment,
    segment_of,
    sizes_of,
)
from consilience.engines.unison import OneProcess, Replicas
from consilience.engines.warmed import WarmedStepper
from consilience.graphs.spanning import centre
from consilience.kernel.consensus import consensus_error
from consilience.kernel.curvature import largest_curvature
from consilience.kernel.gradients import network_gradients
from consilience.kernel.mixing import make_disagreement
from consilience.kernel.model_checks import require_usable
from consilience.kernel.noise import noise_of_steps
from consilience.kernel.parameters import Parameters, initial_positions
from consilience.kernel.randomness import Purpose, agent_keys
from consilience.kernel.rows import Rows
from consilience.kernel.step import each
from consilience.kernel.tuning import (
    Tuning,
    anchor_of,
    blank_tuning,
    coordinates_of,
    in_precision,
    of_chains,
    tuned_sampler,
)
from consilience.kernel.variates import corrected
from consilience.kernel.whitening import identity
from consilience.plans import Plan
from consilience.problems import Problem

_MOST_GROUPS = 4
_CHAINS_OF_A_GROUP = 4  # at most, up to 16 chains: smaller groups leave vector units idle, larger ones leave cores so

_FEW_NUMBERS = 2**16
"""Parameters and data that a step of a group of chains reads, up to which it is better made in one thread."""


class Simulation(Gossiping):
    """Samples every agent of every chain in this process."""

    segment_seconds = 0.4
    uses_up_state = False
    team: Team = Alone()

    def __init__(self, problem: Problem, plan: Plan) -> None:
        require_matching(problem, plan)
        self.problem, self.plan = problem, plan
        self.dtype = jnp.dtype(plan.dtype)
        self.parameters = Parameters.of(problem, self.dtype)
        self._data = Rows(problem, plan, self.dtype, grouped=not self.parameters.groups)
        chains, agents = np.arange(plan.num_chains), np.arange(plan.num_agents)
        self._keys = {purpose: agent_keys(plan.seed, purpose, chains, agents) for purpose in Purpose}
        nobody = np.zeros_like(agents)
        self._keys[Purpose.COMMON_NOISE] = agent_keys(plan.seed, Purpose.COMMON_NOISE, chains, nobody)
        self._start = initial_positions(problem, self.parameters, self._keys[Purpose.INIT], self.dtype)
        require_usable(problem, self.parameters, np.asarray(self._start)[0], self._data.stacked)
        self._gradients = self._data.evaluated(network_gradients(problem, self.parameters))
        self._disagreement = make_disagreement(plan.graph, self.dtype)
        self._groups = np.array_split(chains, min(_MOST_GROUPS, math.ceil(plan.num_chains / _CHAINS_OF_A_GROUP)))
        self._choose_sizes()
        self.storage = Storage(
            agents, slice(0, plan.num_agents), plan.num_agents, ("consensus_error",),
            measurements(plan, self.block_steps),
        )  # fmt: skip
        self.form: StateForm = PlainForm(jax.eval_shape(self.initial_state))
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
        read = len(self._groups[0]) * (plan.num_agents * size + self._data.numbers_of_a_step)
        self._is_small = read <= _FEW_NUMBERS

    def data_digest(self) -> str:
        """Of all shards."""
        return self.problem.fingerprint()

    def largest_curvature(self) -> float:
        """Of all agents."""
        return largest_curvature(self.problem, self.plan.seed, self.plan.dtype, start=np.asarray(self._start)[0])

    def initial_state(self) -> Any:
        """The sampler's state of every chain and agent before the first step."""
        return each(self.plan.gossip.init)(self._start)

    def compile(self) -> None:
        """Compile the program for segments of any length, once for each size of a group of chains."""
        for group in self._groups:
            if len(group) not in self._programs:
                state, keys = self._of_group((self.initial_state(), self._keys), group)
                place = Place.of(0, 1, Stored.of(self.plan))
                tuning = in_precision(self._tuning_of(self.blank_tuning, group), self.dtype)
                lowered = jax.jit(self._segment).lower(state, tuning, keys, place, self._data_of(group))
                self._programs[len(group)] = lowered.compile()

    def advance(self, state: Any, first_step: int, num_steps: int) -> tuple[Any, Segment]:
        """Make `num_steps` steps from `first_step`."""
        return self.walked(state, None, first_step, num_steps, Stored.of(self.plan))

    def walked(
        self, state: Any, tuning: Tuning | None, first_step: int, num_steps: int, stored: Stored
    ) -> tuple[Any, Segment]:
        """Make steps with the numbers of a tuning; draws are stored as `stored` says."""
        self.compile()
        place = Place.of(first_step, num_steps, stored)
        state, tuning = jax.tree.map(jnp.asarray, state), in_precision(tuning, self.dtype)
        new_state, draws, errors = self._run_groups(state, tuning, place)
        draws, errors = np.asarray(draws), np.asarray(errors)  # JAX would compile a slice of every length
        return new_state, segment_of(stored, self.block_steps, first_step, num_steps, draws, errors)

    def _run_groups(self, state: Any, tuning: Tuning | None, place: Place) -> Any:
        """Run the program on every group of chains, and put the results together again."""
        if self._threads is None:
            return self._programs[self.plan.num_chains](state, tuning, self._keys, place, self._data.arrays)

        def run(group: np.ndarray) -> Any:
            own_state, own_keys = self._of_group((state, self._keys), group)
            own_tuning = self._tuning_of(tuning, group)
            results = self._programs[len(group)](own_state, own_tuning, own_keys, place, self._data_of(group))
            return jax.tree.map(np.asarray, results)

        states, draws, consensus = zip(*self._threads.map(run, self._groups), strict=True)
        together = jax.tree.map(lambda *leaves: np.concatenate(leaves), *states)
        return jax.tree.map(jnp.asarray, together), np.concatenate(draws, 1), np.concatenate(consensus, 1)

    def _of_group(self, tree: Any, group: np.ndarray) -> Any:
        """The part of arrays over chains that belongs to a group."""
        return jax.tree.map(lambda leaf: leaf[group[0] : group[-1] + 1], tree)

    def _tuning_of(self, tuning: Tuning | None, group: np.ndarray) -> Tuning | None:
        """The part of a tuning that belongs to a group of chains."""
        return of_chains(tuning, slice(group[0], group[-1] + 1))

    def _data_of(self, group: np.ndarray) -> Any:
        """The data that a group of chains needs: all of it, or its own if every chain has its own."""
        shards, row_weights, scale = self._data.arrays
        return (self._of_group(shards, group) if self._data.per_chain else shards), row_weights, scale

    def is_finite(self, state: Any) -> bool:
        """Whether all numbers of the state are finite."""
        return leaves_are_finite(state)

    def find_diverged(
        self, state: Any, first_step: int, num_steps: int, tuning: Tuning | None = None
    ) -> tuple[int, int, int] | None:
        """Bisect a segment for the first step after which a position is not finite."""
        stored = Stored.of(self.plan)

        def bad_after(steps: int) -> np.ndarray:
            reached = self.walked(state, tuning, first_step, steps, stored)[0] if steps else state
            return ~np.isfinite(self.positions(reached)).all(-1)

        found = first_bad_step(bad_after, num_steps)
        if found is None:
            return None
        steps, (chain, agent) = found
        return first_step + steps, int(chain), int(agent)

    def placed(self, positions: np.ndarray) -> Any:
        """The sampler's state at positions `(chains, agents, size)` in its coordinates."""
        return each(self.plan.gossip.init)(jnp.asarray(positions, self.dtype))

    def positions(self, state: Any) -> np.ndarray:
        """The positions in a state, `(chains, agents, size)`, in the sampler's coordinates."""
        return np.asarray(each(self.plan.gossip.position)(state))

    def total(self, values: np.ndarray) -> np.ndarray:
        """The sum over all agents of values `(agents, …)`."""
        return values.sum(0)

    @property
    def blank_tuning(self) -> Tuning | None:
        """A tuning as programs take it, if the sampler tunes itself."""
        if not self.plan.sampler.tunes_itself:
            return None
        shared, size = self.parameters.num_shared, self.parameters.size
        whitening = identity(shared, self.plan.num_agents, size - shared)
        return blank_tuning(
            whitening, self.plan.num_agents, size, self.plan.has_control_variates, self.problem.chains_apart
        )

    def _segment(
        self, state: Any, tuning: Tuning | None, keys: Any, place: Place, data: Any
    ) -> tuple[Any, jax.Array, jax.Array]:
        size, entries = self.parameters.size, self.parameters.entries
        shards, row_weights, scale = data
        sampler = tuned_sampler(self.plan.gossip, tuning, self.dtype)
        parameters, pulled_back = coordinates_of(tuning)
        common = keys[Purpose.COMMON_NOISE] if sampler.has_common_noise else None
        noise_from = noise_of_steps(
            keys[Purpose.NOISE], common, self.parameters.num_shared, self._sizes.prepared_steps, size, self.dtype
        )

        def gradients(positions: jax.Array, rows: jax.Array | None) -> jax.Array:
            used = self._data.used(shards, rows)
            own = rows is not None or self._data.per_chain

            def of_batch(where: jax.Array) -> jax.Array:
                return self._gradients(where, used, row_weights, scale, own)

            return pulled_back(corrected(of_batch, anchor_of(tuning))(positions))

        def noise(first: Any) -> jax.Array:
            numbers = noise_from(first)
            return (
                numbers if entries is None else (numbers.reshape(-1, *entries.shape) * entries).reshape(numbers.shape)
            )

        local = Local(
            sampler=sampler,
            shape=(*keys[Purpose.NOISE].shape, size),
            noise=noise,
            chosen_rows=partial(self._data.chosen_rows, keys[Purpose.BATCH]),
            gradients=gradients,
            disagreement=jax.vmap(self._disagreement),
            consensus_error=consensus_error,
            private_start=self.parameters.private_start,
            parameters=parameters,
            is_small=self._is_small,
        )
        return run_segment(self.plan, self._sizes, self.dtype, local, state, place)


def simulation(problem: Problem, plan: Plan) -> Stepper:
    """The stepper of a plan's sampler."""
    if not plan.is_unison:
        plain = Simulation(problem, plan)
        return WarmedStepper(plain) if plan.sampler.tunes_itself else plain
    require_matching(problem, plan)
    return Replicas(problem, plan, OneProcess(plan.num_agents), centre(plan.graph))
