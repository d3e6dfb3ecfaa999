"""Which parts of a replica are spread over devices, and its form in a checkpoint.

As with `MeshForm`, what is written is the state as it lies on the devices, with a note of the layout; it can be read
into any other. The digest is the exclusive or of every agent's own and of what all have in common.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from consilience.engines.mesh.checkpoints import digest_of_agents, joined
from consilience.engines.mesh.local_arrays import local_part
from consilience.engines.spreading import Buffers
from consilience.errors import CheckpointError
from consilience.samplers.transitions.hmc import Length
from consilience.samplers.transitions.replica import Replica

if TYPE_CHECKING:
    from consilience.engines.mesh.unison import MeshPlace

EVERYWHERE = -1
"""In place of an axis: the array is the same on all devices."""


def agent_axes(tree: Any) -> Any:
    """Which axis of each array of a replica, or of a pair of one and buffers, is along agents.

    Moments of private parameters are flat, agent after agent: their axis is along agents too.
    """
    if isinstance(tree, Buffers):
        return jax.tree.map(lambda _: EVERYWHERE, tree)._replace(private=2)
    if not isinstance(tree, Replica):
        return tuple(map(agent_axes, tree))
    axes = jax.tree.map(lambda _: EVERYWHERE, tree)
    now = axes.adaptation
    moments = now.own_moments
    moments = moments._replace(inverse_mass_matrix=0, wc_state=moments.wc_state._replace(mean=0, m2=0))
    length = now.length._replace(own_direction=0) if isinstance(now.length, Length) else now.length
    now = now._replace(own_inverse_mass=0, own_moments=moments, length=length)
    return axes._replace(private=1, own_gradient=1, adaptation=now)


class ReplicaForm:
    """How a replica on a mesh is written and read; every process calls every method, at the same time."""

    def __init__(self, place: MeshPlace, like: Replica) -> None:
        self.place = place
        self.shapes, self.structure = jax.tree.flatten(like)
        self.axes = jax.tree.leaves(agent_axes(like))
        self.written_axes = [axis for shape, axis in zip(self.shapes, self.axes, strict=True) if shape.size]

    def content(self, state: Replica) -> list[Any]:
        """The arrays as they lie on the devices, but for empty ones, which Orbax refuses."""
        return [leaf for leaf in jax.tree.leaves(state) if leaf.size]

    def note(self, state: Replica) -> dict[str, Any]:
        """The digest of all agents' parts and of what they share, and how they are laid out."""
        place, arrays = self.place, [local_part(leaf) for leaf in self.content(state)]
        parts = self._by_agent(arrays, len(place.places))
        digest = digest_of_agents([part[:, place.is_agent] for part in parts], place.agents)
        return {
            "digest": joined(place.team.gather(digest)) + self._common_digest(arrays),
            "starts": place.layout.starts.tolist(),
            "shapes": [[list(leaf.shape), str(leaf.dtype)] for leaf in self.content(state)],
        }

    def example(self, note: dict[str, Any]) -> list[np.ndarray]:
        """Whole arrays, in the shapes that were written."""
        return [np.zeros(shape, dtype) for shape, dtype in note["shapes"]]

    def restored(self, arrays: list[Any], note: dict[str, Any]) -> Replica:
        """The state in the layout of this mesh, whatever it was written from."""
        place, whole = self.place, [np.asarray(leaf) for leaf in arrays]
        counts = np.diff(note["starts"])
        capacity = int(counts.max())
        written = np.concatenate([d * capacity + np.arange(count) for d, count in enumerate(counts)])
        parts = [part[:, written] for part in self._by_agent(whole, capacity * len(counts))]
        digest = joined(digest_of_agents(parts, place.storage_agents)[None]) + self._common_digest(whole)
        if digest != note["digest"]:
            raise CheckpointError("its content does not match its digest")
        own = iter([part[:, place.own.start + place.places] for part in parts])
        common = iter([leaf for leaf, axis in zip(whole, self.written_axes, strict=True) if axis == EVERYWHERE])
        state = []
        for shape, axis in zip(self.shapes, self.axes, strict=True):
            here = list(shape.shape)
            if axis != EVERYWHERE:
                here[axis] //= place.team.size
            source = common if axis == EVERYWHERE else own
            leaf = next(source).reshape(here) if shape.size else np.zeros(here, shape.dtype)
            state.append(place.put(leaf, axis))
        return jax.tree.unflatten(self.structure, state)

    def _by_agent(self, arrays: list[np.ndarray], places: int) -> list[np.ndarray]:
        """The arrays that are spread, each as `(…, places, entries)`."""
        private = jax.tree.unflatten(self.structure, self.shapes).private.shape[-1]
        return [
            leaf if axis == 1 else leaf.reshape(1, places, private)
            for leaf, axis in zip(arrays, self.written_axes, strict=True)
            if axis != EVERYWHERE
        ]

    def _common_digest(self, arrays: list[np.ndarray]) -> str:
        digest = hashlib.sha256()
        for leaf, axis in zip(arrays, self.written_axes, strict=True):
            if axis == EVERYWHERE:
                digest.update(np.ascontiguousarray(leaf).tobytes())
        return digest.hexdigest()
