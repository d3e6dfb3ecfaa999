"""The loop of a run that several processes sample together.

Before each segment they agree: how many steps, whether to checkpoint, whether somebody was asked to stop or could not
write. Every process writes the draws of its own agents, into files of its own; what all have written, the first one
shows to readers. Checkpoints are written between segments, by all at once. A single process does the same, alone.
"""

from __future__ import annotations

import time
from concurrent.futures import Future
from typing import Any

import jax
import numpy as np

from consilience.engines import Segment
from consilience.engines.mesh import Mesh
from consilience.errors import ConsilienceError, RunError, StorageError
from consilience.loop import Sampling, ShowProgress, by_variable
from consilience.runs import RunDirectory
from consilience.runs.files import disk_errors
from consilience.teamwork.checkpoints import TeamCheckpoints


class TeamSampling(Sampling):
    """One stretch of sampling by a team of processes."""

    engine: Mesh

    def __init__(
        self, run: RunDirectory, engine: Mesh, progress: ShowProgress | None, checkpoint_seconds: float
    ) -> None:
        super().__init__(run, engine, progress if engine.team.is_first else None, checkpoint_seconds)
        self.team = engine.team
        self.failure: ConsilienceError | None = None

    def _checkpoint_is_due(self, step: int) -> bool:
        return False  # all processes agree on it, between segments

    def _before_segment(self, state: Any, step: int, steps: int) -> int:
        due = step > 0 and time.perf_counter() - self.last_checkpoint >= self.checkpoint_seconds
        stop, due, steps = self._agree(self.stop.is_set(), due, steps)
        if stop:
            self.stop.set()
            return 0
        if due:
            self._checkpoint(state, step)
        return steps

    def _agree(self, stop: bool = False, due: bool = False, steps: int = 0) -> tuple[bool, bool, int]:
        """Anybody's wish to stop, the first's other wishes; shows what all have written, stops if one could not."""
        own = np.array([stop, due, steps, self.draws.written, self.failure is not None], np.int64)
        everybody = self.team.gather(own)
        if everybody[:, 4].any():
            self.team.stop_together(self.failure)
        written = int(everybody[:, 3].min())
        if self.team.is_first and written > self.draws.length:
            try:
                with disk_errors(self.run.path, self.kept):
                    self.draws.commit(written)
            except StorageError as error:
                self.failure = error  # the others hear of it next time
        return bool(everybody[:, 0].any()), bool(everybody[0, 1]), int(everybody[0, 2])

    def _loop(self, state: Any, step: int, writer: Any) -> tuple[int, Any]:
        reached = super()._loop(state, step, writer)
        self._agree()
        self._agree()  # that all is shown
        return reached

    def _wait(self, allowed: int) -> None:
        """As always, but what went wrong is kept until all can be told."""
        while len(self.pending) > allowed:
            finished: Future[None] = self.pending.pop(0)
            try:
                finished.result()
            except ConsilienceError as error:
                self.failure = self.failure or error

    def _append(self, segment: Segment) -> None:
        if len(segment.draws):
            values = by_variable(segment.draws, self.engine.parameters)
            if self.team.is_first:
                values |= self._numbers(segment)
            self.draws.write(values, {"agent": self.engine.store_rows})
        if self.team.is_first:
            self.metrics.append({"consensus_error": segment.consensus_error.T, "step": segment.metric_steps})

    def _checkpoint(self, state: Any, step: int) -> None:
        self._wait(0)
        self._agree()
        if self.checkpoints is None:
            self.checkpoints = TeamCheckpoints(self.run.path / "checkpoints", self.engine)
        extra = {"draws": self.draws.written, "times": self.metrics.length}
        with disk_errors(
            self.run.path, self.kept
        ):  # others may wait inside: the runtime tells them that this one left
            self.checkpoints.save(step, state, extra)
        self._note(step=step, timing=self._timing(step))
        self.last_checkpoint = time.perf_counter()

    def _is_finite(self, state: Any) -> bool:
        return self.engine.is_finite(state)

    def _note(self, **changes: Any) -> None:
        if self.team.is_first:
            super()._note(**changes)

    def _non_finite(self, state: Any, first_step: int, steps: int, segment: Segment) -> None:
        """The state before the segment was used up: sample again from the last checkpoint, then look."""
        self._wait(0)
        state, step = _last_state(self.run, self.engine)[:2]
        while step < first_step:
            state, passed = self.engine.advance(state, step, min(self.engine.max_steps, first_step - step))
            step = passed.last_step
        try:
            super()._non_finite(state, first_step, steps, segment)
        finally:
            self._agree()


def restore(run: RunDirectory, mesh: Mesh) -> tuple[Any, int]:
    """The state to go on from on this mesh, with draws and metrics cut back to it."""
    state, step, extra = _last_state(run, mesh)
    draws, times = extra["draws"], extra["times"]

    def cut() -> None:
        if draws != run.plan.draws_after(step) or run.draw_group().length < draws:
            raise RunError(
                f"draws are missing from {run.path}/draws.zarr: the run cannot be resumed, start a new one"
            )
        if mesh.team.is_first:
            run.draw_group().commit(draws)
            run.metric_group().commit(times)

    mesh.team.attempt(cut)
    return state, step


def _last_state(run: RunDirectory, mesh: Mesh) -> tuple[Any, int, dict[str, Any]]:
    """The state of the last checkpoint, or the initial one."""
    if (run.path / "checkpoints").is_dir():
        checkpoints = TeamCheckpoints(run.path / "checkpoints", mesh)
        found = checkpoints.latest(jax.ShapeDtypeStruct((), np.float32))
        checkpoints.close()
        if found is not None:
            return found.state, found.step, found.extra
    return mesh.initial_state(), 0, {"draws": 0, "times": 0}
