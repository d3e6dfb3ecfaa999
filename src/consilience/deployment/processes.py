"""A network whose nodes all run on this machine: start, watch, ask, stop."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from consilience.deployment.networks import node_files, tls_of
from consilience.engines.peers.certificates import require_usable
from consilience.engines.peers.settings import TLS, NodeSettings
from consilience.engines.peers.zenoh_transport import OPERATOR, RELAY, ask_status
from consilience.errors import ConsilienceError, Interrupted, NetworkError
from consilience.runs.directory import RunDirectory
from consilience.runs.files import read_json, write_json
from consilience.runs.signals import stopped_by_signals

_POLL_SECONDS = 0.5
_STOP_SECONDS = 30.0
_INTERRUPTED = 130
log = logging.getLogger("consilience")
Show = Callable[[list[dict[str, Any]]], None]


def start_network(network: Path, show: Show, *, restart: bool = False) -> None:
    """Run all nodes of a network on this machine until they are done.

    If one fails the others are stopped, unless the network continues without lost agents.

    Args:
        network: its directory.
        show: called now and then with what each node says of itself.
        restart: start a node again that was killed.
    """
    files, stop = node_files(network), threading.Event()
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
                failed = any(
                    code for path, code in codes.items() if path in relays or not continues_after_loss(network)
                )
                if failed or all(path in codes for path in nodes):
                    break
                show(network_status(network))
            show(network_status(network))  # how they ended
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
    return Interrupted(
        f"the nodes were stopped and left checkpoints; `consilience network up {network}` resumes them"
    )


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
    """What each node says of itself, asked over the network; of one that does not answer, what its run says, if here.

    Args:
        network: its directory; or a node's file, which asks that node alone, by its own certificate. A site that has
            not the operator's certificate asks its own node so, too.
        seconds: how long to wait for an answer.
    """
    found = []
    for path in [network] if network.is_file() else node_files(network):
        settings = NodeSettings.load(path)
        answer = ask_status(settings, _asking(network, settings), seconds)
        known = {} if answer is not None else _left_behind(settings)
        found.append({"agent": settings.agent, "here": answer is not None, **known, **(answer or {})})
    return found


def _asking(network: Path, settings: NodeSettings) -> TLS | None:
    """By which certificate a node is asked: the operator's where that is, otherwise its own."""
    if settings.tls is None:
        return None
    operator = tls_of(network.resolve() / "certificates", OPERATOR)
    who, name = (operator, OPERATOR) if operator.certificate.exists() else (settings.tls, f"agent-{settings.agent}")
    require_usable(who.certificate, who.key, who.authority, name)
    return who


def _left_behind(settings: NodeSettings) -> dict[str, Any]:
    """How a node that does not answer ended, from its run's directory, where that is on this machine."""
    if not (settings.run / "status.json").is_file():
        return {}
    return {"ended": RunDirectory(settings.run).status["status"]}


def continues_after_loss(network: Path) -> bool:
    """Whether its nodes continue without lost agents; some may then be missing at the end."""
    return NodeSettings.load(node_files(network)[0]).on_loss == "continue"


def _require_done(network: Path, codes: dict[Path, int]) -> None:
    """Say which node ended before its time, and why as far as it told; some may, if the others continue."""
    if continues_after_loss(network) and 0 in codes.values():
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


def _start(network: Path, path: Path) -> subprocess.Popen[bytes]:
    with (network / "logs" / f"{path.stem}.log").open("ab") as log:
        job = ["network", "relay"] if path.stem == RELAY else ["node"]
        command = [sys.executable, "-m", "consilience.cli.main", *job, str(path)]
        # in a session of its own: Ctrl-C reaches only `up`, which then stops the nodes politely
        return subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)


def _note(network: Path, nodes: dict[Path, subprocess.Popen[bytes]]) -> None:
    write_json(network / "processes.json", {path.stem: process.pid for path, process in nodes.items()})
