"""The commands: each parses its options, calls the library and prints what comes back.

The library is imported inside the commands, so that `--help` does not wait for JAX.
"""

from __future__ import annotations

import datetime
import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from consilience.plans import Plan

Target = Annotated[str, typer.Argument(help="An experiment (see `experiments`), PLAN.toml, or module:attribute.")]
RunPath = Annotated[Path, typer.Argument(help="The directory of a run.")]
RunPaths = Annotated[list[Path], typer.Argument(help="The directory of a run, or those of all nodes of a network.")]
Whole = Annotated[
    Path | None, typer.Option("--out", "-o", help="Directory for the whole network's run (by default `whole`).")
]
Json = Annotated[bool, typer.Option("--json", help="Print machine-readable results on standard output.")]
Agents = Annotated[int | None, typer.Option("--agents", "-n", min=1, help="Number of agents.")]
GraphName = Annotated[
    str | None,
    typer.Option(
        "--graph",
        help="ring, path, star, complete, grid, torus, barbell, erdos-renyi, watts-strogatz, random-geometric.",
    ),
]
Steps = Annotated[int | None, typer.Option("--steps", min=1, help="Number of steps.")]
BurnIn = Annotated[int | None, typer.Option("--burn-in", min=0, help="First steps that are not stored.")]
StoreEvery = Annotated[int | None, typer.Option("--store-every", min=1, help="Store a draw every so many steps.")]
Chains = Annotated[int | None, typer.Option("--chains", min=1, help="Independent copies of the network.")]
Runs = Annotated[int | None, typer.Option("--runs", min=1, help="Repetitions of an experiment: so many chains.")]
Seed = Annotated[int | None, typer.Option("--seed", min=0, help="Decides every random number.")]
BatchSize = Annotated[int | None, typer.Option("--batch-size", min=1, help="Rows in a minibatch.")]
StepSize = Annotated[float | None, typer.Option("--step-size", help="A constant step size.")]
Consensus = Annotated[float | None, typer.Option("--consensus", help="A constant consensus step.")]
Temperature = Annotated[float | None, typer.Option("--temperature", min=0.0, help="1 samples the posterior.")]
DType = Annotated[str | None, typer.Option("--dtype", help="float32 or float64.")]
Auto = Annotated[bool, typer.Option("--auto", help="Choose the step sizes by `suggest`.")]
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
CheckpointSeconds = Annotated[float, typer.Option("--checkpoint-seconds", min=0.0, help="How often to checkpoint.")]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Directory for the run (by default runs/NAME-TIME).")]


class Engine(StrEnum):
    """Where sampling happens."""

    SIMULATE = "simulate"
    MESH = "mesh"
    PEERS = "peers"


EngineName = Annotated[
    Engine,
    typer.Option(
        "--engine",
        help="simulate: all agents in this process. mesh: spread over devices. peers: each a process, over TLS.",
    ),
]


