"""What a node in unison holds between moves: its replica, and where in the network's history it is."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from consilience.engines.base import PlainForm
from consilience.engines.peers.participants import Participants
from consilience.samplers.transitions.replica import Replica, private_leaves


class Held(NamedTuple):
    """A replica at the start of a step, which moves were repeated by then, and who takes part."""

    replica: Replica
    retries: tuple[int, ...] = ()
    participants: Participants | None = None
    """`None` while everybody does."""


class HeldForm(PlainForm):
    """How it is written to a checkpoint: the replica's arrays; the rest is noted beside them."""

    def content(self, state: Held) -> list[np.ndarray]:
        """The replica's arrays."""
        return super().content(state.replica)

    def note(self, state: Held) -> dict[str, Any]:
        """Their digest, the moves that were repeated, and who takes part."""
        who = state.participants and state.participants.note()
        return {**super().note(state), "retries": list(state.retries), "participants": who}

    def restored(self, arrays: list[Any], note: dict[str, Any]) -> Held:
        """All of it together."""
        who = note["participants"] and Participants.of(note["participants"])
        return Held(super().restored(arrays, note), tuple(note["retries"]), who)


class CommonWords:
    """What is the same at all agents of a replica, as words that can be summed.

    It is compiled, as every move needs it twice.

    Args:
        like: a replica of the same shapes.
    """

    def __init__(self, like: Replica) -> None:
        self._is_own = jax.tree.leaves(private_leaves(like))
        sizes = [leaf.size for leaf, own in self._with_owner(like) if not own]
        self._ends, self.size = np.cumsum(sizes), sum(sizes)
        self._packed, self._unpacked = jax.jit(self._pack), jax.jit(self._unpack)

    def of(self, replica: Replica) -> np.ndarray:
        """The words `(size,)` of a replica."""
        return np.asarray(self._packed(replica))

    def adopted(self, replica: Replica, words: np.ndarray) -> Replica:
        """A replica with the common part that some words hold, and its own private part."""
        return self._unpacked(replica, words)

    def _pack(self, replica: Replica) -> jax.Array:
        return jnp.concatenate([_to_words(leaf) for leaf, own in self._with_owner(replica) if not own])

    def _unpack(self, replica: Replica, words: jax.Array) -> Replica:
        parts = iter(jnp.split(words, self._ends[:-1]))
        found = [leaf if own else _from_words(next(parts), leaf) for leaf, own in self._with_owner(replica)]
        return jax.tree.unflatten(jax.tree.structure(replica), found)

    def _with_owner(self, replica: Replica) -> list[tuple[Any, bool]]:
        return list(zip(jax.tree.leaves(replica), self._is_own, strict=True))


def _to_words(leaf: jax.Array) -> jax.Array:
    """The bits of an array's numbers, or its integers, as words."""
    wide = leaf if leaf.dtype == jnp.float64 else leaf.astype(jnp.int64)
    return jax.lax.bitcast_convert_type(wide.reshape(-1), jnp.uint64)


def _from_words(words: jax.Array, like: jax.Array) -> jax.Array:
    kind = jnp.float64 if like.dtype == jnp.float64 else jnp.int64
    return jax.lax.bitcast_convert_type(words, kind).astype(like.dtype).reshape(like.shape)
