"""The directory of a run that several processes write to: made by the first, seen by all."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np

from consilience.engines.mesh import Mesh
from consilience.engines.mesh.team import Team
from consilience.errors import ConsilienceError, ProcessLostError, RunError
from consilience.meetings import HEARTBEAT_SECONDS
from consilience.runs import RunDirectory
from consilience.runs.files import read_json
from consilience.teamwork.data import data_digest

_SEEN_SECONDS = 10.0  # how long shared file systems may take to show a new file elsewhere
_POLL_SECONDS = 0.1


def create(path: Path, mesh: Mesh) -> None:
    """Let the first process lay out a new run, and all others see it."""
    digest = data_digest(mesh)
    metric_times = -(-mesh.plan.num_steps // mesh.block_steps)

    def lay_out() -> None:
        if mesh.team.is_first:
            RunDirectory.create(
                path, mesh.problem, mesh.plan, mesh.parameters, metric_times, "mesh", mesh.agents.tolist(),
                agents_per_chunk=mesh.agents_per_group, data_digest=digest,
            )  # fmt: skip

    mesh.team.attempt(lay_out)
    _require_shared(path, mesh.team)


@contextlib.contextmanager
def held(run: RunDirectory, mesh: Mesh) -> Iterator[None]:
    """Hold a run for writing by this team alone."""
    with contextlib.ExitStack() as stack:

        def lock() -> None:
            if mesh.team.is_first:
                stack.enter_context(run.locked())

        mesh.team.attempt(lock)
        _require_shared(run.path, mesh.team)
        try:
            yield
        except Exception as error:
            if mesh.team.size == 1 or not _is_of_connection(error):
                raise
            time.sleep(2 * HEARTBEAT_SECONDS)  # the runtime finds out who was lost, and ends this process by itself
            raise ProcessLostError(
                f"the connection to another process was lost; start all again with: consilience resume {run.path}"
            ) from error


def _is_of_connection(error: BaseException | None) -> bool:
    """Whether an error, or any that led to it, came from talking to other processes.

    JAX raises some of these as its own kind and some as plain ones; those name the library that talks.
    """
    while error is not None:
        if isinstance(error, jax.errors.JaxRuntimeError) or "Gloo" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


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
