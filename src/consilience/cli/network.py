"""`consilience node` and `consilience network`: agents as processes of their own."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from consilience.cli.options import Json, takes_plan

if TYPE_CHECKING:
    from consilience.sampling.targets import Wishes

app = typer.Typer(help="Networks of nodes: make one, run it on this machine, ask how it is.", no_args_is_help=True)


@app.callback()
def _before() -> None:
    """Networks of nodes: make one, run it on this machine, ask how it is."""
    from consilience.engines.peers import require_packages

    require_packages()


NodeFile = Annotated[Path, typer.Argument(help="The node's file, made by `network init`.")]
Directory = Annotated[Path, typer.Argument(help="The network's directory, made by `network init`.")]
Experiment = Annotated[str, typer.Option("--experiment", help="An experiment, PLAN.toml, or module:attribute.")]
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


def node(path: NodeFile, as_json: Json = False) -> None:
    """Run one agent of a network, beside its data; started again, it resumes where it was."""
    from consilience.cli import display
    from consilience.cli.logs import log_to_stderr, refusals_logged
    from consilience.engines.peers import require_packages
    from consilience.engines.peers.settings import NodeSettings

    require_packages()
    from consilience.deployment.nodes import run_node
    from consilience.sampling.run import Run

    settings = NodeSettings.load(path)
    log_to_stderr(settings.agent, as_json)
    with contextlib.nullcontext() if as_json else display.Display(quiet=True), refusals_logged():
        run_node(settings, alone=True)
        page = Run(settings.run).report()
    typer.echo(f"Report: {page}")


@app.command()
@takes_plan()
def init(
    experiment: Experiment,
    out: NetworkOut,
    wishes: Wishes,
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

    plan = main_plan(experiment, wishes).plan
    if plan.problem is None:
        raise NetworkError('the plan names no problem: add `problem = "gmm"` or `problem = "module:attribute"` to it')
    files = make_network(
        plan, out, endpoint, relay=relay_place, insecure=insecure,
        checkpoint_seconds=checkpoint_seconds, on_loss=on_loss, patience=patience, on_implausible=on_implausible,
    )  # fmt: skip
    typer.echo(f"{len(files)} nodes: {files[0]} … Start them all here with: consilience network up {out}")


@app.command()
def relay(path: RelayFile, as_json: Json = False) -> None:
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
def up(path: Directory, restart: Restart = False) -> None:
    """Run all nodes of a network on this machine, as processes of their own, with one live table; then report."""
    from consilience.cli import display, network_display
    from consilience.deployment.local_network import merge_network
    from consilience.deployment.processes import start_network
    from consilience.sampling.run import Run

    with network_display.network_table() as show:
        start_network(path, show, restart=restart)
    with display.Display(quiet=True):
        whole = Run(merge_network(path).path)
        page = whole.report()
    display.print_result(whole.summary, page)


@app.command()
def status(path: Directory, as_json: Json = False) -> None:
    """Ask every node of a network how far it is."""
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
