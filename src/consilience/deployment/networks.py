"""Networks of nodes as files: certificates, and a file for each node to be carried to its machine.

NETWORK/
  plan.toml
  agent-0.toml …            one for each node, to be carried to its machine with the three files it names
  relay.toml                for the relay, if there is one
  certificates/             the authority, and a certificate and a key for each agent and for the operator
  runs/agent-0/ …           where the nodes leave their runs
  logs/agent-0.log …        what nodes that `up` started say
  report/                   the run of the whole network, merged from those of the nodes
"""

from __future__ import annotations

import socket
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tomli_w

from consilience.engines.peers.certificates import issue, make_authority
from consilience.engines.peers.relay import RelaySettings
from consilience.engines.peers.settings import TLS, NodeSettings, neighbours_of, split_endpoint
from consilience.engines.peers.zenoh_transport import OPERATOR, RELAY
from consilience.errors import NetworkError
from consilience.plans import Plan
from consilience.runs.files import disk_errors, write_text


def make_network(
    plan: Plan,
    out: Path,
    endpoints: Sequence[str] | None = None,
    *,
    relay: str | None = None,
    insecure: bool = False,
    data: Sequence[Path] = (),
    **options: Any,
) -> list[Path]:
    """Write a network's files; returns the nodes' files.

    Args:
        plan: what the network samples.
        out: a new directory.
        endpoints: `host:port` of each agent; by default free ports of this machine.
        relay: `host:port` of a relay to which all nodes connect, in place of endpoints of their own.
        insecure: without TLS, on loopback only.
        data: for a study, each agent's file, if all are on this machine; else each node's file is to name its own.
        options: other entries of every node's file.
    """
    if out.exists() and any(out.iterdir()):
        raise NetworkError(f"{out} is not empty: choose a new directory for the network")
    if relay is not None and endpoints:
        raise NetworkError("nodes that connect to a relay have no endpoints of their own: give --relay or --endpoint")
    if plan.problem is not None and ":" in plan.problem:  # whoever makes the network has named it
        options = {"allow": [plan.problem.partition(":")[0]], **options}
    places = list(endpoints or []) or ([relay] * plan.num_agents if relay else _free_endpoints(plan.num_agents))
    if len(places) != plan.num_agents:
        raise NetworkError(f"the plan has {plan.num_agents} agents, but {len(places)} endpoints are given: one each")
    if data and len(data) != plan.num_agents:
        raise NetworkError(f"the plan has {plan.num_agents} agents, but {len(data)} data files are given: one each")
    files = []
    with disk_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        write_text(out / "plan.toml", plan.to_toml())
        if not insecure:
            _make_certificates(out / "certificates", places, relay)
        if relay is not None:
            tls = None if insecure else tls_of(Path("certificates"), RELAY)
            write_text(out / "relay.toml", RelaySettings(listen=relay, plan=Path("plan.toml"), tls=tls).to_toml())
        for agent, place in enumerate(places):
            settings = NodeSettings(
                agent=agent,
                plan=Path("plan.toml"),
                run=Path("runs") / f"agent-{agent}",
                listen=None if relay else place,
                relay=relay,
                neighbours={number: places[number] for number in neighbours_of(plan, agent)},
                tls=None if insecure else tls_of(Path("certificates"), f"agent-{agent}"),
                data=data[agent].resolve() if data else None,
                **options,
            )
            settings.require_fitting(plan)
            files.append(out / f"agent-{agent}.toml")
            write_text(files[-1], settings.to_toml())
    return files


def set_data(network: Path, data: Sequence[Path]) -> None:
    """Let the nodes' files name other data files."""
    files = node_files(network)
    if len(data) != len(files):
        raise NetworkError(f"the network has {len(files)} nodes, but {len(data)} data files are given: one each")
    for path, own in zip(files, data, strict=True):
        entries = tomllib.loads(path.read_text(encoding="utf-8"))
        write_text(path, tomli_w.dumps({**entries, "data": str(own.resolve())}))


def require_data(network: Path, run: Path) -> None:
    """Check that the data files are there that the nodes' files name, for a network that lives inside a run."""
    named = [NodeSettings.load(path).data for path in node_files(network)]
    missing = [str(path) for path in named if path is not None and not path.is_file()]
    if missing:
        raise NetworkError(
            f"the data of {run} was in {', '.join(missing)}, and no file is there now: give all of its files again, "
            f"in their order, with `consilience resume {run}{' --data FILE' * len(named)}`"
        )


def node_runs(network: Path) -> list[Path]:
    """The nodes' run directories, in the agents' order."""
    return [NodeSettings.load(path).run for path in node_files(network)]


def _make_certificates(directory: Path, places: Sequence[str], relay: str | None) -> None:
    directory.mkdir(mode=0o700)
    authority = make_authority(directory, "Consilience network")
    for agent, place in enumerate(places):
        issue(authority, directory, f"agent-{agent}", [] if relay else [split_endpoint(place)[0]])
    if relay:
        issue(authority, directory, RELAY, [split_endpoint(relay)[0]])
    issue(authority, directory, OPERATOR, [])


def tls_of(directory: Path, name: str) -> TLS:
    """The files of one member of a network."""
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


def node_files(network: Path) -> list[Path]:
    """The nodes' files, in the agents' order."""
    found = sorted(network.glob("agent-*.toml"), key=lambda path: int(path.stem.removeprefix("agent-")))
    if not found:
        raise NetworkError(f"{network} holds no network: make one with `consilience network init`")
    return found
