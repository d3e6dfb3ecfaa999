"""Checkpoints of the sampler's state: written by Orbax as a whole or not at all, and verified when read.

Each checkpoint carries a digest of the state. One that cannot be read, or whose digest differs, is skipped in
favour of the one before it; what was sampled in between is then sampled again, with the same result. How a state is
written is the engine's business (`engines.base.StateForm`); the processes of a team call every method together.
"""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from consilience.engines.base import StateForm, Team
from consilience.errors import CheckpointError
from consilience.runs.files import sync, sync_since

_KEPT = 2
log = logging.getLogger("consilience")


class Checkpoint(NamedTuple):
    """A state that was read back."""

    step: int
    state: Any
    note: dict[str, Any]


class Checkpoints:
    """The checkpoints of a run, in a directory of their own."""

    def __init__(self, path: Path, form: StateForm, team: Team) -> None:
        import orbax.checkpoint as ocp

        logging.getLogger("absl").setLevel(logging.ERROR)  # Orbax reports every file at INFO and WARNING
        self._ocp, self._form, self._team = ocp, form, team
        self.path = path
        if team.is_first:
            for partial in path.glob("*.orbax-checkpoint-tmp*"):  # of a process that was killed while it wrote
                shutil.rmtree(partial, ignore_errors=True)
        self._manager = ocp.CheckpointManager(
            path.resolve(),
            options=ocp.CheckpointManagerOptions(max_to_keep=_KEPT, enable_async_checkpointing=False, create=True),
        )

    def save(self, step: int, state: Any, note: dict[str, Any]) -> None:
        """Write the state after `step` steps; older checkpoints beyond the last two are removed."""
        arguments = self._ocp.args
        content = arguments.Composite(
            state=arguments.StandardSave({"leaves": self._form.content(state)}),
            note=arguments.JsonSave({**note, **self._form.note(state)}),
        )
        try:
            self._manager.save(step, args=content)
            if self._team.is_first:
                sync_since(self.path / str(step), 0.0)
                sync(self.path)
        except Exception as error:  # a full disk comes as one of several kinds from the layers below
            reason = f"the checkpoint at step {step} was refused ({_first_line(error)})"
            raise OSError(getattr(error, "errno", None), reason) from error

    def latest(self) -> Checkpoint | None:
        """The newest checkpoint that reads back whole, or `None`; damaged ones are reported and put aside."""
        for step in sorted(self._manager.all_steps(read=True), reverse=True):
            try:
                return self._read_together(step)
            except (MemoryError, PermissionError):
                raise
            except Exception as error:  # a damaged file may fail in any layer below; it is reported and skipped
                log.warning(
                    "the checkpoint at step %d is damaged (%s) and was put aside as %s; falling back to the one "
                    "before it, or to the beginning",
                    step, _first_line(error), self._put_aside(step),
                )  # fmt: skip
        self._manager.reload()
        return None

    def _read_together(self, step: int) -> Checkpoint:
        """All processes of a team read it, or none."""
        found, error = None, None
        try:
            found = self._read(step)
        except Exception as problem:
            error = problem
        failed = self._team.gather(np.array(error is not None))
        if error is not None:
            raise error
        if found is None or failed.any():
            raise CheckpointError(f"process {int(failed.argmax())} cannot read it")
        return found

    def _read(self, step: int) -> Checkpoint:
        arguments = self._ocp.args
        note = dict(self._manager.restore(step, args=arguments.Composite(note=arguments.JsonRestore())).note)
        wanted = arguments.StandardRestore({"leaves": self._form.example(note)})
        found = self._manager.restore(step, args=arguments.Composite(state=wanted)).state["leaves"]
        return Checkpoint(step, self._form.restored(found, note), note)

    def _put_aside(self, step: int) -> str:
        """Move a damaged checkpoint out of the way, and say where to; nobody continues before it is gone."""
        aside = self.path.with_name(f"damaged-checkpoint-{step}")
        if self._team.is_first:
            shutil.rmtree(aside, ignore_errors=True)
            (self.path / str(step)).rename(aside)
        self._team.gather(np.zeros(1))
        return aside.name

    def close(self) -> None:
        """Release Orbax's resources."""
        self._manager.close()


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else repr(error)
