"""Checkpoints of the sampler's state: written by Orbax as a whole or not at all, and verified when read.

Each checkpoint carries a digest of the state. One that cannot be read, or whose digest differs, is skipped in
favour of the one before it; what was sampled in between is then sampled again, with the same result.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from consilience.errors import CheckpointError

_KEPT = 2
log = logging.getLogger("consilience")


class Checkpoint(NamedTuple):
    """A state that was read back."""

    step: int
    state: Any
    extra: dict[str, Any]


class Checkpoints:
    """The checkpoints of a run, in a directory of their own."""

    def __init__(self, path: Path) -> None:
        import orbax.checkpoint as ocp

        logging.getLogger("absl").setLevel(logging.ERROR)  # Orbax reports every file at INFO and WARNING
        self._ocp = ocp
        self.path = path
        self._manager = ocp.CheckpointManager(
            path.resolve(),
            options=ocp.CheckpointManagerOptions(max_to_keep=_KEPT, enable_async_checkpointing=False, create=True),
        )

    def save(self, step: int, state: Any, extra: dict[str, Any]) -> None:
        """Write the state after `step` steps; older checkpoints beyond the last two are removed."""
        saved = self._content(state)
        note = {**extra, **self._note(saved), "digest": self._digest(saved)}
        arguments = self._ocp.args
        content = arguments.Composite(
            state=arguments.StandardSave({"leaves": jax.tree.leaves(saved)}), note=arguments.JsonSave(note)
        )
        try:
            self._manager.save(step, args=content)
        except Exception as error:  # a full disk comes as one of several kinds from the layers below
            raise OSError(f"the checkpoint at step {step} was refused ({_first_line(error)})") from error

    def latest(self, example: Any) -> Checkpoint | None:
        """The newest checkpoint that reads back whole, or `None`; damaged ones are reported and put aside."""
        for step in sorted(self._manager.all_steps(read=True), reverse=True):
            try:
                return self._read(step, example)
            except (MemoryError, PermissionError):
                raise
            except Exception as error:  # a damaged file may fail in any layer below; it is reported and skipped
                log.warning(
                    "the checkpoint at step %d is damaged (%s) and was put aside as %s; going back to the one "
                    "before it, or to the beginning",
                    step, _first_line(error), self._put_aside(step),
                )  # fmt: skip
        self._manager.reload()
        return None

    def _content(self, state: Any) -> Any:
        """What is written of a state: all of it, from this process's memory."""
        return jax.tree.map(np.asarray, state)

    def _digest(self, saved: Any) -> str:
        return _digest(saved)

    def _note(self, saved: Any) -> dict[str, Any]:
        """What is noted beside the state."""
        return {}

    def _put_aside(self, step: int) -> str:
        """Move a damaged checkpoint out of the way, and say where to."""
        aside = self.path.with_name(f"damaged-checkpoint-{step}")
        shutil.rmtree(aside, ignore_errors=True)
        (self.path / str(step)).rename(aside)
        return aside.name

    def _read(self, step: int, example: Any) -> Checkpoint:
        arguments = self._ocp.args
        leaves, structure = jax.tree.flatten(jax.tree.map(np.asarray, example))
        found = self._manager.restore(
            step,
            args=arguments.Composite(
                state=arguments.StandardRestore({"leaves": leaves}), note=arguments.JsonRestore()
            ),
        )
        state = jax.tree.unflatten(structure, found.state["leaves"])
        note = dict(found.note)
        if _digest(state) != note.pop("digest"):
            raise CheckpointError("its content does not match its digest")
        return Checkpoint(step, state, note)

    def close(self) -> None:
        """Release Orbax's resources."""
        self._manager.close()


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else repr(error)


def _digest(state: Any) -> str:
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(state):
        array = np.ascontiguousarray(leaf)
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
