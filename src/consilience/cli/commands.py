"""The commands that make and show runs: each parses its options, calls the library and prints what comes back.

The library is imported inside the commands, so that `--help` does not wait for JAX.
"""

from __future__ import annotations

import contextlib
import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from consilience.cli.options import CheckpointSeconds, Data, Json, Out, Target, default_path, takes_plan
from consilience.cli.page import Open, Page, Port, page_of
from consilience.cli.processes import Coordinator, Devices, JoinSeconds, ModelDevices, NumProcesses, ProcessId
from consilience.cli.yardstick import Budget, Methods, Minutes, Posteriors, Quick, Splits

if TYPE_CHECKING:
    from consilience.sampling.targets import Resolved, Wishes

RunPath = Annotated[Path, typer.Argument(help="The directory of a run.")]
RunPaths = Annotated[list[Path], typer.Argument(help="The directory of a run, or those of all nodes of a network.")]
Whole = Annotated[
    Path | None, typer.Option("--out", "-o", help="Directory for the whole network's run (by default `whole`).")
]
Allow = Annotated[
    list[str] | None,
    typer.Option("--allow", help="A module that the nodes' plan may name as its problem, which runs it; repeatable."),
]
ReproductionOut = Annotated[Path, typer.Option("--out", "-o", help="Directory; an interrupted one is continued.")]
Steps = Annotated[int | None, typer.Option("--steps", min=1, help="Number of steps of every run, to try it out.")]


class EngineName(StrEnum):
    """Where sampling happens."""

    SIMULATE = "simulate"
    MESH = "mesh"
    PEERS = "peers"


class TableForm(StrEnum):
    """How the table of parameters is printed."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


Form = Annotated[
    TableForm, typer.Option("--format", help="Print the table of parameters: for people, or as csv or json alone.")
]
Every = Annotated[bool, typer.Option("--all", help="Print every parameter, not the first ones only.")]
ByAgent = Annotated[bool, typer.Option("--by-agent", help="A row for each agent (dula, sghmc), not for the network.")]
Engine = Annotated[
    EngineName,
    typer.Option(
        "--engine",
        help="simulate: all agents in this process. mesh: spread over devices. peers: each a process, over TLS.",
    ),
]


@takes_plan()
def run(
    target: Target,
    wishes: Wishes,
    engine: Engine = EngineName.SIMULATE,
    devices: Devices = None,
    model_devices: ModelDevices = None,
    coordinator: Coordinator = None,
    num_processes: NumProcesses = None,
    process_id: ProcessId = None,
    join_seconds: JoinSeconds = None,
    checkpoint_seconds: CheckpointSeconds = 10.0,
    posterior: Posteriors = None,
    method: Methods = None,
    split: Splits = None,
    budget: Budget = None,
    minutes: Minutes = None,
    quick: Quick = False,
    page: Page = False,
    port: Port = None,
    open_browser: Open = False,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Sample a posterior over a network of agents, and report."""
    from consilience.cli import processes, yardstick

    if target == yardstick.NAME:
        asked = yardstick.Asked(posterior, method, split, budget, minutes, quick)
        yardstick.run(asked, wishes, engine == EngineName.SIMULATE, out, as_json)
        return
    yardstick.refuse_elsewhere(
        target, posterior=posterior, method=method, split=split, budget=budget, minutes=minutes, quick=quick
    )

    with processes.joined(engine, devices, out, coordinator, num_processes, process_id, join_seconds):
        from consilience.cli import display, network_display
        from consilience.sampling.engines import Task
        from consilience.sampling.series import start_series
        from consilience.sampling.targets import main_plan, meant, plans_for

        chosen, path = processes.engine_for(engine, devices, model_devices), out or default_path(target)
        chosen.require_room(path)
        one_network = engine == EngineName.PEERS  # of a series, its main one

        def resolve() -> dict[str, Resolved]:
            given: dict[str, Any] = {"before_suggesting": lambda: processes.refuse_suggesting(engine)}
            return {"run": main_plan(target, wishes, **given)} if one_network else plans_for(target, wishes, **given)

        resolved = chosen.attempt(resolve)
        first = processes.is_first(engine)
        if first and not as_json:
            display.print_reasons(resolved.values())
        plans = {name: one.plan for name, one in resolved.items()}
        with page_of(path, page, port, open_browser) if first else contextlib.nullcontext():
            with (
                display.Display(quiet=as_json or not first) as screen,
                network_display.network_table(quiet=as_json or not one_network) as show_nodes,
            ):
                if len(plans) > 1:
                    chosen.require_series()
                    start_series(meant(target, wishes)[0], plans, path, screen.follow)
                else:
                    (plan,) = plans.values()
                    follow = None if one_network else screen.follow(plan)
                    files = tuple(wishes.data)
                    chosen.run(Task(path, plan, None, follow, checkpoint_seconds, True, show_nodes, files))
            if first:
                _finish(path, as_json)


