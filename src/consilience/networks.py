"""Networks of nodes: make one (certificates, a file for each node), run all of it on this machine, ask how it is.

NETWORK/
  plan.toml
  agent-0.toml …            one for each node, to be carried to its machine with the three files it names
  certificates/             the authority, and a certificate and a key for each agent and for the operator
  runs/agent-0/ …           where the nodes leave their runs
  logs/agent-0.log …        what nodes that `up` started say
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from consilience.engines.peers.certificates import issue, make_authority
from consilience.engines.peers.settings import TLS, NodeSettings, neighbours_of, split_endpoint
from consilience.engines.peers.transport import ask_status
from consilience.errors import NetworkError
from consilience.plans import Plan
from consilience.runs.files import disk_errors, read_json, write_json, write_text

_POLL_SECONDS = 0.5
Show = Callable[[list[dict[str, Any]]], None]


def make_network(
    plan: Plan, out: Path, endpoints: Sequence[str] | None = None, *, insecure: bool = False, **options: Any
) -> list[Path]:
    """Write a network's files; returns the nodes' files.

    Args:
        plan: what the network samples.
        out: a new directory.
        endpoints: `host:port` of each agent; by default free ports of this machine.
        insecure: without TLS, on loopback only.
        options: other entries of every node's file.
    """
    if out.exists() and any(out.iterdir()):
        raise NetworkError(f"{out} is not empty: choose a new directory for the network")
    if plan.problem is None:
        raise NetworkError('the plan names no problem: add `problem = "gmm"` or `problem = "module:attribute"` to it')
    places = list(endpoints) if endpoints else _free_endpoints(plan.num_agents)
    if len(places) != plan.num_agents:
        raise NetworkError(f"the plan has {plan.num_agents} agents, but {len(places)} endpoints are given: one each")
    files = []
    with disk_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        write_text(out / "plan.toml", plan.to_toml())
        if not insecure:
            _make_certificates(out / "certificates", places)
        for agent, place in enumerate(places):
            settings = NodeSettings(
                agent=agent,
                plan=Path("plan.toml"),
                run=Path("runs") / f"agent-{agent}",
                listen=place,
                neighbours={number: places[number] for number in neighbours_of(plan, agent)},
                tls=None if insecure else _tls(Path("certificates"), f"agent-{agent}"),
                **options,
            )
            settings.require_fitting(plan)
            files.append(out / f"agent-{agent}.toml")
            write_text(files[-1], settings.to_toml())
    return files


def start_network(network: Path, show: Show, *, restart: bool = False) -> int:
    """Run all nodes of a network on this machine until they are done; returns how many failed.

    Args:
        network: its directory.
        show: called now and then with what each node says of itself.
        restart: start a node again that was killed.
    """
    files = _node_files(network)
    (network / "logs").mkdir(exist_ok=True)
    (network / "runs").mkdir(exist_ok=True)
    nodes = {path: _start(network, path) for path in files}
    codes: dict[Path, int] = {}
    try:
        while len(codes) < len(nodes):
            time.sleep(_POLL_SECONDS)
            for path, process in nodes.items():
                code = process.poll()
                if code is None or path in codes:
                    continue
                if code < 0 and restart:
                    nodes[path] = _start(network, path)
                else:
                    codes[path] = code
            _note(network, nodes)
            if any(codes.values()) and not restart:
                break
            show(network_status(network))
    finally:
        for process in nodes.values():
            if process.poll() is None:
                process.terminate()
        for process in nodes.values():
            process.wait(30)
        (network / "processes.json").unlink(missing_ok=True)
    return sum(code != 0 for code in codes.values()) + len(nodes) - len(codes)


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
        answer = ask_status(settings, operator, seconds)
        found.append({"agent": settings.agent, "here": answer is not None, **(answer or {})})
    return found


def node_logs(network: Path, agent: int, lines: int = 3) -> str:
    """The last lines that a node said."""
    place = network / "logs" / f"agent-{agent}.log"
    return "\n".join(place.read_text(errors="replace").splitlines()[-lines:]) if place.exists() else ""


def _make_certificates(directory: Path, places: Sequence[str]) -> None:
    directory.mkdir(mode=0o700)
    authority = make_authority(directory, "Consilience network")
    for agent, place in enumerate(places):
        issue(authority, directory, f"agent-{agent}", [split_endpoint(place)[0]])
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
        command = [sys.executable, "-m", "consilience.cli.main", "node", str(path)]
        return subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)


def _note(network: Path, nodes: dict[Path, subprocess.Popen[bytes]]) -> None:
    write_json(network / "processes.json", {path.stem: process.pid for path, process in nodes.items()})


def dump(status: list[dict[str, Any]]) -> str:
    """A network's status as JSON."""
    return json.dumps(status, indent=2)
