"""The form of a state that is spread over processes: Orbax writes each process's part, into one checkpoint.

What is written is the state as it lies on the devices, with a note of the layout; it can be read into any other.
The digest is the exclusive or of every agent's own, so that each process can compute its share of it.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from consilience.engines.mesh.local_arrays import local_part
from consilience.errors import CheckpointError
from consilience.samplers import Leaf

if TYPE_CHECKING:
    from consilience.engines.mesh.engine import MeshSimulation


class MeshForm:
    """How the state of a mesh is written and read; every process calls every method, at the same time."""

    def __init__(self, mesh: MeshSimulation) -> None:
        self.mesh = mesh

    def content(self, state: Any) -> list[Any]:
        """The arrays as they lie on the devices."""
        return jax.tree.leaves(state)

    def note(self, state: Any) -> dict[str, Any]:
        """The digest of all agents' states, and how they are laid out."""
        mesh, arrays = self.mesh, jax.tree.leaves(state)
        own = [local_part(leaf)[: mesh.plan.num_chains, mesh.own_is_agent] for leaf in arrays]
        digest = digest_of_agents(self._trimmed(own), mesh.agents[mesh.storage.own])
        return {
            "digest": joined(mesh.team.gather(digest)),
            "starts": mesh.layout.starts.tolist(),
            "shapes": [[list(leaf.shape), str(leaf.dtype)] for leaf in arrays],
        }

    def example(self, note: dict[str, Any]) -> list[np.ndarray]:
        """Whole arrays, in the shapes that were written."""
        return [np.zeros(shape, dtype) for shape, dtype in note["shapes"]]

    def restored(self, arrays: list[Any], note: dict[str, Any]) -> Any:
        """The state in the layout of this mesh, whatever it was written from."""
        mesh, starts = self.mesh, np.array(note["starts"])
        capacity = int(np.diff(starts).max())
        places = np.concatenate([d * capacity + np.arange(c) for d, c in enumerate(np.diff(starts))])
        whole = self._trimmed([np.asarray(leaf)[: mesh.plan.num_chains][:, places] for leaf in arrays])
        if joined(digest_of_agents(whole, mesh.agents)[None]) != note["digest"]:
            raise CheckpointError("its content does not match its digest")
        shapes, structure = jax.tree.flatten(mesh.state_shapes())
        state = [mesh.spread(leaf, shape) for leaf, shape in zip(whole, shapes, strict=True)]
        return jax.tree.unflatten(structure, state)

    def _trimmed(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        """Without what fills up vectors that are spread along `model`."""
        kinds = jax.tree.leaves(
            jax.tree.map(
                lambda kind, part: jax.tree.map(lambda _: kind, part),
                self.mesh.plan.gossip.state_leaves,
                self.mesh.state_shapes(),
            )
        )
        size = self.mesh.parameters.size
        return [leaf[..., :size] if kind is Leaf.VECTOR else leaf for leaf, kind in zip(arrays, kinds, strict=True)]


def digest_of_agents(leaves: list[np.ndarray], agents: np.ndarray) -> np.ndarray:
    """The exclusive or of a digest for each agent of leaves `(chains, agents, …)`."""
    total = np.zeros(32, np.uint8)
    for place, agent in enumerate(agents):
        digest = hashlib.sha256(str(int(agent)).encode())
        for leaf in leaves:
            digest.update(np.ascontiguousarray(leaf[:, place]).tobytes())
        total ^= np.frombuffer(digest.digest(), np.uint8)
    return total


def joined(parts: np.ndarray) -> str:
    """The exclusive or of what each process found."""
    return np.bitwise_xor.reduce(parts, 0).tobytes().hex()
