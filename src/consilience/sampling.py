"""Sampling from start to end: check, advance segment by segment, store while the next one computes, finish.

One loop serves every engine. A worker thread writes draws, metrics and checkpoints; the main thread waits for
the compiled program, which runs meanwhile. A checkpoint is written only after everything before it.
"""

from __future__ import annotations

import signal
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import jax
import numpy as np

from consilience import experiments, reports
from consilience.checks import check, require_stable
from consilience.engines import ENGINES, Engine, Segment
from consilience.errors import InputError, Interrupted, NonFiniteError, PlanWarning, RunError
from consilience.plans import Plan
from consilience.problems import Parameters, Problem
from consilience.reports.theory_page import write_run_theory
from consilience.runs import Checkpoints, RunDirectory
from consilience.runs.directory import require_free
from consilience.runs.files import disk_errors, write_json
from consilience.runs.summary import summarise

_SEGMENT_SECONDS = 0.4
CHECKPOINT_SECONDS = 10.0


class Progress(NamedTuple):
    """How far a run is, for whoever shows it."""

    step: int
    num_steps: int
    steps_per_second: float
    consensus_error: float
    evaluated: float = 0.0
    """The share of what follows sampling (an experiment's comparisons, predictions) that is done."""


ShowProgress = Callable[[Progress], None]


class Run(RunDirectory):
    """A run: its draws, its summary, and a report.

    Attributes:
        path: the directory.
        plan: the plan the run follows.
    """

    def report(self) -> Path:
        """Draw the figures and write `report.html`, from this directory alone."""
        if not self.complete:
            raise RunError(
                f"{self.path} is not complete ({self.status['status']}): finish it with "
                f"`consilience resume {self.path}`"
            )
        experiment = experiments.find(self.plan.problem)
        status = self.status
        analysed = status.get("analysed", status["engine"] != "peers")  # a node has not all the data to compare with
        sections = experiment.sections(self) if experiment and analysed else []
        return reports.write_report(self, sections)


