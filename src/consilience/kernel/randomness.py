"""Every random number of a run: keys are derived, never carried.

The numbers for chain `c`, agent `i`, step `k` and a purpose depend on `(seed, purpose, c, i, k)` alone. So a
run resumes exactly where it stopped, and every engine draws the same numbers whichever agents it holds.

Minibatches in shuffled epochs need a random permutation of each shard in each epoch. Storing it, or sorting
anew, would cost memory or time per step; instead `shuffled_row` evaluates a keyed permutation at single
places (a Feistel network over a rectangle of about `size` places, walked until it lands inside).
"""

from __future__ import annotations

import enum
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_ROUNDS = 4
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


class Purpose(enum.IntEnum):
    """What random numbers are for; each purpose has numbers of its own."""

    INIT = 0
    NOISE = 1
    BATCH = 2
    MOVE = 3
    """The moves of samplers in unison; no agent is in their keys."""
    SPREAD = 4
    """Where chains of a warm-up start; of shared parameters, no agent is in their keys."""
    COMMON_NOISE = 5
    """Noise that all agents share; no agent is in its keys."""


def agent_keys(seed: int, purpose: Purpose, chains: Any, agents: Any) -> jax.Array:
    """Keys of shape `(len(chains), len(agents))` for the given chain and agent numbers.

    They are what `fold_in` makes of `key(seed)` with purpose, chain and agent. Of numbers that are known they are
    computed by NumPy, since to compile the hash took more time than nearly anything else at a run's start.
    """
    numpy = jnp if isinstance(chains, jax.core.Tracer) or isinstance(agents, jax.core.Tracer) else np
    numbers = np.full((1, 1), purpose), numpy.asarray(chains)[:, None], numpy.asarray(agents)[None]
    words: tuple[Any, Any] = np.zeros((1, 1), np.uint32), np.full((1, 1), seed, np.uint32)
    for number in numbers:
        words = threefry(*words, np.zeros((1, 1), np.uint32), number.astype(np.uint32))
    return jax.random.wrap_key_data(numpy.stack(words, -1), impl="threefry2x32")


def chain_keys(seed: int, purpose: Purpose, num_chains: int, step: Any) -> tuple[jax.Array, jax.Array]:
    """Keys of the chains in a step, `(chains,)`, and one that they share; the same at every agent."""
    root = jax.random.fold_in(jax.random.key(seed, impl="threefry2x32"), int(purpose))
    chains = jnp.arange(num_chains + 1, dtype=jnp.uint32)
    keys = jax.vmap(lambda chain: at_step(jax.random.fold_in(root, chain), step))(chains)
    return keys[:-1], keys[-1]


def at_step(key: jax.Array, step: Any) -> jax.Array:
    """The key of one step, from the key of a chain, agent and purpose."""
    return jax.random.fold_in(key, step)


def threefry(key_0: Any, key_1: Any, word_0: Any, word_1: Any) -> tuple[jax.Array, jax.Array]:
    """The Threefry-2×32 hash with 20 rounds (Salmon et al., 2011), the one behind JAX's default keys.

    Written out without a loop, so that all of it is one fused and vectorised operation: ten times faster on
    CPU than the looped one that `jax.random` uses there.
    """
    keys = (key_0, key_1, key_0 ^ key_1 ^ np.uint32(0x1BD11BDA))
    word_0, word_1 = word_0 + keys[0], word_1 + keys[1]
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            word_0 = word_0 + word_1
            word_1 = ((word_1 << rotation) | (word_1 >> (32 - rotation))) ^ word_0
        word_0 = word_0 + keys[(group + 1) % 3]
        word_1 = word_1 + keys[(group + 2) % 3] + np.uint32(group + 1)
    return word_0, word_1


def replaced_rows(key: jax.Array, step: Any, size: Any, batch_size: int) -> jax.Array:
    """`batch_size` rows of a shard of `size`, drawn with replacement for this step."""
    return jax.random.randint(at_step(key, step), (batch_size,), 0, size)


