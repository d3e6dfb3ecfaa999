"""The life of a run, the same for every engine: open, restore or start, loop, finish.

    open      lay out a new directory, or check that the one that is there belongs to this plan and data
    restore   the newest checkpoint, with draws and metrics cut back to it; without one, the initial state
    loop      make steps and store them until the plan is done (`loop.py`)
    finish    whatever the caller wants of a complete run, once

The processes of a team live it together: the first lays out the directory, all of them write to it.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from consilience.engines.base import Stepper, Team
from consilience.errors import ConsilienceError, PlanWarning, RunError
from consilience.planning.checks import check, require_stable
from consilience.runs import data_files
from consilience.runs.companion import Companion
from consilience.runs.directory import RunDirectory
from consilience.runs.files import read_json
from consilience.runs.loop import Loop, ShowProgress, restore
from consilience.runs.names import notes_of

CHECKPOINT_SECONDS = 10.0
_SEEN_SECONDS = 10.0  # how long shared file systems may take to show a new file elsewhere
_POLL_SECONDS = 0.1

Finish = Callable[[RunDirectory], None]


def live(
    path: Path,
    engine: str,
    stepper: Stepper,
    companion: Companion,
    finish: Finish,
    *,
    about: Mapping[str, Any] | None = None,
    progress: ShowProgress | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    stop: threading.Event | None = None,
) -> RunDirectory:
    """Bring a run to its end, from its beginning or from where it was left.

    Args:
        path: the run's directory; a run that is there is continued.
        engine: the engine's name, for the directory.
        stepper: makes the steps.
        companion: what goes along with the run.
        finish: called when all steps are stored and there is no `summary.json` yet.
        about: further entries of the run's status, fixed when it begins.
        progress: called now and then with how far the run is.
        checkpoint_seconds: how often to write a checkpoint.
        stop: set by whoever wants it to end early.
    """
    entries = {"engine": engine, "problem_name": stepper.problem.name, **(about or {})}
    stop = stop or threading.Event()
    with contextlib.ExitStack() as held:
        run = _opened(path, stepper, entries, held)
        held.enter_context(stepper.team.watched(companion.resume_command))
        state, step, loop = None, run.plan.num_steps, None
        if not run.complete:
            state, step = restore(run, stepper)
            loop = Loop(run, stepper, companion, progress, checkpoint_seconds, stop)
            loop.compile()
        with companion.taking_part(run, state, step):
            if loop is not None:
                loop.sample(state, step)
            if not (run.path / "summary.json").exists():
                finish(run)
    return run


def _opened(path: Path, stepper: Stepper, about: Mapping[str, Any], held: contextlib.ExitStack) -> RunDirectory:
    """The run's directory, as it was left or a new one that all processes see; it is held for this team alone."""
    team, digest = stepper.team, stepper.data_digest()
    is_new, notes = not team.attempt(lambda: (path / "plan.toml").is_file()), {}
    if is_new:
        notes = notes_of(stepper.problem, stepper.parameters)
        _warn_or_refuse(stepper)

    def hold() -> None:
        if team.is_first:
            entries = {**about, "data_digest": digest}
            held.enter_context(
                RunDirectory.created(path, stepper.plan, stepper.parameters, stepper.storage, entries, notes)
                if is_new
                else RunDirectory(path).locked()
            )

    team.attempt(hold)
    if not is_new:
        run = team.attempt(lambda: require_continuable(path))
        _require_same(run, stepper, {**about, "data_digest": digest})
        if team.is_first and data_files.ENTRY in about:
            run.update_status(**{data_files.ENTRY: about[data_files.ENTRY]})
    _require_shared(path, team)
    return RunDirectory(path)


def require_continuable(path: Path) -> RunDirectory:
    """A run that this version can continue, with the plan it began with."""
    run = RunDirectory(path)
    run.require_current_format()
    if run.plan.digest() != run.status["plan_digest"]:
        raise RunError(f"{run.path}/plan.toml was changed after the run began: restore it, or start a new run")
    return run


def _require_same(run: RunDirectory, stepper: Stepper, about: Mapping[str, Any]) -> None:
    """Check that a run continues with the plan, the data and the settings it began with."""
    if run.plan.digest() != stepper.plan.digest():
        raise RunError(f"{run.path} belongs to another plan: choose a new directory for this one")
    data_files.require_same(run.path, run.status.get(data_files.ENTRY, ()), about.get(data_files.ENTRY, ()))
    for name, value in about.items():
        if name == "data_digest" and run.status[name] != value:
            raise RunError(f"the data of {run.path} is not that of the given problem: resume it with the same data")
        if name not in ("problem_name", data_files.ENTRY) and run.status[name] != value:
            raise RunError(f"{run.path} began with {name} = {run.status[name]!r}: set it back, or start a new run")


def _warn_or_refuse(stepper: Stepper) -> None:
    """Refuse a plan that cannot stay bounded; warn of what else deserves a look."""
    findings = check(stepper.plan, curvature=stepper.largest_curvature())
    require_stable(findings)
    for finding in findings:
        if finding.level == "warning":
            warnings.warn(PlanWarning(str(finding), finding.topic), stacklevel=5)


def _require_shared(path: Path, team: Team) -> None:
    """Check that all processes see the directory that the first one writes to, by a word that it leaves there."""
    if team.size == 1:
        return
    word = bytes(team.gather(np.frombuffer(secrets.token_bytes(8), np.uint8))[0]).hex()

    def look() -> None:
        if team.is_first:
            RunDirectory(path).update_status(session=word)
            return
        deadline = time.monotonic() + _SEEN_SECONDS
        while not _says(path, word):
            if time.monotonic() > deadline:
                raise RunError(
                    f"process {team.index} does not see {path} as process 0 does: give a directory that all hosts "
                    "share, by the same name on each"
                )
            time.sleep(_POLL_SECONDS)

    team.attempt(look)


def _says(path: Path, word: str) -> bool:
    try:
        return read_json(path / "status.json").get("session") == word
    except (ConsilienceError, OSError):
        return False
