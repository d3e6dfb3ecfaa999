"""Options about devices and processes of a mesh, and how the processes of one come together."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from consilience.sampling.engines import Engine

Devices = Annotated[
    int | None, typer.Option("--devices", min=1, help="Devices of a mesh, of all processes together.")
]
ModelDevices = Annotated[
    int | None, typer.Option("--model-devices", min=1, help="Devices that share one agent's parameters.")
]
Coordinator = Annotated[str | None, typer.Option("--coordinator", help="HOST:PORT at which process 0 waits.")]
NumProcesses = Annotated[int | None, typer.Option("--num-processes", min=1, help="How many processes there are.")]
ProcessId = Annotated[int | None, typer.Option("--process-id", min=0, help="Which of them this is, from 0.")]
JoinSeconds = Annotated[
    int | None, typer.Option("--join-seconds", min=1, help="How long to wait for the other processes.")
]


@contextlib.contextmanager
def joined(
    engine: str,
    devices: int | None,
    run: Path | None,
    coordinator: str | None,
    num_processes: int | None,
    process_id: int | None,
    join_seconds: int | None,
) -> Iterator[None]:
    """Join the other processes of a mesh, if there are any, and leave them at the end.

    The process that the user started hands all this on to a child that it watches, and exits with its code.
    """
    from consilience.deployment import supervision
    from consilience.engines.mesh.rendezvous import Rendezvous, cluster
    from consilience.errors import InputError, MeshError, ProcessLostError

    entries = {"coordinator": coordinator, "num_processes": num_processes, "process_id": process_id}
    given = {name: value for name, value in entries.items() if value is not None}
    if engine != "mesh":
        if given or join_seconds is not None:
            raise InputError("--coordinator, --num-processes, --process-id and --join-seconds are for --engine mesh")
        yield
        return
    if not given and cluster() is None:
        if join_seconds is not None:
            raise MeshError("--join-seconds is for several processes: give --coordinator too, or leave it out")
        from consilience.engines.mesh.devices import prepare_devices

        prepare_devices(devices)  # before anything else uses JAX
        yield
        return
    where = Rendezvous(**given, **({"join_seconds": join_seconds} if join_seconds else {}))
    where.require_complete()
    if run is None:
        raise MeshError("several processes need a directory that all of them see: give --out")
    if not supervision.is_child():
        command = [sys.executable, "-m", "consilience.cli.main", *sys.argv[1:]]
        raise typer.Exit(supervision.supervise(command, where, run))
    supervision.follow_parent()
    from consilience.engines.mesh import joining

    joining.join(where, devices)
    try:
        yield
    except ProcessLostError:
        raise
    except Exception as error:
        supervision.leave_words(error)
        raise
    finally:
        joining.part()


def engine_for(name: str, devices: int | None, model_devices: int | None) -> Engine:
    """The engine of that name, with the devices that the user named."""
    from consilience.errors import InputError
    from consilience.sampling.engines import Mesh, engine_named

    if name == "mesh":
        return Mesh(devices=devices, model_devices=model_devices or 1)
    if devices is not None or model_devices is not None:
        raise InputError(f"--devices and --model-devices are for --engine mesh, not for {name}")
    return engine_named(name)


def engine_of(run: Path) -> str:
    """The name of a run's engine; `simulate` for what is none."""
    try:
        return str(json.loads((run / "status.json").read_text()).get("engine", "simulate"))
    except (OSError, ValueError):
        return "peers" if (run / "network").is_dir() else "simulate"


def is_first(engine: str) -> bool:
    """Whether this process shows progress and results."""
    if engine != "mesh":
        return True
    from consilience.engines.mesh import joining

    return joining.is_first()


def refuse_suggesting(engine: str) -> None:
    """Check that step sizes are given where there are several processes, of which none has all the data."""
    from consilience.errors import MeshError

    if engine != "mesh":
        return
    from consilience.engines.mesh import joining

    if not joining.is_alone():
        raise MeshError(
            "choosing step sizes looks at all agents' data, and each of several processes has its own agents' alone: "
            "ask `consilience suggest` in one process, and give its --step-size and --consensus"
        )
