"""`consilience node` and `consilience network`: agents as processes of their own."""

from __future__ import annotations

import contextlib
import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from consilience.cli.options import Json, takes_plan
from consilience.cli.page import Open, Page, Port, page_of

if TYPE_CHECKING:
    from consilience.sampling.targets import Wishes

app = typer.Typer(help="Networks of nodes: make one, run it on this machine, ask how it is.", no_args_is_help=True)


@app.callback()
def _before() -> None:
    """Networks of nodes: make one, run it on this machine, ask how it is."""
    from consilience.engines.peers import require_packages

    require_packages()


NodeFile = Annotated[Path, typer.Argument(help="The node's file, made by `network init`.")]
Asked = Annotated[
    Path, typer.Argument(help="The network's directory; or a node's file, which asks that node alone, at its site.")
]
Directory = Annotated[Path, typer.Argument(help="The network's directory, made by `network init`.")]
Experiment = Annotated[
    str | None, typer.Option("--experiment", help="An experiment, PLAN.toml, or module:attribute.")
]
StudyFile = Annotated[str | None, typer.Option("--study", help="A study, STUDY.toml, in place of --experiment.")]
NetworkOut = Annotated[Path, typer.Option("--out", "-o", help="A new directory for the network.")]
Endpoints = Annotated[
    list[str] | None,
    typer.Option("--endpoint", help="host:port of an agent, once for each in order; by default on this machine."),
]
RelayPlace = Annotated[
    str | None, typer.Option("--relay", help="host:port of a relay, for nodes that can only connect outwards.")
]
RelayFile = Annotated[Path, typer.Argument(help="The relay's file, made by `network init --relay`.")]
Insecure = Annotated[bool, typer.Option("--insecure", help="Without TLS; refused off loopback.")]
Restart = Annotated[bool, typer.Option("--restart", help="Start a node again that was killed.")]
CheckpointSeconds = Annotated[
    float, typer.Option("--checkpoint-seconds", help="How often a node writes a checkpoint.")
]


OnLoss = Annotated[
    Literal["wait", "continue"],
    typer.Option("--on-loss", help="Wait for a lost neighbour, or continue with the others."),
]
Patience = Annotated[
    float, typer.Option("--patience", help="After how many silent seconds a neighbour counts as lost.")
]


OnImplausible = Annotated[
    Literal["warn", "stop", "clip"],
    typer.Option("--on-implausible", help="When a neighbour's messages are far from what they were at first."),
]


RelayJson = Annotated[bool, typer.Option("--json", help="Log a JSON object a line on standard error.")]
LogJson = Annotated[
    bool,
    typer.Option(
        "--json", help="Log a JSON object a line on standard error; at the end the summary on standard output."
    ),
]


def node(
    path: NodeFile, page: Page = False, port: Port = None, open_browser: Open = False, as_json: LogJson = False
) -> None:
    """Run one agent of a network, beside its data; started again, it resumes where it was."""
    from consilience.cli import display, result_display
    from consilience.cli.logs import log_to_file, log_to_stderr, refusals_logged
    from consilience.engines.peers import require_packages
    from consilience.engines.peers.settings import NodeSettings

    require_packages()
    from consilience.deployment.nodes import run_node
    from consilience.sampling.run import Run

    settings = NodeSettings.load(path)
    log_to_stderr(settings.agent, as_json)
    with page_of(path, page, port, open_browser):
        if page:
            log_to_file(path.resolve().parent / "logs" / f"agent-{settings.agent}.log", settings.agent)
        with contextlib.nullcontext() if as_json else display.Display(quiet=True), refusals_logged():
            run_node(settings, alone=True)
            run = Run(settings.run)
            if not as_json:
                result_display.print_result(run.summary, run.path)
            written = run.report()
        if as_json:
            typer.echo(json.dumps({**run.summary, "run": str(run.path), "report": str(written)}, indent=2))
            if run.summary.get("converged") is False:
                told = run.summary["verdict"], run.summary.get("remedy", "")
                logging.getLogger("consilience").warning("%s What to do: %s.", *told)
        else:
            result_display.print_report(written, place=path)


