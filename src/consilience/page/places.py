"""What is watched: a run, a network, a node, or a directory of runs; found anew each time, since runs appear.

RUN/                 a run of any engine; one that nodes made has its network inside it
NETWORK/             made by `network init`: a run for each node, and one of all of them in the end
agent-0.toml         a node's file, at its own site: its own run, and what it says of itself
SERIES/              runs below it, of which one is chosen
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from consilience.engines.peers.settings import NodeSettings
from consilience.errors import InputError
from consilience.plans import Plan

_NETWORK, _WHOLE = "network", "report"


@dataclass(frozen=True)
class Place:
    """Where to read, and whom to ask.

    Attributes:
        path: what the user named, or the run that was chosen of several.
        plan: the plan's file.
        run: the run of the whole network, if it is there.
        nodes: by agent, the runs of nodes.
        network: the directory whose nodes can be asked.
        own: a node's own file, if only that node is watched.
        logs: by name, what nodes said.
        series: the directory of the series that the run belongs to.
    """

    path: Path
    plan: Path
    run: Path | None = None
    nodes: Mapping[int, Path] = field(default_factory=dict)
    network: Path | None = None
    own: Path | None = None
    logs: Mapping[str, Path] = field(default_factory=dict)
    series: Path | None = None


def require_watchable(path: Path) -> None:
    """Check that there is something to watch."""
    if places(path):
        return
    if not path.exists():
        raise InputError(f"{path} does not exist: give the directory of a run or of a network, or a node's file")
    raise InputError(
        f"{path} holds no run and no network: give the directory of a run (it has a plan.toml), of a network "
        "(agent-0.toml …), or a node's file"
    )


def places(path: Path) -> dict[str, Place]:
    """What can be watched at a path, by name; several if it holds a series of runs."""
    if path.is_file():
        return {path.stem: _of_node(path)} if path.suffix == ".toml" else {}
    found = _of_directory(path)
    if found is not None:
        return {path.resolve().name: found}
    below = {one.name: _of_directory(one) for one in sorted(path.glob("*/")) if not one.name.startswith(".")}
    return {name: replace(one, series=path) for name, one in below.items() if one is not None}


def _of_directory(path: Path) -> Place | None:
    inside = path / _NETWORK
    if (path / "plan.toml").is_file() and (path / "status.json").is_file():
        logs = _logs(inside) if inside.is_dir() else {}
        return Place(path, path / "plan.toml", run=path, logs=logs)
    for network in (path, inside):
        if (network / "plan.toml").is_file() and any(network.glob("agent-*.toml")):
            return _of_network(path, network)
    return None


def _of_network(path: Path, network: Path) -> Place:
    whole = network / _WHOLE
    nodes = {int(one.stem.removeprefix("agent-")): one for one in network.glob("agent-*.toml") if _numbered(one)}
    runs = {agent: NodeSettings.load(file).run for agent, file in sorted(nodes.items())}
    return Place(
        path, network / "plan.toml", run=whole if _is_newest(whole, runs) else None,
        nodes={agent: run for agent, run in runs.items() if (run / "plan.toml").is_file()},
        network=network, logs=_logs(network),
    )  # fmt: skip


def _is_newest(whole: Path, runs: Mapping[int, Path]) -> bool:
    """Whether the merged run is there and no node has sampled since."""
    summary = whole / "summary.json"
    if not summary.is_file():
        return False
    moment = summary.stat().st_mtime
    later = (run / "draws.zarr" / "zarr.json" for run in runs.values())
    return all(one.stat().st_mtime <= moment for one in later if one.is_file())


def _of_node(path: Path) -> Place:
    settings = NodeSettings.load(path)
    there = (settings.run / "plan.toml").is_file()
    log = path.resolve().parent / "logs" / f"agent-{settings.agent}.log"
    return Place(
        path, settings.run / "plan.toml" if there else settings.plan,
        nodes={settings.agent: settings.run} if there else {}, own=path,
        logs={f"agent {settings.agent}": log} if log.is_file() else {},
    )  # fmt: skip


def _logs(network: Path) -> dict[str, Path]:
    found = sorted((network / "logs").glob("*.log"), key=lambda one: (len(one.stem), one.stem))
    return {one.stem.replace("agent-", "agent "): one for one in found}


def _numbered(path: Path) -> bool:
    return path.stem.removeprefix("agent-").isdigit()


def plan_of(place: Place) -> Plan:
    """The plan that is followed there."""
    return Plan.load(place.plan)
