"""`--engine mesh` and `consilience mesh`: devices, and processes that meet."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from consilience.cli.commands import Agents, BatchSize, Chains, Devices, GraphName, Json, ModelDevices, Target

if TYPE_CHECKING:
    from consilience.engines.mesh import MeshSettings
    from consilience.plans import Plan
    from consilience.problems import Problem

T = TypeVar("T")
app = typer.Typer(help="Agents spread over many devices: what a mesh would cost.", no_args_is_help=True)


@app.command()
def plan(
    target: Target,
    agents: Agents = None,
    devices: Devices = None,
    model_devices: ModelDevices = None,
    graph: GraphName = None,
    chains: Chains = None,
    batch_size: BatchSize = None,
    bandwidth: Annotated[float, typer.Option("--bandwidth", help="Bytes a second that a device sends.")] = 1.25e9,
    latency: Annotated[float, typer.Option("--latency", help="Seconds that a message takes at least.")] = 50e-6,
    as_json: Json = False,
) -> None:
    """Say what a mesh would hold, send and gain, from the compiled program, without running it."""
    from consilience.cli import display
    from consilience.engines.mesh import Mesh
    from consilience.engines.mesh.costs import Rates, costs_of
    from consilience.engines.mesh.devices import prepare_devices
    from consilience.targets import main_plan
    from consilience.teamwork.data import sized_problem

    settings = settings_for("mesh", devices, model_devices)
    prepare_devices(devices)
    made = main_plan(
        target, num_agents=agents, graph=graph, num_chains=chains, batch_size=batch_size, only_weighed=True
    )
    problem, repeated = sized_problem(made)
    rates = Rates(bandwidth=bandwidth, latency=latency)
    costs = costs_of(Mesh(problem, made, settings), rates)
    if as_json:
        typer.echo(json.dumps({**costs.to_dict(), "rates": vars(rates), "data_repeated": repeated}, indent=2))
    else:
        display.print_costs(made, costs.to_dict(), vars(rates), repeated)


def settings_for(engine: str, devices: int | None, model_devices: int | None) -> MeshSettings | None:
    """The settings of a mesh, if it is one."""
    from consilience.engines import MeshSettings
    from consilience.errors import InputError

    if engine == "mesh":
        return MeshSettings(devices=devices, model_devices=model_devices or 1)
    if devices is not None or model_devices is not None:
        raise InputError(f"--devices and --model-devices are for --engine mesh, not for {engine}")
    return None


@contextlib.contextmanager
def meeting(
    engine: str,
    devices: int | None,
    run: Path | None,
    coordinator: str | None,
    num_processes: int | None,
    process_id: int | None,
    join_seconds: int | None,
) -> Iterator[None]:
    """Meet the other processes, if there are any, and leave them at the end.

    The process that the user started hands all this on to a child that it watches, and exits with its code.
    """
    from consilience import supervision
    from consilience.errors import InputError, MeshError, ProcessLostError
    from consilience.meetings import Meeting, cluster

    entries = {"coordinator": coordinator, "num_processes": num_processes, "process_id": process_id}
    given = {name: value for name, value in entries.items() if value is not None}
    if engine != "mesh" and (given or join_seconds is not None):
        raise InputError("--coordinator, --num-processes, --process-id and --join-seconds are for --engine mesh")
    if engine != "mesh":
        yield
        return
    if not given and cluster() is None:
        if join_seconds is not None:
            raise MeshError("--join-seconds is for several processes: give --coordinator too, or leave it out")
        _prepare_devices(devices)
        yield
        return
    where = Meeting(**given, **({"join_seconds": join_seconds} if join_seconds else {}))
    where.require_complete()
    if run is None:
        raise MeshError("several processes need a directory that all of them see: give --out")
    if not supervision.is_child():
        raise typer.Exit(
            supervision.supervise([sys.executable, "-m", "consilience.cli.main", *sys.argv[1:]], where, run)
        )
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


def _prepare_devices(devices: int | None) -> None:
    """The devices of a process that is alone: before anything else uses JAX."""
    from consilience.engines.mesh.devices import prepare_devices

    prepare_devices(devices)


def together(action: Callable[[], T]) -> T:
    """What a function returns that may fail in one of several processes alone; all of them stop if it does."""
    from consilience import teamwork

    return teamwork.together(action)


def engine_of(run: Path) -> str:
    """The engine of a run; `simulate` for what is none."""
    try:
        return str(json.loads((run / "status.json").read_text()).get("engine", "simulate"))
    except (OSError, ValueError):
        return "simulate"


def is_first() -> bool:
    """Whether this process shows progress and results."""
    from consilience.engines.mesh import joining

    return joining.is_first()


def own_problem(plan: Plan, mesh: MeshSettings | None) -> Problem:
    """The problem that a plan names; on a mesh of several processes, this one's part of it."""
    from consilience import teamwork
    from consilience.experiments import load_problem

    return load_problem(plan) if mesh is None else teamwork.own_problem(plan, mesh)


def require_no_auto(engine: str, *named: Any) -> None:
    """Check that step sizes are given where there are several processes, of which none has all the data."""
    from consilience.errors import MeshError
    from consilience.meetings import cluster

    if engine == "mesh" and (any(one is not None for one in named) or cluster() is not None):
        raise MeshError(
            "--auto looks at all agents' data, and each of several processes has its own agents' alone: ask "
            "`consilience suggest` in one process, and give its --step-size and --consensus"
        )


def require_no_study(mesh: MeshSettings | None) -> None:
    """Check that a mesh samples one network, not the several of a study."""
    from consilience.errors import MeshError

    if mesh is not None:
        raise MeshError("a mesh samples one network: say which with --agents")
