"""Checkpoints of a state that is spread over processes: Orbax writes each process's part, into one checkpoint.

What is written is the state as it lies on the devices, with a note of the layout; it can be read into any other.
The digest is the exclusive or of every agent's own, so that each process can compute its share of it.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import jax
import numpy as np

from consilience.engines.mesh import Mesh
from consilience.engines.mesh.engine import local_part
from consilience.errors import CheckpointError
from consilience.runs.checkpoints import Checkpoint, Checkpoints


class TeamCheckpoints(Checkpoints):
    """The checkpoints of a run on a mesh; every process calls every method, at the same time."""

    def __init__(self, path: Path, mesh: Mesh) -> None:
        super().__init__(path)
        self.mesh = mesh

    def _content(self, state: Any) -> Any:
        return state

    def _digest(self, state: Any) -> str:
        mesh = self.mesh
        real = mesh.own_is_agent
        own = [local_part(leaf)[: mesh.plan.num_chains, real] for leaf in jax.tree.leaves(state)]
        trimmed = [_trimmed(leaf, mesh) for leaf in own]
        return _joined(mesh.team.gather(_digest_of(trimmed, mesh.agents[mesh.store_rows])))

    def _note(self, state: Any) -> dict[str, Any]:
        shapes = [[list(leaf.shape), str(leaf.dtype)] for leaf in jax.tree.leaves(state)]
        return {"starts": self.mesh.layout.starts.tolist(), "shapes": shapes}

    def _read(self, step: int, example: Any) -> Checkpoint:
        """The state in the layout of this mesh, whatever it was written from; all processes succeed, or none."""
        error: Exception | None = None
        found = None
        try:
            found = self._read_whole(step)
        except Exception as problem:  # a damaged file may fail in any layer below
            error = problem
        failed = self.mesh.team.gather(np.array(error is not None))
        if error is not None:
            raise error
        if failed.any() or found is None:
            raise CheckpointError(f"process {int(failed.argmax())} cannot read it")
        leaves, note = found
        shapes, structure = jax.tree.flatten(self.mesh.state_shapes())
        state = [self.mesh.spread(leaf, shape) for leaf, shape in zip(leaves, shapes, strict=True)]
        return Checkpoint(step, jax.tree.unflatten(structure, state), note)

    def _read_whole(self, step: int) -> tuple[list[np.ndarray], dict[str, Any]]:
        """All agents' states, `(chains, agents, …)` in line, and the note."""
        arguments = self._ocp.args
        note = dict(self._manager.restore(step, args=arguments.Composite(note=arguments.JsonRestore())).note)
        starts = np.array(note.pop("starts"))
        shapes = [np.zeros(shape, dtype) for shape, dtype in note.pop("shapes")]
        wanted = arguments.StandardRestore({"leaves": shapes})
        found = self._manager.restore(step, args=arguments.Composite(state=wanted)).state["leaves"]
        capacity = int(np.diff(starts).max())
        places = np.concatenate([d * capacity + np.arange(c) for d, c in enumerate(np.diff(starts))])
        leaves = [_trimmed(np.asarray(leaf)[: self.mesh.plan.num_chains][:, places], self.mesh) for leaf in found]
        if _joined(_digest_of(leaves, self.mesh.agents)[None]) != note.pop("digest"):
            raise CheckpointError("its content does not match its digest")
        return leaves, note

    def _put_aside(self, step: int) -> str:
        if self.mesh.team.is_first:
            name = super()._put_aside(step)
        else:
            name = "damaged"
        self.mesh.team.gather(np.zeros(1))  # nobody goes on before it is gone
        return name


def _trimmed(leaf: np.ndarray, mesh: Mesh) -> np.ndarray:
    """Without what fills up a vector that is spread along `model`."""
    return leaf[..., : mesh.parameters.size] if leaf.ndim == 3 else leaf


def _digest_of(leaves: list[np.ndarray], agents: np.ndarray) -> np.ndarray:
    """The exclusive or of a digest for each agent of leaves `(chains, agents, …)`."""
    total = np.zeros(32, np.uint8)
    for place, agent in enumerate(agents):
        digest = hashlib.sha256(str(int(agent)).encode())
        for leaf in leaves:
            digest.update(np.ascontiguousarray(leaf[:, place]).tobytes())
        total ^= np.frombuffer(digest.digest(), np.uint8)
    return total


def _joined(parts: np.ndarray) -> str:
    return np.bitwise_xor.reduce(parts, 0).tobytes().hex()