def sample(
    problem: Problem,
    plan: Plan,
    out: str | Path | None = None,
    *,
    engine: str = "simulate",
    progress: ShowProgress | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    theory: bool = False,
) -> Run:
    """Sample the posterior of a problem over a network of agents.

    Args:
        problem: what to infer.
        plan: how.
        out: the directory for the run, which must not hold one yet; by default a temporary one.
        engine: where to sample; `simulate` keeps all agents in this process.
        progress: called now and then with how far the run is.
        checkpoint_seconds: how often to write a checkpoint.
        theory: hold the finished run against the theorems too, for its report; takes some seconds.
    """
    if engine not in ENGINES:
        raise InputError(f"unknown engine {engine!r}: choose one of {', '.join(ENGINES)}")
    path = Path(out) if out is not None else Path(tempfile.mkdtemp(prefix="consilience-"))
    require_free(path)
    with jax.enable_x64(plan.dtype == "float64"):
        prepared = ENGINES[engine](problem, plan)
        findings = check(plan, problem)
        require_stable(findings)
        for finding in findings:
            if finding.level == "warning":
                warnings.warn(PlanWarning(str(finding), finding.topic), stacklevel=2)
        metric_times = -(-plan.num_steps // prepared.block_steps)
        Run.create(path, problem, plan, prepared.parameters, metric_times, engine)
        run = Run(path)
        with run.locked():
            Sampling(run, prepared, progress, checkpoint_seconds).go(prepared.initial_state(), 0)
            _finish(run, problem, theory, progress)
    return run


def resume(
    path: str | Path,
    problem: Problem | None = None,
    *,
    progress: ShowProgress | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    theory: bool = False,
) -> Run:
    """Continue a run that was interrupted; its draws will be the same as without the interruption.

    Args:
        path: the run's directory.
        problem: the problem of the run; not needed if its plan names an experiment or `module:attribute`.
        progress: called now and then with how far the run is.
        checkpoint_seconds: how often to write a checkpoint.
        theory: hold the finished run against the theorems too, for its report; takes some seconds.
    """
    run = Run(path)
    if run.complete and (run.path / "summary.json").exists():
        return run
    status = run.status
    if status["engine"] not in ENGINES:
        raise RunError(f"{run.path} is a node's run: start the node again, with `consilience node FILE`")
    problem = problem or experiments.load_problem(run.plan)
    if problem.fingerprint() != status["data_digest"]:
        raise RunError(f"the data of {run.path} is not that of the given problem: resume it with the same data")
    if run.plan.digest() != status["plan_digest"]:
        raise RunError(f"{run.path}/plan.toml was changed after the run began: restore it, or start a new run")
    with jax.enable_x64(run.plan.dtype == "float64"), run.locked():
        if not run.complete:
            engine = ENGINES[status["engine"]](problem, run.plan)
            state, step = restore(run, engine)
            Sampling(run, engine, progress, checkpoint_seconds).go(state, step)
        _finish(run, problem, theory, progress)
    return run


def restore(run: Run, engine: Engine) -> tuple[Any, int]:
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


def _finish(run: Run, problem: Problem, theory: bool, progress: ShowProgress | None) -> None:
    """Write the summary of a complete run, with what its experiment adds, and what the theory says about it."""
    steps = run.plan.num_steps

    def show(share: float) -> None:
        if progress is not None:
            progress(Progress(steps, steps, 0.0, 0.0, share))

    with disk_errors(run.path, f" All draws are safe; `consilience resume {run.path}` goes on."):
        summary = summarise(run)
        experiment = experiments.find(run.plan.problem)
        if experiment is not None:
            experiment.analyse(run, problem, summary, show)
        write_json(run.path / "summary.json", summary)
    if theory:
        write_run_theory(run, problem)


class Sampling:
    """One stretch of sampling of a run, until its end, an error or an interruption."""

    def __init__(self, run: Run, engine: Engine, progress: ShowProgress | None, checkpoint_seconds: float) -> None:
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

    def go(self, state: Any, step: int) -> None:
        """Sample from `step` to the end of the plan."""
        began = time.perf_counter()
        self.engine.compile()
        self.timing["compile_seconds"] += time.perf_counter() - began
        self.run.update_status(status="running")
        previous = self._catch_signals()
        try:
            with ThreadPoolExecutor(1, "consilience-writer") as writer:
                step, state = self._loop(state, step, writer)
                if step < self.plan.num_steps:
                    self._interrupted(state, step)
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
            if self.checkpoints is not None:
                self.checkpoints.close()
        self.run.update_status(status="complete", step=step, timing=self._timing(step))
        if self.stop.is_set():
            raise Interrupted(f"all steps are stored; finish with: {self.again}")

    def _loop(self, state: Any, step: int, writer: ThreadPoolExecutor) -> tuple[int, Any]:
        block, steps = self.engine.block_steps, self.engine.block_steps
        first_seconds, shown_rate = self.timing["sampling_seconds"], 0.0
        began = time.perf_counter()
        while step < self.plan.num_steps and not self.stop.is_set():
            segment_began = time.perf_counter()
            steps = min(steps, self.engine.max_steps, self.plan.num_steps - step)
            new_state, segment = self.engine.advance(state, step, steps)
            jax.block_until_ready(new_state)
            if not _is_finite(new_state):
                self._non_finite(state, step, steps, segment)
            state, step = new_state, segment.last_step
            self._wait(1)  # at most one segment waits while another is written
            self.pending.append(writer.submit(self._store, segment, state))
            now = time.perf_counter()
            self.timing["sampling_seconds"] = first_seconds + now - began
            rate = steps / (now - segment_began)
            shown_rate = rate if rate > 1.5 * shown_rate else 0.7 * shown_rate + 0.3 * rate
            steps = max(1, min(8 * steps, int(rate * _SEGMENT_SECONDS)) // block) * block
            if self.show is not None:
                error = float(segment.consensus_error[-1].mean())
                self.show(Progress(step, self.plan.num_steps, shown_rate, error))
        self._wait(0)
        self.timing["sampling_seconds"] = first_seconds + time.perf_counter() - began
        return step, state

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
        kept = f" What was stored before is safe; `{self.again}` goes on from there."
        with disk_errors(self.run.path, kept):
            self._append(segment)
            due = time.perf_counter() - self.last_checkpoint >= self.checkpoint_seconds
            if due and segment.last_step < self.plan.num_steps:
                self._checkpoint(state, segment.last_step)
        self.write_failed = False

    def _append(self, segment: Segment) -> None:
        plan = self.plan
        numbers = segment.first_draw + np.arange(len(segment.draws))
        if len(numbers):
            steps = plan.burn_in + (numbers + 1) * plan.store_every
            sizes = np.broadcast_to(np.asarray(plan.sampler.step_size(steps - 1), float), steps.shape)
            self.draws.append(
                {
                    **_by_variable(segment.draws, self.engine.parameters),
                    "draw": numbers,
                    "step": steps,
                    "step_size": sizes,
                    **({} if segment.present is None else {"participation": segment.present}),
                }
            )
        error = segment.consensus_error.T
        self.metrics.append({"consensus_error": error, "step": segment.metric_steps})

    def _checkpoint(self, state: Any, step: int) -> None:
        if self.checkpoints is None:
            self.checkpoints = Checkpoints(self.run.path / "checkpoints")
        extra = {"draws": self.draws.length, "times": self.metrics.length}
        self.checkpoints.save(step, state, extra)
        self.run.update_status(step=step, timing=self._timing(step))
        self.last_checkpoint = time.perf_counter()

    def _interrupted(self, state: Any, step: int) -> None:
        with disk_errors(self.run.path):
            if step:
                self._checkpoint(state, step)
            self.run.update_status(status="interrupted", step=step)
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
            message = (
                f"agent {agent} of chain {chain} left the finite numbers at step {step:,}; the "
                f"{self.draws.length:,} draws before that are stored in {self.run.path}. The step size there was "
                f"{float(self.plan.sampler.step_size(step - 1)):.3g}: try half of it, or check the model for "
                "overflow far from the data"
            )
            self.run.update_status(status="failed", step=step, message=message, timing=self._timing(step))
        raise NonFiniteError(message)

    def _timing(self, step: int) -> dict[str, float]:
        seconds = self.timing["sampling_seconds"]
        return {**self.timing, "steps_per_second": step / seconds if seconds else 0.0}

    def _catch_signals(self) -> dict[int, Any]:
        """Let Ctrl-C and a polite kill end the segment under way; a second one ends at once."""
        if threading.current_thread() is not threading.main_thread():
            return {}

        def ask(number: int, frame: FrameType | None) -> None:
            if self.stop.is_set():
                raise KeyboardInterrupt
            self.stop.set()

        return {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}


def _is_finite(state: Any) -> bool:
    return all(np.isfinite(np.asarray(leaf)).all() for leaf in jax.tree.leaves(state))


def _by_variable(draws: np.ndarray, parameters: Parameters) -> dict[str, np.ndarray]:
    """Split `(draws, chains, agents, size)` into variables `(chains, agents, draws, …)`."""
    ordered = np.moveaxis(draws, 0, 2)
    offsets = parameters.offsets
    return {
        name: ordered[..., start:stop].reshape(*ordered.shape[:3], *shape)
        for name, shape, start, stop in zip(
            parameters.names, parameters.shapes, offsets[:-1], offsets[1:], strict=True
        )
    }