def resume(
    path: RunPath,
    devices: Devices = None,
    model_devices: ModelDevices = None,
    coordinator: Coordinator = None,
    num_processes: NumProcesses = None,
    process_id: ProcessId = None,
    join_seconds: JoinSeconds = None,
    data: Data = None,
    checkpoint_seconds: CheckpointSeconds = 10.0,
    as_json: Json = False,
) -> None:
    """Continue a run, a series or a table that was interrupted; on a mesh also with other devices or processes."""
    from consilience.cli import processes, yardstick

    if yardstick.is_table(path):
        yardstick.resume(path, as_json)
        return

    engine = processes.engine_of(path)
    with processes.joined(engine, devices, path, coordinator, num_processes, process_id, join_seconds):
        from consilience.cli import display, network_display
        from consilience.sampling import series
        from consilience.sampling.sample import resume as resume_run

        chosen = processes.engine_for(engine, devices, model_devices)
        first, nodes = processes.is_first(engine), engine == EngineName.PEERS
        with (
            display.Display(quiet=as_json or not first) as screen,
            network_display.network_table(quiet=as_json or not nodes) as show_nodes,
        ):
            if series.is_series(path):
                series.continue_series(path, screen.follow)
            else:
                resume_run(
                    path, engine=chosen, progress=None if nodes else screen.follow_run(path), theory=True,
                    checkpoint_seconds=checkpoint_seconds, show_nodes=show_nodes, data=data or (),
                )  # fmt: skip
        if first:
            _finish(path, as_json)


def reproduce(out: ReproductionOut = Path("runs/reproduce"), steps: Steps = None) -> None:
    """Run all experiments of the paper in full (an hour or so), and write one page; resumes where it was."""
    from consilience.cli import display, result_display
    from consilience.runs.files import read_json
    from consilience.sampling import reproduction

    with display.Display(quiet=False) as screen:
        parts = [(part.directory, part.minutes) for part in reproduction.PARTS]
        announce = screen.outline(parts)
        page = reproduction.reproduce(out, screen.follow, lambda number, _: announce(number), steps)
    result_display.print_verdict(read_json(out / "summary.json"))
    typer.echo(f"Report: {page}")


def report(
    paths: RunPaths,
    out: Whole = None,
    allow: Allow = None,
    form: Form = TableForm.TABLE,
    every: Every = False,
    by_agent: ByAgent = False,
    as_json: Json = False,
) -> None:
    """Redraw the report of a run from its directory; of several nodes' directories, that of the whole network."""
    from consilience.cli import display, result_display, yardstick
    from consilience.deployment.merging import merge
    from consilience.sampling.run import Run

    path = paths[0]
    if yardstick.is_table(path):
        yardstick.report(path, as_json)
        return
    if len(paths) > 1:
        path = out or paths[0].parent / "whole"
        with display.Display(quiet=as_json or form != TableForm.TABLE):
            merge(paths, path, theory=True, allow=allow or ())
    elif out is not None:
        raise typer.BadParameter("--out is for the directories of several nodes: give all of them")
    if form == TableForm.TABLE and not by_agent:
        _finish(path, as_json, every)
        return
    rows = Run(path).rows(by_agent=by_agent)
    result_display.warn_unless_converged(Run(path).summary)
    if form == TableForm.CSV:
        from consilience.runs.row_files import as_csv

        typer.echo(as_csv(rows), nl=False)
    elif form == TableForm.JSON or as_json:
        typer.echo(json.dumps(rows, indent=2))
    else:
        result_display.print_posterior(rows, path, every)


def experiments(as_json: Json = False) -> None:
    """List the experiments that `run` knows by name."""
    from consilience.cli import display, yardstick
    from consilience.experiments import EXPERIMENTS

    if as_json:
        titles = {name: found.title for name, found in EXPERIMENTS.items()}
        typer.echo(json.dumps({**titles, yardstick.NAME: yardstick.TITLE}, indent=2))
    else:
        display.print_experiments(EXPERIMENTS)
        typer.echo(f"  {yardstick.NAME}: {yardstick.TITLE}")


def _finish(path: Path, as_json: bool, every: bool = False) -> None:
    """Print a short table and the verdict, then draw the report and say where it is; or print the summary."""
    from consilience.cli import result_display
    from consilience.runs.files import read_json
    from consilience.sampling.run import Run
    from consilience.sampling.series import is_series, report_series

    if not as_json and (path / "summary.json").exists():  # of a run that has none, the report says what to do
        result_display.print_result(read_json(path / "summary.json"), path, every)
    page = report_series(path) if is_series(path) else Run(path).report()
    if as_json:
        summary = read_json(path / "summary.json")
        typer.echo(json.dumps({**summary, "run": str(path), "report": str(page)}, indent=2))
        result_display.warn_unless_converged(summary)
    else:
        result_display.print_report(page)
