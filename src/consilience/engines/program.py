"""The program of a segment of steps, for engines that hold several agents: `simulate`, and every device of `mesh`.

It is two nested loops. The outer one goes over blocks of steps and measures the consensus error after each. The inner
one goes over the block's steps: gradient, mixing, update, and a write into the slot of the draw that the step belongs
to (the last step of a slot stays). What steps need besides the state (noise, step sizes, rows of minibatches) is
prepared for many of them at once: for a whole block, or for parts of it where a block would be too large. The number
of steps is an argument, so one program serves every segment, and a position depends only on the step, not on how a
run was cut.

Engines differ in how neighbours' messages arrive, and in which part of the network and of the parameters they hold:
`Local` says that.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from consilience.engines.base import Segment
from consilience.kernel.noise import noise_of_step
from consilience.kernel.step import coefficients_of, each, one_step
from consilience.plans import Plan
from consilience.samplers import Gossip, SpeaksLast

BLOCK_NUMBERS = 2**18  # numbers prepared at once: about 1 MB, which stays in cache
LONGEST_BLOCK = 32  # longer ones get split among threads, which then wait for each other
_BUFFER_BYTES = 2**24  # draws kept in memory until a segment ends
_MOST_SLOTS = 2**16
_LONGEST_SEGMENT = 2**22
_MOST_CUTS = 200


class Sizes(NamedTuple):
    """How a segment is cut: from the sizes of a problem and a plan alone, never from timing."""

    block_steps: int
    """Steps between two measurements; segments begin at multiples of it."""
    prepared_steps: int
    """Steps whose numbers are prepared at once, a divisor of `block_steps`."""
    blocks: int
    """The most blocks in a segment."""
    slots: int
    """The most draws that a segment touches."""

    @property
    def max_steps(self) -> int:
        """The longest segment."""
        return self.blocks * self.block_steps


class Stored(NamedTuple):
    """Which steps are stored: a draw after every so many of them, from a step on."""

    first: int
    every: int

    @classmethod
    def of(cls, plan: Plan) -> Stored:
        """Those of a plan, after its burn-in."""
        return cls(plan.burn_in, plan.store_every)

    def before(self, step: int) -> int:
        """How many draws are complete after so many steps."""
        return max(0, (step - self.first) // self.every)


def longest_segment(plan: Plan, size: int, itemsize: int) -> int:
    """The most steps whose draws fit the buffer."""
    slot_bytes = plan.num_chains * plan.num_agents * size * itemsize
    slots = max(1, min(_MOST_SLOTS, _BUFFER_BYTES // slot_bytes, plan.num_stored))
    return min(slots * plan.store_every, plan.num_steps, _LONGEST_SEGMENT)


def sizes_of(plan: Plan, longest: int, block_steps: int, prepared_steps: int) -> Sizes:
    """Segments of at most `longest` steps, in whole blocks."""
    blocks = max(1, longest // block_steps)
    return Sizes(block_steps, prepared_steps, blocks, math.ceil(blocks * block_steps / plan.store_every) + 1)


def measurements(plan: Plan, block_steps: int) -> int:
    """How often is measured at most: after each block, and where a window or a look cuts one."""
    return math.ceil(plan.num_steps / block_steps) + (_MOST_CUTS if plan.sampler.tunes_itself else 0)


def segment_of(
    stored: Stored, block_steps: int, first_step: int, num_steps: int, draws: np.ndarray, errors: np.ndarray
) -> Segment:
    """What a segment leaves behind, from a program's buffers of draws and consensus errors, which may be longer."""
    last_step, first_draw = first_step + num_steps, stored.before(first_step)
    blocks = math.ceil(num_steps / block_steps)
    measured = np.minimum(first_step + block_steps * np.arange(1, blocks + 1), last_step)
    complete = stored.before(last_step) - first_draw
    return Segment(last_step, draws[:complete], first_draw, measured, {"consensus_error": errors[:blocks]})


@dataclass(frozen=True)
class Local:
    """What a program sees of the network, as functions that it calls while it is traced."""

    sampler: Gossip
    """The algorithm, with all its numbers."""
    shape: tuple[int, int, int]
    """Chains, agents and parameters held here."""
    noise: Callable[[Any], jax.Array]
    """From the first of the steps that are prepared at once to their noise, as `noise_of_steps` gives it."""
    chosen_rows: Callable[[Any], jax.Array | None]
    """From steps to the rows of their minibatches, steps first."""
    gradients: Callable[..., jax.Array]
    """From parameters and chosen rows to the gradients there, in the sampler's coordinates."""
    disagreement: Callable[[Any], Any]
    """From the messages of the agents here, `(chains, agents, …)`, to their disagreement."""
    consensus_error: Callable[[jax.Array], jax.Array]
    """From the shared part of positions to the consensus error of every chain here."""
    private_start: int | None = None
    """Where in a vector private parameters begin, if there are some."""
    parameters: Callable[[jax.Array], jax.Array] = lambda positions: positions
    """From the sampler's coordinates to the parameters, which are what is stored."""
    is_small: bool = False
    """Whether a step is so little work that to share it out among threads costs more than it saves."""


