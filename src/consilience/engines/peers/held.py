"""What a node in unison holds between moves: its replica, and where in the network's history it is."""

from __future__ import annotations

from collections.abc import Sequence
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

    Args:
        like: a replica of the same shapes.
    """

    def __init__(self, like: Replica) -> None:
        self._is_own = jax.tree.leaves(private_leaves(like))
        self.size = sum(
            int(np.prod(leaf.shape)) for leaf, own in zip(jax.tree.leaves(like), self._is_own, strict=True) if not own
        )

    def of(self, replica: Replica) -> np.ndarray:
        """The words `(size,)` of a replica."""
        return np.concatenate([_to_words(leaf) for leaf in self._common(replica)])

    def adopted(self, replica: Replica, words: np.ndarray) -> Replica:
        """A replica with the common part that some words hold, and its own private part."""
        common = self._common(replica)
        parts = iter(np.split(words, np.cumsum([leaf.size for leaf in common])[:-1]))
        found = [
            leaf if own else jnp.asarray(_from_words(next(parts), np.asarray(leaf)))
            for leaf, own in zip(jax.tree.leaves(replica), self._is_own, strict=True)
        ]
        return jax.tree.unflatten(jax.tree.structure(replica), found)

    def _common(self, replica: Replica) -> Sequence[np.ndarray]:
        leaves = zip(jax.tree.leaves(replica), self._is_own, strict=True)
        return [np.asarray(leaf) for leaf, own in leaves if not own]


def _to_words(leaf: np.ndarray) -> np.ndarray:
    """The bits of an array's numbers, or its integers, as words."""
    flat = leaf.reshape(-1)
    return flat.view(np.uint64) if flat.dtype == np.float64 else flat.astype(np.int64).view(np.uint64)


def _from_words(words: np.ndarray, like: np.ndarray) -> np.ndarray:
    flat = words.view(np.float64) if like.dtype == np.float64 else words.view(np.int64).astype(like.dtype)
    return flat.reshape(like.shape)
