"""`--engine mesh` and `consilience mesh`: devices, and processes that meet."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from consilience.engines.mesh.joining import is_first
from consilience.teamwork import own_problem

if TYPE_CHECKING:
    from consilience.engines.mesh import MeshSettings

app = typer.Typer(help="Agents spread over many devices: what a mesh would cost.", no_args_is_help=True)


def settings_for(engine: str, devices: int | None, model_devices: int | None) -> MeshSettings | None:
    """The settings of a mesh, if it is one."""
    from consilience.engines import ENGINES, MeshSettings
    from consilience.errors import InputError

    if engine not in ENGINES:
        raise InputError(f"unknown engine {engine!r}: choose one of {', '.join(ENGINES)}")
    if engine == "mesh":
        return MeshSettings(devices=devices, model_devices=model_devices or 1)
    if devices is not None or model_devices is not None:
        raise InputError(f"--devices and --model-devices are for --engine mesh, not for {engine}")
    return None


@contextlib.contextmanager
def meeting(
    mesh: MeshSettings | None,
    run: Path | None,
    coordinator: str | None,
    num_processes: int | None,
    process_id: int | None,
    join_seconds: int | None,
) -> Iterator[None]:
    """Meet the other processes, if there are any, and leave them at the end.

    The process that the user started hands all this on to a child that it watches, and exits with its code.
    """
    from consilience.engines.mesh import joining
    from consilience.errors import InputError, MeshError
    from consilience.teamwork import supervision

    entries = {"coordinator": coordinator, "num_processes": num_processes, "process_id": process_id}
    given = {name: value for name, value in entries.items() if value is not None}
    if mesh is None:
        if given:
            raise InputError("--coordinator, --num-processes and --process-id are for --engine mesh")
        yield
        return
    if not given and joining.cluster() is None:
        yield
        return
    where = joining.Meeting(**given, **({"join_seconds": join_seconds} if join_seconds else {}))
    where.require_complete()
    if run is None:
        raise MeshError("several processes need a directory that all of them see: give --out")
    if not supervision.is_child():
        raise typer.Exit(
            supervision.supervise([sys.executable, "-m", "consilience.cli.main", *sys.argv[1:]], where, run)
        )
    supervision.follow_parent()
    joining.join(where, mesh.devices)
    try:
        yield
    finally:
        joining.part()


def require_no_study(mesh: MeshSettings | None) -> None:
    """Check that a mesh samples one network, not the several of a study."""
    from consilience.errors import MeshError

    if mesh is not None:
        raise MeshError("a mesh samples one network: say which with --agents")


__all__ = ["app", "is_first", "meeting", "own_problem", "require_no_study", "settings_for"]