class Place(NamedTuple):
    """Which steps a segment makes, as a program is told."""

    first_step: Any
    num_steps: Any
    stored_from: Any
    """The step after which draws begin."""

    @classmethod
    def of(cls, first_step: int, num_steps: int, stored: Stored) -> Place:
        """As arrays that a compiled program takes."""
        return cls(np.int32(first_step), np.int32(num_steps), np.int32(stored.first))


def run_segment(
    plan: Plan, sizes: Sizes, dtype: Any, local: Local, state: Any, place: Place
) -> tuple[Any, jax.Array, jax.Array]:
    """State, draws `(slots, chains, agents, size)` and consensus errors `(blocks, chains)` after a segment."""
    shape, part, sampler = local.shape, sizes.prepared_steps, local.sampler
    first_step, num_steps, stored_from = place
    first_draw = jnp.maximum(0, (first_step - stored_from) // plan.store_every)
    draws = jnp.zeros((sizes.slots + 1, *shape), dtype)  # the last slot takes what is not stored
    consensus = jnp.zeros((sizes.blocks, shape[0]), dtype)

    def positions_of(state: Any) -> jax.Array:
        return local.parameters(each(sampler.position)(state))

    def numbers_of(k: Any) -> Any:
        return coefficients_of(sampler, plan.num_agents, dtype, k, local.private_start)

    def some_steps(first: Any, count: Any, carry: Any) -> Any:
        """At most `prepared_steps` steps."""
        steps = first + jnp.arange(part, dtype=jnp.int32)
        numbers = jax.vmap(numbers_of)(steps) if sampler.numbers_change else numbers_of(first)
        noise = local.noise(first)
        rows = local.chosen_rows(steps)
        has_parts = local.is_small and isinstance(sampler, SpeaksLast)
        apart = partial(_apart, count > 0) if has_parts else _as_it_is
        numbered = (steps - stored_from) // plan.store_every
        slots = jnp.where(numbered < 0, sizes.slots, numbered - first_draw)

        def step(j: Any, carry: Any) -> Any:
            state, draws = carry
            own = noise_of_step(noise, j, shape)
            chosen = jax.tree.map(lambda leaf: leaf[j], rows)
            now = jax.tree.map(lambda leaf: leaf[j], numbers) if sampler.numbers_change else numbers
            gradients = apart(partial(local.gradients, rows=chosen))
            state = one_step(
                sampler, plan.graph, state, now, own, lambda positions: gradients(local.parameters(positions)),
                local.disagreement, local.private_start, apart,
            )  # fmt: skip
            return state, jax.lax.dynamic_update_index_in_dim(draws, positions_of(state), slots[j], 0)

        return jax.lax.fori_loop(0, count, step, carry)

    def block(b: Any, carry: Any) -> Any:
        state, draws, consensus = carry
        first, here = first_step + b * sizes.block_steps, num_steps - b * sizes.block_steps
        if part == sizes.block_steps:
            state, draws = some_steps(first, jnp.minimum(part, here), (state, draws))
        else:
            parts = (jnp.minimum(sizes.block_steps, here) + part - 1) // part
            state, draws = jax.lax.fori_loop(
                0,
                parts,
                lambda p, c: some_steps(first + p * part, jnp.minimum(part, here - p * part), c),
                (state, draws),
            )
        error = local.consensus_error(positions_of(state)[..., : local.private_start])
        return state, draws, jax.lax.dynamic_update_index_in_dim(consensus, error, b, 0)

    blocks = (num_steps + sizes.block_steps - 1) // sizes.block_steps
    return jax.lax.fori_loop(0, blocks, block, (state, draws, consensus))


def _as_it_is(part: Any) -> Any:
    return part


def _apart(always: Any, part: Callable[..., Any]) -> Callable[..., Any]:
    """A part of a step as a branch that is always taken, which no compiler can know.

    On CPU a sequence of more than eight operations is run as a graph of tasks, which threads take from a queue. With
    small operations that takes longer than they do; a branch is a shorter sequence of its own.
    """

    def branch(*arguments: Any) -> Any:
        like, given = jax.eval_shape(part, *arguments), jax.eval_shape(_as_it_is, arguments[0])
        if jax.tree.flatten(like) == jax.tree.flatten(given):  # then what comes out may lie where it came from
            return jax.lax.cond(always, part, lambda first, *_: first, *arguments)
        return jax.lax.cond(always, part, lambda *_: jax.tree.map(_zeros, like), *arguments)

    return branch


def _zeros(like: Any) -> jax.Array:
    return jnp.zeros(like.shape, like.dtype)
