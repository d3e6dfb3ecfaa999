"""The loop of a run: advance segment by segment, store while the next one computes.

One loop serves every engine. A worker thread writes draws and metrics; the main thread waits for the compiled
program, which runs meanwhile. Before each segment the processes of a team agree: how many steps, whether to
checkpoint, whether somebody was asked to stop or could not write. A process that is alone agrees with itself. Every
process writes the draws of its own agents, into files of its own; what all have written, the first one shows to
readers. A checkpoint is written only after everything before it.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np

from consilience.engines.base import Segment, Stepper
from consilience.errors import ConsilienceError, DivergedError, Interrupted, RunError, StorageError
from consilience.runs.checkpoints import Checkpoints
from consilience.runs.companion import Companion
from consilience.runs.convergence import Standing, looks, standing
from consilience.runs.directory import RunDirectory
from consilience.runs.files import disk_errors, sync_since
from consilience.runs.signals import stopped_by_signals

_CLOCK_SECONDS = 2.0  # by which file systems' clocks may be behind


class Progress(NamedTuple):
    """How far a run is, for whoever shows it."""

    step: int
    num_steps: int
    steps_per_second: float
    metrics: dict[str, float]
    """What was measured last, mean over chains."""
    evaluated: float = 0.0
    """The share of what follows sampling (an experiment's comparisons, predictions) that is done."""


ShowProgress = Callable[[Progress], None]


class Loop:
    """One stretch of sampling of a run, until its end, an error or an interruption.

    Args:
        run: where it is stored.
        stepper: makes the steps.
        companion: what goes along with the run.
        progress: called now and then with how far the run is.
        checkpoint_seconds: how often to write a checkpoint.
        stop: set by whoever wants the loop to end early.
    """

    def __init__(
        self,
        run: RunDirectory,
        stepper: Stepper,
        companion: Companion,
        progress: ShowProgress | None,
        checkpoint_seconds: float,
        stop: threading.Event,
    ) -> None:
        self.run, self.stepper, self.companion, self.plan = run, stepper, companion, run.plan
        self.team, self.stop = stepper.team, stop
        self.show = progress if self.team.is_first else None
        self.checkpoint_seconds = checkpoint_seconds
        self.draws, self.metrics = run.draw_group(), run.metric_group()
        self.checkpoints: Checkpoints | None = None
        self.timing = {"compile_seconds": 0.0, "sampling_seconds": 0.0, **run.status.get("timing", {})}
        self.last_checkpoint, self.synced = 0.0, 0.0
        self.pending: list[Future[None]] = []
        self.write_failed = False
        self.failure: ConsilienceError | None = None
        self.looked: dict[str, float] = {}
        """What was found when it was last looked whether the draws suffice."""
        self.satisfied = False
        """Whether sampling ended because the draws suffice."""
        self.kept = f" What was stored before is safe; `{companion.resume_command}` resumes from there."

    def compile(self) -> None:
        """Compile the program, and count how long it takes."""
        began = time.perf_counter()
        self.stepper.compile()
        self.timing["compile_seconds"] += time.perf_counter() - began

    def sample(self, state: Any, step: int) -> None:
        """Sample from `step` to the end of the plan."""
        self._note(status="running")
        try:
            with stopped_by_signals(self.stop), ThreadPoolExecutor(1, "consilience-writer") as writer:
                step, state = self._segments(state, step, writer)
                if step < self.plan.num_steps and not self.satisfied:
                    self._interrupted(state, step)
                with disk_errors(self.run.path, self.kept):
                    self.companion.before_checkpoint(step)
                    self._sync()
        finally:
            if self.checkpoints is not None:
                self.checkpoints.close()
        found = self.stepper.found(state)
        self._note(
            status="complete", step=step, timing=self._timing(step), **({"adaptation": found} if found else {})
        )
        if self.stop.is_set():
            raise Interrupted(f"all steps are stored; finish with: {self.companion.resume_command}")

    def _segments(self, state: Any, step: int, writer: ThreadPoolExecutor) -> tuple[int, Any]:
        block, steps = self.stepper.block_steps, self.stepper.block_steps
        first_seconds, shown_rate = self.timing["sampling_seconds"], 0.0
        began = self.last_checkpoint = time.perf_counter()
        while step < self.plan.num_steps:
            wanted = min(steps, self.stepper.max_steps, self._next_look(step) - step)
            due = step > 0 and time.perf_counter() - self.last_checkpoint >= self.checkpoint_seconds
            stop, due, steps = self._agree(self.stop.is_set(), due, wanted)
            if stop:
                self.stop.set()
                break
            if due:
                self._checkpoint_soon(state, step, writer)
            if self._may_stop(step):
                if self.show is not None:
                    self.show(Progress(step, step, shown_rate, self.looked))
                break
            segment_began = time.perf_counter()
            new_state, segment = self.stepper.advance(state, step, steps)
            jax.block_until_ready(new_state)
            if not self.stepper.is_finite(new_state):
                self._diverged(state, step, steps, segment)
            state, step = new_state, segment.last_step
            self._wait(1)  # at most one segment waits while another is written
            self._submit(writer, self._append, segment)
            now = time.perf_counter()
            self.timing["sampling_seconds"] = first_seconds + now - began
            rate = steps / (now - segment_began)
            shown_rate = rate if rate > 1.5 * shown_rate else 0.7 * shown_rate + 0.3 * rate
            steps = max(1, min(8 * steps, int(rate * self.stepper.segment_seconds)) // block) * block
            if self.show is not None and len(segment.metric_steps):
                measured = {name: float(values[-1].mean()) for name, values in segment.metrics.items()}
                self.show(Progress(step, self.plan.num_steps, shown_rate, {**measured, **self.looked}))
        self._wait(0)
        self.timing["sampling_seconds"] = first_seconds + time.perf_counter() - began
        self._agree()
        if self.team.size > 1:
            self._agree()  # that all is shown
        return step, state

    def _next_look(self, step: int) -> int:
        """The step at which to look next whether the draws suffice; the last one if nobody looks."""
        if not self.plan.stops_itself:
            return self.plan.num_steps
        return min(self.plan.num_steps, next(look for look in self._looks() if look > step))

    def _looks(self) -> Iterator[int]:
        return looks(self.plan.burn_in, self.plan.store_every)

    def _may_stop(self, step: int) -> bool:
        """Whether the draws of all agents suffice, if it is time to look."""
        due = itertools.takewhile(lambda at: at <= step, self._looks())
        if not self.plan.stops_itself or step not in due:
            return False
        self._wait(0)
        self._agree()
        own = self.team.is_first and self.failure is None and self._stands().is_enough
        satisfied = bool(self.team.gather(np.array([own], np.int64))[0].all())
        self.satisfied = self.stepper.agree_to_stop(satisfied)
        return self.satisfied

    def _stands(self) -> Standing:
        """Where the draws stand; remembered for whoever shows it."""
        found = standing(self.run)
        self.looked = {name: value for name, value in found._asdict().items() if np.isfinite(value)}
        return found

    def _agree(self, stop: bool = False, due: bool = False, steps: int = 0) -> tuple[bool, bool, int]:
        """Anybody's wish to stop, the first's other wishes; shows what all have written, stops if one could not."""
        own = np.array([stop, due, steps, self.draws.written, self.failure is not None], np.int64)
        everybody = self.team.gather(own)
        if everybody[:, 4].any():
            self.team.stop_together(self.failure)
        written = int(everybody[:, 3].min())
        if self.team.size > 1 and self.team.is_first and written > self.draws.length:
            try:
                with disk_errors(self.run.path, self.kept):
                    self.draws.commit(written)
            except StorageError as error:
                self.failure = error  # the others hear of it next time
        return bool(everybody[:, 0].any()), bool(everybody[0, 1]), int(everybody[0, 2])

    def _note(self, **changes: Any) -> None:
        """Change entries of the run's status."""
        if self.team.is_first:
            with disk_errors(self.run.path, self.kept):
                self.run.update_status(**changes)

    def _submit(self, writer: ThreadPoolExecutor, job: Callable[..., None], *arguments: Any) -> None:
        """Let the writer thread do something; after a failure it does nothing more.

        What comes later must not take the place of what is missing.
        """

        def run() -> None:
            if self.write_failed or self.failure is not None:
                return
            self.write_failed = True  # until it is done: the next job may begin before anybody hears of a failure
            with disk_errors(self.run.path, self.kept):
                job(*arguments)
            self.write_failed = False

        self.pending.append(writer.submit(run))

    def _wait(self, allowed: int) -> None:
        """Wait for the writer thread; what went wrong there is kept until all processes can be told."""
        while len(self.pending) > allowed:
            try:
                self.pending.pop(0).result()
            except ConsilienceError as error:
                self.failure = self.failure or error

    def _append(self, segment: Segment) -> None:
        if len(segment.draws):
            values, storage = self.stepper.by_variable(segment.draws), self.stepper.storage
            if self.team.is_first:
                values |= self._about_draws(segment)
            else:  # what is the same at all agents is stored once
                values = {name: own for name, own in values.items() if name not in storage.without_agents}
            self.draws.write(values, {"agent": storage.own}, len(segment.draws))
            if self.team.size == 1:
                self.draws.commit(self.draws.written)
        if self.team.is_first:
            self.metrics.append(
                {"step": segment.metric_steps, **{name: values.T for name, values in segment.metrics.items()}}
            )

    def _about_draws(self, segment: Segment) -> dict[str, np.ndarray]:
        """What stands beside a segment's draws: their numbers, steps and weights, and whose data counted."""
        numbers = segment.first_draw + np.arange(len(segment.draws))
        steps = self.plan.step_of_draw(numbers)
        presence = {} if segment.present is None else {"participation": segment.present}
        return {"draw": numbers, "step": steps, "weight": self.plan.sampler.weights(steps), **presence}

    def _checkpoint_soon(self, state: Any, step: int, writer: ThreadPoolExecutor) -> None:
        """Checkpoint beside the next segment, or before it where that uses up the state."""
        self.last_checkpoint = time.perf_counter()
        if not self.stepper.uses_up_state:
            self._submit(writer, self._checkpoint, state, step)
            return
        self._wait(0)
        self._agree()
        with disk_errors(self.run.path, self.kept):  # others may wait inside: the runtime tells them that it left
            self._checkpoint(state, step)

    def _checkpoint(self, state: Any, step: int) -> None:
        if self.checkpoints is None:
            self.checkpoints = Checkpoints(self.run.path / "checkpoints", self.stepper.form, self.team)
        self.companion.before_checkpoint(step)
        self._sync()
        self.checkpoints.save(step, state, {"draws": self.draws.written, "times": self.metrics.length})
        found = self.stepper.found_so_far(state)
        self._note(step=step, timing=self._timing(step), **({"adaptation": found} if found else {}))
        self.companion.after_checkpoint(step)
        self.last_checkpoint = time.perf_counter()

    def _sync(self) -> None:
        """Have all draws on the disk, not only in memory: a checkpoint says that they are there."""
        now = time.time()
        for path in (self.draws.path, self.metrics.path):
            sync_since(path, self.synced - _CLOCK_SECONDS)
        self.synced = now

    def _interrupted(self, state: Any, step: int) -> None:
        with disk_errors(self.run.path):
            if step:
                self._checkpoint(state, step)
            self._note(status="interrupted", step=step)
        raise Interrupted(
            f"interrupted after {step:,} of {self.plan.num_steps:,} steps; everything up to there is stored, "
            f"continue with: {self.companion.resume_command}"
        )

    def _diverged(self, state: Any, first_step: int, steps: int, segment: Segment) -> None:
        """Keep what was sampled before the first position that is not finite, and say where that was."""
        self._wait(0)
        self._agree()  # nothing may be added after draws that could not be written
        if self.stepper.uses_up_state:
            state = self._sampled_again(first_step)
        found = self.stepper.find_diverged(state, first_step, steps)
        if found is None:
            raise RunError("a state became non-finite once and not again: is the memory of this machine sound?")
        step, chain, agent = found
        measured = int(np.searchsorted(segment.metric_steps, step))
        whole = segment._replace(
            draws=segment.draws[: self.plan.draws_after(step - 1) - segment.first_draw],
            metric_steps=segment.metric_steps[:measured],
            metrics={name: values[:measured] for name, values in segment.metrics.items()},
        )
        try:
            with disk_errors(self.run.path):
                self._append(whole)
            message = (
                f"agent {agent} of chain {chain} diverged at step {step:,}; the {self.draws.written:,} draws before "
                f"that are stored in {self.run.path}. There, {self.plan.sampler.describe(self.plan.num_steps)}: try "
                "half the step size, or check the model for overflow far from the data"
            )
            self._note(status="failed", step=step, message=message, timing=self._timing(step))
            raise DivergedError(message)
        finally:
            self._agree()

    def _sampled_again(self, wanted: int) -> Any:
        """The state at a step whose buffers are gone: from the last checkpoint, or from the start."""
        state, step, _ = last_state(self.run, self.stepper)
        while step < wanted:
            state, passed = self.stepper.advance(state, step, min(self.stepper.max_steps, wanted - step))
            step = passed.last_step
        return state

    def _timing(self, step: int) -> dict[str, float]:
        seconds = self.timing["sampling_seconds"]
        return {**self.timing, "steps_per_second": step / seconds if seconds else 0.0}


def restore(run: RunDirectory, stepper: Stepper) -> tuple[Any, int]:
    """The state to resume from, with draws and metrics cut back to it."""
    state, step, note = last_state(run, stepper)
    draws, times = note["draws"], note["times"]

    def cut() -> None:
        expected = run.plan.draws_after(step)
        complete = draws <= expected if stepper.storage.presence else draws == expected  # absent agents skip draws
        if not complete or run.draw_group().length < draws or run.metric_group().length < times:
            raise RunError(
                f"draws are missing from {run.path}/draws.zarr: the run cannot be resumed, start a new one"
            )
        if stepper.team.is_first:
            with disk_errors(run.path):
                run.draw_group().commit(draws)
                run.metric_group().commit(times)

    stepper.team.attempt(cut)
    return state, step


def last_state(run: RunDirectory, stepper: Stepper) -> tuple[Any, int, dict[str, Any]]:
    """State, step and note of the last checkpoint, or of the beginning."""
    if (run.path / "checkpoints").is_dir():
        checkpoints = Checkpoints(run.path / "checkpoints", stepper.form, stepper.team)
        found = checkpoints.latest()
        checkpoints.close()
        if found is not None:
            return found.state, found.step, found.note
    return stepper.initial_state(), 0, {"draws": 0, "times": 0}
