"""The loop of a run: advance segment by segment, store while the next one computes.

One loop serves every engine. A worker thread writes draws, metrics and checkpoints; the main thread waits for
the compiled program, which runs meanwhile. A checkpoint is written only after everything before it.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import FrameType
from typing import Any, NamedTuple

import jax
import numpy as np

from consilience.engines import Engine, Segment
from consilience.errors import Interrupted, NonFiniteError, RunError
from consilience.problems import Parameters
from consilience.runs import Checkpoints, RunDirectory
from consilience.runs.files import disk_errors


class Progress(NamedTuple):
    """How far a run is, for whoever shows it."""

    step: int
    num_steps: int
    steps_per_second: float
    consensus_error: float
    evaluated: float = 0.0
    """The share of what follows sampling (an experiment's comparisons, predictions) that is done."""


ShowProgress = Callable[[Progress], None]


def restore(run: RunDirectory, engine: Engine) -> tuple[Any, int]:
    """The state to go on from, with draws and metrics cut back to it."""
    state, step, draws, times = engine.initial_state(), 0, 0, 0
    if (run.path / "checkpoints").is_dir():
        checkpoints = Checkpoints(run.path / "checkpoints")
        found = checkpoints.latest(state)
        checkpoints.close()
        if found is not None:
            state, step = found.state, found.step
            draws, times = found.extra["draws"], found.extra["times"]
    if draws > run.plan.draws_after(step) or run.draw_group().length < draws or run.metric_group().length < times:
        raise RunError(f"draws are missing from {run.path}/draws.zarr: the run cannot be resumed, start a new one")
    run.draw_group().commit(draws)
    run.metric_group().commit(times)
    return state, step


class Sampling:
    """One stretch of sampling of a run, until its end, an error or an interruption."""

    segment_seconds = 0.4
    """How long a segment takes, about; each ends with writing its draws, and with showing progress."""

    def __init__(
        self, run: RunDirectory, engine: Engine, progress: ShowProgress | None, checkpoint_seconds: float
    ) -> None:
        self.run, self.engine, self.plan = run, engine, run.plan
        self.show, self.checkpoint_seconds = progress, checkpoint_seconds
        self.draws, self.metrics = run.draw_group(), run.metric_group()
        self.checkpoints: Checkpoints | None = None
        self.timing = {"compile_seconds": 0.0, "sampling_seconds": 0.0, **run.status.get("timing", {})}
        self.last_checkpoint = time.perf_counter()
        self.pending: list[Future[None]] = []
        self.write_failed = False
        self.stop = threading.Event()

    @property
    def again(self) -> str:
        """The command that goes on with the run."""
        return f"consilience resume {self.run.path}"

    @property
    def kept(self) -> str:
        """What a disk that refuses to write does not take away."""
        return f" What was stored before is safe; `{self.again}` goes on from there."

    def go(self, state: Any, step: int) -> None:
        """Sample from `step` to the end of the plan."""
        began = time.perf_counter()
        self.engine.compile()
        self.timing["compile_seconds"] += time.perf_counter() - began
        self._note(status="running")
        try:
            with stopped_by_signals(self.stop), ThreadPoolExecutor(1, "consilience-writer") as writer:
                step, state = self._loop(state, step, writer)
                if step < self.plan.num_steps:
                    self._interrupted(state, step)
        finally:
            if self.checkpoints is not None:
                self.checkpoints.close()
        self._note(status="complete", step=step, timing=self._timing(step))
        if self.stop.is_set():
            raise Interrupted(f"all steps are stored; finish with: {self.again}")

    def _loop(self, state: Any, step: int, writer: ThreadPoolExecutor) -> tuple[int, Any]:
        block, steps = self.engine.block_steps, self.engine.block_steps
        first_seconds, shown_rate = self.timing["sampling_seconds"], 0.0
        began = time.perf_counter()
        while step < self.plan.num_steps:
            wanted = min(steps, self.engine.max_steps, self.plan.num_steps - step)
            steps = self._before_segment(state, step, wanted)
            if not steps:
                break
            segment_began = time.perf_counter()
            new_state, segment = self.engine.advance(state, step, steps)
            jax.block_until_ready(new_state)
            if not self._is_finite(new_state):
                self._non_finite(state, step, steps, segment)
            state, step = new_state, segment.last_step
            self._wait(1)  # at most one segment waits while another is written
            self.pending.append(writer.submit(self._store, segment, state))
            now = time.perf_counter()
            self.timing["sampling_seconds"] = first_seconds + now - began
            rate = steps / (now - segment_began)
            shown_rate = rate if rate > 1.5 * shown_rate else 0.7 * shown_rate + 0.3 * rate
            steps = max(1, min(8 * steps, int(rate * self.segment_seconds)) // block) * block
            if self.show is not None and len(segment.consensus_error):
                error = float(segment.consensus_error[-1].mean())
                self.show(Progress(step, self.plan.num_steps, shown_rate, error))
        self._wait(0)
        self.timing["sampling_seconds"] = first_seconds + time.perf_counter() - began
        return step, state

    def _before_segment(self, state: Any, step: int, steps: int) -> int:
        """How many steps the next segment shall have; 0 to stop."""
        return 0 if self.stop.is_set() else steps

    def _is_finite(self, state: Any) -> bool:
        return all(np.isfinite(np.asarray(leaf)).all() for leaf in jax.tree.leaves(state))

    def _note(self, **changes: Any) -> None:
        """Change entries of the run's status."""
        with disk_errors(self.run.path, self.kept):
            self.run.update_status(**changes)

    def _wait(self, allowed: int) -> None:
        while len(self.pending) > allowed:
            self.pending.pop(0).result()

    def _store(self, segment: Segment, state: Any) -> None:
        """Append a segment and checkpoint if it is time; runs in the writer thread.

        After a failure nothing more is written: what comes later must not take the place of what is missing.
        """
        if self.write_failed:
            return
        self.write_failed = True
        with disk_errors(self.run.path, self.kept):
            self._append(segment)
            if self._checkpoint_is_due(segment.last_step):
                self._checkpoint(state, segment.last_step)
        self.write_failed = False

    def _checkpoint_is_due(self, step: int) -> bool:
        """Whether the writer thread shall checkpoint after a segment that ended there."""
        late = time.perf_counter() - self.last_checkpoint >= self.checkpoint_seconds
        return late and step < self.plan.num_steps

    def _append(self, segment: Segment) -> None:
        if len(segment.draws):
            own = by_variable(segment.draws, self.engine.parameters)
            presence = {} if segment.present is None else {"participation": segment.present}
            self.draws.append({**own, **self._numbers(segment), **presence})
        error = segment.consensus_error.T
        self.metrics.append({"consensus_error": error, "step": segment.metric_steps})

    def _numbers(self, segment: Segment) -> dict[str, np.ndarray]:
        """What stands beside a segment's draws: their numbers, steps and step sizes."""
        plan = self.plan
        numbers = segment.first_draw + np.arange(len(segment.draws))
        steps = plan.burn_in + (numbers + 1) * plan.store_every
        sizes = np.broadcast_to(np.asarray(plan.sampler.step_size(steps - 1), float), steps.shape)
        return {"draw": numbers, "step": steps, "step_size": sizes}

    def _checkpoint(self, state: Any, step: int) -> None:
        if self.checkpoints is None:
            self.checkpoints = Checkpoints(self.run.path / "checkpoints")
        extra = {"draws": self.draws.length, "times": self.metrics.length}
        self.checkpoints.save(step, state, extra)
        self._note(step=step, timing=self._timing(step))
        self.last_checkpoint = time.perf_counter()

    def _interrupted(self, state: Any, step: int) -> None:
        with disk_errors(self.run.path):
            if step:
                self._checkpoint(state, step)
            self._note(status="interrupted", step=step)
        raise Interrupted(
            f"interrupted after {step:,} of {self.plan.num_steps:,} steps; everything up to there is stored, "
            f"continue with: {self.again}"
        )

    def _non_finite(self, state: Any, first_step: int, steps: int, segment: Segment) -> None:
        """Keep what was sampled before the first non-finite position, and say where it was."""
        found = self.engine.find_non_finite(state, first_step, steps)
        if found is None:
            raise RunError("a state became non-finite once and not again: is the memory of this machine sound?")
        step, chain, agent = found
        self._wait(0)
        good = self.plan.draws_after(step - 1) - segment.first_draw
        measured = int(np.searchsorted(segment.metric_steps, step))
        whole = segment._replace(
            draws=segment.draws[:good],
            metric_steps=segment.metric_steps[:measured],
            consensus_error=segment.consensus_error[:measured],
        )
        with disk_errors(self.run.path):
            self._append(whole)
            self._wait(0)
            message = (
                f"agent {agent} of chain {chain} left the finite numbers at step {step:,}; the "
                f"{self.draws.written:,} draws before that are stored in {self.run.path}. The step size there was "
                f"{float(self.plan.sampler.step_size(step - 1)):.3g}: try half of it, or check the model for "
                "overflow far from the data"
            )
            self._note(status="failed", step=step, message=message, timing=self._timing(step))
        raise NonFiniteError(message)

    def _timing(self, step: int) -> dict[str, float]:
        seconds = self.timing["sampling_seconds"]
        return {**self.timing, "steps_per_second": step / seconds if seconds else 0.0}


@contextlib.contextmanager
def stopped_by_signals(stop: threading.Event) -> Iterator[None]:
    """Let Ctrl-C and a polite kill set an event, so that what is under way ends well; a second one ends at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    previous = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def by_variable(draws: np.ndarray, parameters: Parameters) -> dict[str, np.ndarray]:
    """Split `(draws, chains, agents, size)` into variables `(chains, agents, draws, …)`."""
    ordered = np.moveaxis(draws, 0, 2)
    offsets = parameters.offsets
    return {
        name: ordered[..., start:stop].reshape(*ordered.shape[:3], *shape)
        for name, shape, start, stop in zip(
            parameters.names, parameters.shapes, offsets[:-1], offsets[1:], strict=True
        )
    }