def shuffled_rows(keys: jax.Array, steps: jax.Array, sizes: Any, batch_size: int) -> jax.Array:
    """The `batch_size` rows that follow each other in the shuffled epochs of shards, `(*steps, *keys, batch_size)`.

    Epochs are laid end to end and cut into batches, so every row is used exactly once in every epoch even if
    `batch_size` does not divide the shard's size. Needs `batch_size ≤ size` and `size · batch_size < 2^32`. All
    numbers stand in one long axis, as those of `normals` do.

    Args:
        keys: of chains and agents, any shape.
        steps: any shape.
        sizes: of the shards, with the shape of `keys` or one that goes with it.
        batch_size: rows of a step.
    """
    shape = (*steps.shape, *keys.shape)

    def flat(values: Any) -> jax.Array:
        return jnp.broadcast_to(values, shape).reshape(-1)

    words, size = jax.random.key_data(keys), flat(jnp.asarray(sizes, jnp.uint32))
    step = flat(steps.astype(jnp.uint32).reshape(*steps.shape, *[1] * keys.ndim))
    start = (step % size) * jnp.uint32(batch_size)
    epoch = (step // size) * jnp.uint32(batch_size) + start // size
    offset = (start % size)[:, None] + jnp.arange(batch_size, dtype=jnp.uint32)
    in_next = offset >= size[:, None]  # a batch touches at most two epochs

    def each(values: jax.Array) -> jax.Array:
        return jnp.broadcast_to(values[..., None], (*values.shape, batch_size)).reshape(*values.shape[:-1], -1)

    now, then = (_round_keys(flat(words[..., 0]), flat(words[..., 1]), epoch + jnp.uint32(more)) for more in (0, 1))
    chosen = jnp.where(in_next.reshape(-1), each(then), each(now))
    place = jnp.where(in_next, offset - size[:, None], offset).reshape(-1)
    sent = _sent(chosen, place, each(size), *map(each, _rectangle(size)))
    return sent.astype(jnp.int32).reshape(*shape, batch_size)


def _round_keys(key_0: jax.Array, key_1: jax.Array, epoch: jax.Array) -> jax.Array:
    """`(2 · rounds, …)` words that choose the permutation of an epoch: `random.bits` of `fold_in(key, epoch)`.

    A loop over the words has them ready in memory; compilers would otherwise hash anew for each row of a batch.
    """
    own = threefry(key_0, key_1, jnp.zeros_like(epoch), epoch)

    def word(number: jax.Array) -> jax.Array:
        high, low = threefry(*own, jnp.zeros_like(epoch), jnp.broadcast_to(number, epoch.shape))
        return high ^ low

    return jax.lax.map(word, jnp.arange(2 * _ROUNDS, dtype=jnp.uint32))


def shuffled_row(round_keys: jax.Array, place: jax.Array, size: jax.Array) -> jax.Array:
    """Where a keyed pseudorandom permutation of `0 … size − 1` sends `place`.

    Args:
        round_keys: `(2 · rounds, …)` random words that choose the permutation.
        place: unsigned integers below `size`.
        size: the number of rows.

    >>> keys = jax.random.bits(jax.random.key(0), (8, 1), jnp.uint32)
    >>> sorted(shuffled_row(keys, jnp.arange(7, dtype=jnp.uint32), jnp.uint32(7)).tolist())
    [0, 1, 2, 3, 4, 5, 6]
    """
    return _sent(round_keys, place, size, *_rectangle(size))


def _rectangle(size: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Height and width of a rectangle with at least `size` places, hardly more."""
    height = jnp.ceil(jnp.sqrt(size.astype(jnp.float32))).astype(jnp.uint32)
    return height, (size + height - 1) // height


def _sent(round_keys: jax.Array, place: jax.Array, size: jax.Array, height: jax.Array, width: jax.Array) -> jax.Array:
    """Where places of a rectangle are sent; a row and a column below 2^16 go in one word, which is one array less."""

    def scramble(at: jax.Array) -> jax.Array:
        def once(r: Any, at: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            row, column = at
            row = _add_below(row, _below(_mixed(column ^ round_keys[2 * r]), height), height)
            return row, _add_below(column, _below(_mixed(row ^ round_keys[2 * r + 1]), width), width)

        row, column = jax.lax.fori_loop(0, _ROUNDS, once, (at >> 16, at & 0xFFFF))  # one kernel would do all anew
        return (row << 16) | column

    def reached(at: jax.Array) -> jax.Array:
        return (at >> 16) * width + (at & 0xFFFF)

    # A place outside is sent on until it lands inside: that is again a permutation of the inside.
    row = place // width
    start = (row << 16) | (place - row * width)
    return reached(jax.lax.while_loop(
        lambda at: jnp.any(reached(at) >= size), lambda at: jnp.where(reached(at) >= size, scramble(at), at),
        scramble(start),
    ))  # fmt: skip


def _mixed(word: jax.Array) -> jax.Array:
    """A 32-bit word whose every bit depends on every bit of the given one."""
    word = (word ^ (word >> 16)) * np.uint32(0x7FEB352D)
    word = (word ^ (word >> 15)) * np.uint32(0x846CA68B)
    return word ^ (word >> 16)


def _below(word: jax.Array, limit: jax.Array) -> jax.Array:
    return ((word >> 16) * limit) >> 16


def _add_below(a: jax.Array, b: jax.Array, limit: jax.Array) -> jax.Array:
    total = a + b
    return jnp.where(total >= limit, total - limit, total)