def run(
    target: Target,
    agents: Agents = None,
    graph: GraphName = None,
    steps: Steps = None,
    burn_in: BurnIn = None,
    store_every: StoreEvery = None,
    chains: Chains = None,
    runs: Runs = None,
    seed: Seed = None,
    batch_size: BatchSize = None,
    step_size: StepSize = None,
    consensus: Consensus = None,
    temperature: Temperature = None,
    dtype: DType = None,
    auto: Auto = False,
    engine: EngineName = Engine.SIMULATE,
    devices: Devices = None,
    model_devices: ModelDevices = None,
    coordinator: Coordinator = None,
    num_processes: NumProcesses = None,
    process_id: ProcessId = None,
    join_seconds: JoinSeconds = None,
    checkpoint_seconds: CheckpointSeconds = 10.0,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Sample a posterior over a network of agents, and report."""
    from consilience.cli import meshes

    if auto:
        meshes.require_no_auto(engine, coordinator, num_processes, process_id)
    with meshes.meeting(engine, devices, out, coordinator, num_processes, process_id, join_seconds):
        from consilience.cli import display
        from consilience.experiments import load_problem
        from consilience.runs.directory import require_free
        from consilience.sampling import sample
        from consilience.studies import start_study
        from consilience.suggestions import suggest
        from consilience.targets import main_plan, plans_for

        mesh = meshes.settings_for(engine, devices, model_devices)
        path = out or default_path(target)
        options: dict[str, Any] = {
            "num_agents": agents, "graph": graph, "num_steps": steps, "burn_in": burn_in, "store_every": store_every,
            "num_chains": runs or chains, "seed": seed, "batch_size": batch_size, "step_size": step_size,
            "consensus": consensus, "temperature": temperature, "dtype": dtype, "auto": auto,
        }  # fmt: skip
        one_network = engine == "peers"  # of a study, its main one

        def plans_of_target() -> dict[str, Plan]:
            if meshes.is_first():
                require_free(path)
            return {"run": main_plan(target, **options)} if one_network else plans_for(target, **options)

        plans = meshes.together(plans_of_target)
        if auto:
            chosen = {
                name: suggest(load_problem(plan), plan.graph, plan.num_steps, plan).practical
                for name, plan in plans.items()
            }
            plans = {name: suggestion.plan for name, suggestion in chosen.items()}
            if not as_json:
                display.print_suggestions(list(chosen.values()))
        if one_network:
            _sample_by_peers(plans["run"], path, as_json)
            return
        with display.Display(quiet=as_json or not meshes.is_first()) as screen:
            if len(plans) > 1:
                meshes.require_no_study(mesh)
                start_study(target, plans, path, screen.follow)
            else:
                (plan,) = plans.values()
                problem = meshes.together(lambda: meshes.own_problem(plan, mesh))
                sample(
                    problem, plan, path, engine=mesh or engine, progress=screen.follow(plan), theory=True,
                    checkpoint_seconds=checkpoint_seconds,
                )  # fmt: skip
        if meshes.is_first():
            _finish(path, as_json)


def reproduce(
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory; an interrupted one is continued.")] = Path(
        "runs/reproduce"
    ),
    steps: Steps = None,
) -> None:
    """Run all experiments of the paper in full (an hour or so), and write one page; continues where it was."""
    from consilience import reproduction
    from consilience.cli import display

    with display.Display(quiet=False) as screen:
        parts = [(part.directory, part.minutes) for part in reproduction.PARTS]
        announce = screen.outline(parts)
        page = reproduction.reproduce(out, screen.follow, lambda number, _: announce(number), steps)
    typer.echo(f"Report: {page}")


def resume(
    path: RunPath,
    devices: Devices = None,
    model_devices: ModelDevices = None,
    coordinator: Coordinator = None,
    num_processes: NumProcesses = None,
    process_id: ProcessId = None,
    join_seconds: JoinSeconds = None,
    checkpoint_seconds: CheckpointSeconds = 10.0,
    as_json: Json = False,
) -> None:
    """Continue a run (or a study) that was interrupted; a run on a mesh also with other devices or processes."""
    from consilience.cli import meshes

    if (path / "network").is_dir():
        _sample_by_peers(None, path, as_json)
        return
    engine = meshes.engine_of(path)
    with meshes.meeting(engine, devices, path, coordinator, num_processes, process_id, join_seconds):
        from consilience import sampling, studies
        from consilience.cli import display

        mesh = meshes.settings_for(engine, devices, model_devices)
        with display.Display(quiet=as_json or not meshes.is_first()) as screen:
            if studies.is_study(path):
                studies.continue_study(path, screen.follow)
            else:
                plan = sampling.Run(path).plan
                sampling.resume(
                    path,
                    engine=mesh,
                    progress=screen.follow(plan),
                    theory=True,
                    checkpoint_seconds=checkpoint_seconds,
                )
        if meshes.is_first():
            _finish(path, as_json)


def report(paths: RunPaths, out: Whole = None, as_json: Json = False) -> None:
    """Redraw the report of a run from its directory; of several nodes' directories, that of the whole network."""
    from consilience.cli import display
    from consilience.gathering import gather

    if len(paths) > 1:
        whole = out or paths[0].parent / "whole"
        with display.Display(quiet=as_json):
            gather(paths, whole, theory=True)
        _finish(whole, as_json)
        return
    if out is not None:
        raise typer.BadParameter("--out is for the directories of several nodes: give all of them")
    _finish(paths[0], as_json)


def check(
    target: Target,
    agents: Agents = None,
    graph: GraphName = None,
    steps: Steps = None,
    chains: Chains = None,
    batch_size: BatchSize = None,
    step_size: StepSize = None,
    consensus: Consensus = None,
    temperature: Temperature = None,
    as_json: Json = False,
) -> None:
    """Say whether a plan is stable and inside the theorems, without running it."""
    from consilience import checks
    from consilience.cli import display
    from consilience.engines.simulate import require_matching
    from consilience.experiments import load_problem
    from consilience.targets import plans_for

    results: list[tuple[Any, list[checks.Finding]]] = []
    for plan in plans_for(
        target, num_agents=agents, graph=graph, num_steps=steps, num_chains=chains, batch_size=batch_size,
        step_size=step_size, consensus=consensus, temperature=temperature,
    ).values():  # fmt: skip
        problem = load_problem(plan) if plan.problem else None
        if problem is not None:
            require_matching(problem, plan)
        results.append((plan, checks.check(plan, problem)))
    if as_json:
        typer.echo(json.dumps([[finding.to_dict() for finding in findings] for _, findings in results], indent=2))
    else:
        display.print_findings(results)
    if any(finding.level == "error" for _, findings in results for finding in findings):
        raise typer.Exit(2)


def experiments(as_json: Json = False) -> None:
    """List the experiments that `run` knows by name."""
    from consilience.cli import display
    from consilience.experiments import EXPERIMENTS

    if as_json:
        typer.echo(json.dumps({name: found.title for name, found in EXPERIMENTS.items()}, indent=2))
    else:
        display.print_experiments(EXPERIMENTS)


def _sample_by_peers(plan: Plan | None, path: Path, as_json: bool) -> None:
    """Sample a plan by a network inside the run's directory; without a plan, go on with the one that is there."""
    from consilience.cli import display
    from consilience.engines.peers import require_packages
    from consilience.errors import Interrupted

    require_packages()
    from consilience.networks import continue_by_network, made_by_network, sample_by_network

    try:
        with display.Display(quiet=as_json), display.network_table(quiet=as_json) as show:
            if plan is not None:
                sample_by_network(plan, path, show)
            elif made_by_network(path):
                continue_by_network(path, show)
    except (KeyboardInterrupt, Interrupted):
        raise Interrupted(f"the nodes left checkpoints, continue with: consilience resume {path}") from None
    _finish(path, as_json)


def _finish(path: Path, as_json: bool) -> None:
    """Write the report, and print the summary or a short table and the report's path."""
    from consilience.cli import display
    from consilience.runs.files import read_json
    from consilience.sampling import Run
    from consilience.studies import is_study, report_study

    page = report_study(path) if is_study(path) else Run(path).report()
    summary = read_json(path / "summary.json")
    if as_json:
        typer.echo(json.dumps({**summary, "run": str(path), "report": str(page)}, indent=2))
    else:
        display.print_result(summary, page)


def default_path(target: str, prefix: str = "") -> Path:
    """`runs/NAME-TIME`."""
    name = Path(target).stem if target.endswith(".toml") else target.split(":")[0].split(".")[-1]
    return Path("runs") / f"{prefix}{name}-{datetime.datetime.now():%Y%m%d-%H%M%S}"
