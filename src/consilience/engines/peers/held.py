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
    moved: tuple[bool, ...] = ()
    """Which chains the last move took elsewhere, as this agent decided; the others compare it with theirs."""


class HeldForm(PlainForm):
    """How it is written to a checkpoint: the replica's arrays; the rest is noted beside them."""

    def content(self, state: Held) -> list[np.ndarray]:
        """The replica's arrays."""
        return super().content(state.replica)

    def note(self, state: Held) -> dict[str, Any]:
        """Their digest, the moves that were repeated, and who takes part."""
        who = state.participants and state.participants.note()
        return {
            **super().note(state), "retries": list(state.retries), "participants": who, "moved": list(state.moved)
        }  # fmt: skip

    def restored(self, arrays: list[Any], note: dict[str, Any]) -> Held:
        """All of it together."""
        who = note["participants"] and Participants.of(note["participants"])
        return Held(super().restored(arrays, note), tuple(note["retries"]), who, tuple(note.get("moved", ())))


class CommonWords:
    """What is the same at all agents of a replica, as words that can be summed.

    Args:
        like: a replica of the same shapes.
        after_warmup: leave out what the warm-up found, which no later move changes.
    """

    def __init__(self, like: Replica, after_warmup: bool = False) -> None:
        without = private_leaves(like)
        if after_warmup:
            without = without._replace(
                grid=jax.tree.map(lambda _: True, like.grid), adaptation=jax.tree.map(lambda _: True, like.adaptation)
            )
        self._chosen = [place for place, out in enumerate(jax.tree.leaves(without)) if not out]
        sizes = [leaf.size for leaf in self._leaves(like)]
        self._ends, self.size = np.cumsum(sizes), sum(sizes)

    def of(self, replica: Replica) -> np.ndarray:
        """The words `(size,)` of a replica."""
        return np.concatenate([_to_words(np.asarray(leaf)) for leaf in self._leaves(replica)])

    def adopted(self, replica: Replica, words: np.ndarray) -> Replica:
        """A replica with the part that some words hold, and the rest of its own."""
        leaves, tree = jax.tree.flatten(replica)
        for place, part in zip(self._chosen, np.split(words, self._ends[:-1]), strict=True):
            leaves[place] = jnp.asarray(_from_words(part, leaves[place]))
        return jax.tree.unflatten(tree, leaves)

    def _leaves(self, replica: Replica) -> list[Any]:
        leaves = jax.tree.leaves(replica)
        return [leaves[place] for place in self._chosen]


def _to_words(leaf: np.ndarray) -> np.ndarray:
    """The bits of an array's numbers, or its integers, as words."""
    return leaf.astype(np.float64 if leaf.dtype == np.float64 else np.int64, copy=False).reshape(-1).view(np.uint64)


def _from_words(words: np.ndarray, like: Any) -> np.ndarray:
    kind = np.float64 if like.dtype == np.float64 else np.int64
    return words.view(kind).astype(like.dtype).reshape(like.shape)
