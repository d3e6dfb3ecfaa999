"""Sampling from start to end: check, sample (`loop.py`), finish."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path

import jax

from consilience import experiments, reports, teamwork
from consilience.checks import check, require_stable
from consilience.engines import ENGINES, Mesh, MeshSettings
from consilience.engines.mesh.devices import prepare_devices
from consilience.errors import InputError, MeshError, PlanWarning, RunError
from consilience.loop import Progress, Sampling, ShowProgress, restore
from consilience.plans import Plan
from consilience.problems import Problem
from consilience.reports.theory_page import write_run_theory
from consilience.runs import RunDirectory
from consilience.runs.directory import require_free
from consilience.runs.files import disk_errors, write_json
from consilience.runs.summary import summarise

CHECKPOINT_SECONDS = 10.0


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
    engine: str | MeshSettings = "simulate",
    progress: ShowProgress | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    theory: bool = False,
) -> Run:
    """Sample the posterior of a problem over a network of agents.

    Args:
        problem: what to infer.
        plan: how.
        out: the directory for the run, which must not hold one yet; by default a temporary one.
        engine: where to sample; `simulate` keeps all agents in one program, `mesh` spreads them over all devices, and
            `MeshSettings` over those that it names.
        progress: called now and then with how far the run is.
        checkpoint_seconds: how often to write a checkpoint.
        theory: hold the finished run against the theorems too, for its report; takes some seconds.
    """
    settings = _mesh_settings(engine)
    path = _path_for(out, settings)
    if settings is None:
        require_free(path)
    else:
        prepare_devices(settings.devices)
        teamwork.together(lambda: require_free(path) if teamwork.is_first() else None)
    with jax.enable_x64(plan.dtype == "float64"):
        if settings is not None:
            mesh = Mesh(problem, plan, settings)
            _require_stable(plan, None, teamwork.largest_curvature(mesh))
            teamwork.create(path, mesh)
            with teamwork.held(Run(path), mesh):
                teamwork.TeamSampling(Run(path), mesh, progress, checkpoint_seconds).go(mesh.initial_state(), 0)
                _finish_first(Run(path), problem, theory, progress)
            return Run(path)
        prepared = ENGINES[str(engine)](problem, plan)
        _require_stable(plan, problem)
        metric_times = -(-plan.num_steps // prepared.block_steps)
        Run.create(path, problem, plan, prepared.parameters, metric_times, str(engine))
        run = Run(path)
        with run.locked():
            Sampling(run, prepared, progress, checkpoint_seconds).go(prepared.initial_state(), 0)
            _finish(run, problem, theory, progress)
    return run


def resume(
    path: str | Path,
    problem: Problem | None = None,
    *,
    engine: MeshSettings | None = None,
    progress: ShowProgress | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    theory: bool = False,
) -> Run:
    """Continue a run that was interrupted; its draws will be the same as without the interruption.

    Args:
        path: the run's directory.
        problem: the problem of the run; not needed if its plan names an experiment or `module:attribute`.
        engine: which devices go on with a run of the engine `mesh`; by default all.
        progress: called now and then with how far the run is.
        checkpoint_seconds: how often to write a checkpoint.
        theory: hold the finished run against the theorems too, for its report; takes some seconds.
    """
    run = teamwork.together(lambda: _to_go_on(path, engine))
    if run.complete and (run.path / "summary.json").exists():
        return run
    on_mesh = run.status["engine"] == "mesh"
    if on_mesh:
        prepare_devices(engine.devices if engine else None)
        given = problem
        problem = teamwork.together(lambda: given or teamwork.own_problem(run.plan, engine))
    else:
        problem = problem or experiments.load_problem(run.plan)
    with jax.enable_x64(run.plan.dtype == "float64"):
        if on_mesh:
            mesh = Mesh(problem, run.plan, engine)
            with teamwork.held(run, mesh):
                teamwork.require_same_data(run, mesh)
                if not run.complete:
                    state, step = teamwork.restore(run, mesh)
                    teamwork.TeamSampling(run, mesh, progress, checkpoint_seconds).go(state, step)
                _finish_first(run, problem, theory, progress)
            return run
        if problem.fingerprint() != run.status["data_digest"]:
            raise RunError(f"the data of {run.path} is not that of the given problem: resume it with the same data")
        with run.locked():
            if not run.complete:
                prepared = ENGINES[run.status["engine"]](problem, run.plan)
                state, step = restore(run, prepared)
                Sampling(run, prepared, progress, checkpoint_seconds).go(state, step)
            _finish(run, problem, theory, progress)
    return run


def _to_go_on(path: str | Path, engine: MeshSettings | None) -> Run:
    """A run that can be resumed, or is complete."""
    run = Run(path)
    if run.complete and (run.path / "summary.json").exists():
        return run
    if run.status["engine"] not in ENGINES:
        raise RunError(f"{run.path} is a node's run: start the node again, with `consilience node FILE`")
    if run.plan.digest() != run.status["plan_digest"]:
        raise RunError(f"{run.path}/plan.toml was changed after the run began: restore it, or start a new run")
    if engine is not None and run.status["engine"] != "mesh":
        raise InputError(f"{run.path} is a run of the engine {run.status['engine']}, which takes no devices")
    return run


def _mesh_settings(engine: str | MeshSettings) -> MeshSettings | None:
    """The settings of a mesh, if it is one."""
    if isinstance(engine, MeshSettings):
        return engine
    if engine not in ENGINES:
        raise InputError(f"unknown engine {engine!r}: choose one of {', '.join(ENGINES)}")
    return MeshSettings() if engine == "mesh" else None


def _path_for(out: str | Path | None, settings: MeshSettings | None) -> Path:
    if out is not None:
        return Path(out)
    if settings is not None and not teamwork.is_alone():
        raise MeshError("several processes need a directory that all of them see: give `out`")
    return Path(tempfile.mkdtemp(prefix="consilience-"))


def _require_stable(plan: Plan, problem: Problem | None, curvature: float | None = None) -> None:
    findings = check(plan, problem, curvature)
    require_stable(findings)
    for finding in findings:
        if finding.level == "warning":
            warnings.warn(PlanWarning(str(finding), finding.topic), stacklevel=3)


def _finish_first(run: Run, problem: Problem, theory: bool, progress: ShowProgress | None) -> None:
    """Let the first of the processes finish a run; what needs all data is left out if it cannot have it."""
    if not teamwork.is_alone():
        teamwork.part()
    if not teamwork.is_first():
        return
    whole, experiment = problem.network_size is None, experiments.find(run.plan.problem)
    if not whole and experiment is not None and (theory or experiment.needs_all_data):
        problem, whole = experiments.load_problem(run.plan), True
    _finish(run, problem, theory and whole, progress)


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