@app.command()
@takes_plan()
def init(
    out: NetworkOut,
    wishes: Wishes,
    experiment: Experiment = None,
    study: StudyFile = None,
    endpoint: Endpoints = None,
    relay_place: RelayPlace = None,
    insecure: Insecure = False,
    checkpoint_seconds: CheckpointSeconds = 10.0,
    on_loss: OnLoss = "wait",
    patience: Patience = 30.0,
    on_implausible: OnImplausible = "warn",
) -> None:
    """Make a network: a certificate authority, and for each agent a certificate and a file for its machine."""
    from consilience.deployment.networks import make_network
    from consilience.errors import NetworkError
    from consilience.sampling.targets import main_plan

    target = study or experiment
    if target is None or (study and experiment):
        raise NetworkError("say what the network samples, with --experiment or with --study: one of them")
    plan, found, _ = main_plan(target, wishes)
    if not plan.says_problem:
        raise NetworkError('the plan names no problem: add `problem = "gmm"` or `problem = "module:attribute"` to it')
    files = make_network(
        plan, out, endpoint, relay=relay_place, insecure=insecure, data=wishes.data,
        checkpoint_seconds=checkpoint_seconds, on_loss=on_loss, patience=patience, on_implausible=on_implausible,
    )  # fmt: skip
    for line in found if plan.study else ():
        typer.echo(f"  {line}")
    if plan.study and not wishes.data:
        typer.echo(
            f'{len(files)} nodes: {files[0]} … Carry each to its site, write data = "FILE.csv" into it there, and '
            f"start it with: consilience node {files[0].name}"
        )
        return
    typer.echo(f"{len(files)} nodes: {files[0]} … Start them all here with: consilience network up {out}")


@app.command()
def relay(path: RelayFile, as_json: RelayJson = False) -> None:
    """Pass messages on between nodes that can only connect outwards, until it is stopped."""
    import signal
    import threading

    from consilience.cli.logs import log_to_stderr, refusals_logged
    from consilience.engines.peers.relay import RelaySettings, relaying

    log_to_stderr(None, as_json)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with refusals_logged(), relaying(RelaySettings.load(path)):
        stop.wait()


@app.command()
def up(
    path: Directory, restart: Restart = False, page: Page = False, port: Port = None, open_browser: Open = False
) -> None:
    """Run all nodes of a network on this machine, as processes of their own, with one live table; then report."""
    from consilience.cli import display, network_display, result_display
    from consilience.deployment.local_network import merge_network
    from consilience.deployment.processes import start_network
    from consilience.sampling.run import Run

    with page_of(path, page, port, open_browser):
        with network_display.network_table() as show:
            start_network(path, show, restart=restart)
        with display.Display(quiet=True):
            whole = Run(merge_network(path).path)
            result_display.print_result(whole.summary, whole.path)
            written = whole.report()
        result_display.print_report(written, place=path)


@app.command()
def status(path: Asked, as_json: Json = False) -> None:
    """Ask every node of a network how far it is; a site asks its own."""
    from consilience.cli import network_display
    from consilience.deployment.processes import network_status

    found = network_status(path)
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    else:
        network_display.print_network(found)


@app.command()
def renew(path: Directory) -> None:
    """Renew all certificates of a network, where it was made; carry the new ones over and start the nodes again."""
    from consilience.engines.peers.certificates import renew as renew_certificates

    names = renew_certificates(path / "certificates")
    typer.echo(
        f"renewed {path}/certificates/authority.pem and the certificates of {', '.join(names)}; keys are the same"
    )


@app.command()
def down(path: Directory) -> None:
    """Stop the nodes that `up` started; they leave a checkpoint, and `up` resumes from it."""
    from consilience.deployment.processes import stop_network

    typer.echo(f"stopping {len(stop_network(path))} nodes")
