"""Networks of nodes: make one (certificates, a file for each node), run all of it on this machine, ask how it is.

NETWORK/
  plan.toml
  agent-0.toml …            one for each node, to be carried to its machine with the three files it names
  relay.toml                for the relay, if there is one
  certificates/             the authority, and a certificate and a key for each agent and for the operator
  runs/agent-0/ …           where the nodes leave their runs
  logs/agent-0.log …        what nodes that `up` started say
  report/                   the run of the whole network, gathered from those of the nodes
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from consilience.engines.peers.certificates import issue, make_authority, require_usable
from consilience.engines.peers.relay import RelaySettings
from consilience.engines.peers.settings import TLS, NodeSettings, neighbours_of, split_endpoint
from consilience.engines.peers.transport import RELAY, ask_status
from consilience.errors import ConsilienceError, Interrupted, NetworkError
from consilience.gathering import NETWORK, gather
from consilience.loop import stopped_by_signals
from consilience.plans import Plan
from consilience.runs.directory import require_free
from consilience.runs.files import disk_errors, read_json, write_json, write_text
from consilience.sampling import Run

_POLL_SECONDS = 0.5
_STOP_SECONDS = 30.0
_INTERRUPTED = 130
log = logging.getLogger("consilience")
Show = Callable[[list[dict[str, Any]]], None]


def make_network(
    plan: Plan,
    out: Path,
    endpoints: Sequence[str] | None = None,
    *,
    relay: str | None = None,
    insecure: bool = False,
    **options: Any,
) -> list[Path]:
    """Write a network's files; returns the nodes' files.

    Args:
        plan: what the network samples.
        out: a new directory.
        endpoints: `host:port` of each agent; by default free ports of this machine.
        relay: `host:port` of a relay to which all nodes connect, in place of endpoints of their own.
        insecure: without TLS, on loopback only.
        options: other entries of every node's file.
    """
    if out.exists() and any(out.iterdir()):
        raise NetworkError(f"{out} is not empty: choose a new directory for the network")
    if plan.problem is None:
        raise NetworkError('the plan names no problem: add `problem = "gmm"` or `problem = "module:attribute"` to it')
    if relay is not None and endpoints:
        raise NetworkError("nodes that connect to a relay have no endpoints of their own: give --relay or --endpoint")
    places = list(endpoints or []) or ([relay] * plan.num_agents if relay else _free_endpoints(plan.num_agents))
    if len(places) != plan.num_agents:
        raise NetworkError(f"the plan has {plan.num_agents} agents, but {len(places)} endpoints are given: one each")
    files = []
    with disk_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        write_text(out / "plan.toml", plan.to_toml())
        if not insecure:
            _make_certificates(out / "certificates", places, relay)
        if relay is not None:
            tls = None if insecure else _tls(Path("certificates"), RELAY)
            write_text(out / "relay.toml", RelaySettings(listen=relay, plan=Path("plan.toml"), tls=tls).to_toml())
        for agent, place in enumerate(places):
            settings = NodeSettings(
                agent=agent,
                plan=Path("plan.toml"),
                run=Path("runs") / f"agent-{agent}",
                listen=None if relay else place,
                relay=relay,
                neighbours={number: places[number] for number in neighbours_of(plan, agent)},
                tls=None if insecure else _tls(Path("certificates"), f"agent-{agent}"),
                **options,
            )
            settings.require_fitting(plan)
            files.append(out / f"agent-{agent}.toml")
            write_text(files[-1], settings.to_toml())
    return files


def sample_by_network(plan: Plan, out: Path, show: Show) -> Run:
    """Make a network inside a new run's directory, run all of it on this machine, and gather the run.

    Args:
        plan: what to sample; it must name its problem, which every node loads for itself.
        out: the run's directory.
        show: called now and then with what each node says of itself.
    """
    require_free(out)
    make_network(plan, out / NETWORK)
    return continue_by_network(out, show)


def continue_by_network(out: Path, show: Show) -> Run:
    """Go on with a run that `sample_by_network` began."""
    start_network(out / NETWORK, show)
    return gather(node_runs(out / NETWORK), out, theory=True)


def made_by_network(out: Path) -> bool:
    """Whether `sample_by_network` began a run here that is not gathered yet."""
    return (out / NETWORK / "plan.toml").is_file() and not (out / "plan.toml").exists()


def report_network(network: Path) -> Run:
    """The run of a whole network, or of what is left of it, in its directory `report`."""
    paths = node_runs(network)
    if _goes_on(network):
        paths = [path for path in paths if (path / "summary.json").is_file()]
    return gather(paths, network / "report", theory=True)


def node_runs(network: Path) -> list[Path]:
    """The nodes' run directories, in the agents' order."""
    return [NodeSettings.load(path).run for path in _node_files(network)]


def start_network(network: Path, show: Show, *, restart: bool = False) -> None:
    """Run all nodes of a network on this machine until they are done.

    If one fails the others are stopped, unless the network goes on without lost agents.

    Args:
        network: its directory.
        show: called now and then with what each node says of itself.
        restart: start a node again that was killed.
    """
    files, stop = _node_files(network), threading.Event()
    (network / "logs").mkdir(exist_ok=True)
    (network / "runs").mkdir(exist_ok=True)
    relays = {path: _start(network, path) for path in network.glob("relay.toml")}
    nodes = {path: _start(network, path) for path in files}
    codes: dict[Path, int] = {}
    try:
        with stopped_by_signals(stop):
            while not stop.wait(_POLL_SECONDS):
                _collect_ended(network, relays, codes, restart)
                _collect_ended(network, nodes, codes, restart)
                _note(network, nodes)
                failed = any(code for path, code in codes.items() if path in relays or not _goes_on(network))
                if failed or all(path in codes for path in nodes):
                    break
                show(network_status(network))
    finally:
        _end(nodes.values())
        _end(relays.values())  # last, as nodes speak through it until they end
        (network / "processes.json").unlink(missing_ok=True)
    if stop.is_set():
        raise _stopped(network)
    _require_done(network, codes)


def _collect_ended(
    network: Path, started: dict[Path, subprocess.Popen[bytes]], codes: dict[Path, int], restart: bool
) -> None:
    """Note how processes ended, or start those again that were killed."""
    for path, process in started.items():
        code = process.poll()
        if code is None or path in codes:
            continue
        if code == -signal.SIGTERM:  # told to stop before it could listen
            codes[path] = _INTERRUPTED
        elif code < 0 and restart:
            started[path] = _start(network, path)
        else:
            codes[path] = code or int(path.stem == RELAY)  # a relay does not end by itself


def _end(processes: Collection[subprocess.Popen[bytes]]) -> None:
    """Stop processes, politely at first."""
    for process in processes:
        if process.poll() is None:
            process.terminate()
    for process in processes:
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _stopped(network: Path) -> Interrupted:
    return Interrupted(f"the nodes were stopped and left checkpoints; `consilience network up {network}` goes on")


def stop_network(network: Path) -> list[int]:
    """Ask the nodes that `start_network` started to stop; they leave a checkpoint. Returns their process numbers."""
    if not (network / "processes.json").is_file():
        raise NetworkError(f"no node of {network} was started by `network up` here, or all have ended")
    stopped = []
    for number in read_json(network / "processes.json").values():
        try:
            os.kill(number, signal.SIGTERM)
            stopped.append(number)
        except ProcessLookupError:
            continue
    return stopped


def network_status(network: Path, seconds: float = 1.0) -> list[dict[str, Any]]:
    """What each node says of itself, asked over the network; of one that does not answer, that it is not here."""
    found = []
    for path in _node_files(network):
        settings = NodeSettings.load(path)
        operator = None if settings.tls is None else _tls(network.resolve() / "certificates", "operator")
        if operator is not None:
            require_usable(operator.certificate, operator.key, operator.authority)
        answer = ask_status(settings, operator, seconds)
        found.append({"agent": settings.agent, "here": answer is not None, **(answer or {})})
    return found


def _goes_on(network: Path) -> bool:
    return NodeSettings.load(_node_files(network)[0]).on_loss == "continue"


def _require_done(network: Path, codes: dict[Path, int]) -> None:
    """Say which node ended before its time, and why as far as it told; some may, if the others go on."""
    if _goes_on(network) and 0 in codes.values():
        for path, code in codes.items():
            if code:
                log.warning("%s ended before its time; %s/logs says why", path.stem, network)
        return
    for path, code in codes.items():
        if code == _INTERRUPTED:
            raise _stopped(network)
        if code:
            said = (network / "logs" / f"{path.stem}.log").read_text(errors="replace").strip().splitlines()
            how = f"was killed (signal {-code})" if code < 0 else "failed"
            last = said[-1].removeprefix("Error: ") if said and code > 0 else "start it again with `up --restart`"
            raise ConsilienceError(f"{path.stem} {how}, so the others were stopped; they left checkpoints. {last}")


def _make_certificates(directory: Path, places: Sequence[str], relay: str | None) -> None:
    directory.mkdir(mode=0o700)
    authority = make_authority(directory, "Consilience network")
    for agent, place in enumerate(places):
        issue(authority, directory, f"agent-{agent}", [] if relay else [split_endpoint(place)[0]])
    if relay:
        issue(authority, directory, RELAY, [split_endpoint(relay)[0]])
    issue(authority, directory, "operator", [])


def _tls(directory: Path, name: str) -> TLS:
    return TLS(
        authority=directory / "authority.pem", certificate=directory / f"{name}.pem", key=directory / f"{name}.key"
    )


def _free_endpoints(count: int) -> list[str]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    finally:
        for one in sockets:
            one.close()


def _node_files(network: Path) -> list[Path]:
    found = sorted(network.glob("agent-*.toml"), key=lambda path: int(path.stem.removeprefix("agent-")))
    if not found:
        raise NetworkError(f"{network} holds no network: make one with `consilience network init`")
    return found


def _start(network: Path, path: Path) -> subprocess.Popen[bytes]:
    with (network / "logs" / f"{path.stem}.log").open("ab") as log:
        job = ["network", "relay"] if path.stem == RELAY else ["node"]
        command = [sys.executable, "-m", "consilience.cli.main", *job, str(path)]
        # in a session of its own: Ctrl-C reaches only `up`, which then stops the nodes politely
        return subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)


def _note(network: Path, nodes: dict[Path, subprocess.Popen[bytes]]) -> None:
    write_json(network / "processes.json", {path.stem: process.pid for path, process in nodes.items()})


def dump(status: list[dict[str, Any]]) -> str:
    """A network's status as JSON."""
    return json.dumps(status, indent=2)
