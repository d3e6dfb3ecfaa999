"""Families of graphs by name, and how a plan file's recipe becomes a graph."""

from __future__ import annotations

import difflib
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import combinations
from typing import Any, NoReturn

from consilience.errors import GraphError
from consilience.graphs.graph import Graph, from_edges, from_networkx, require_edges, require_size

_CONNECTION_TRIES = 100


def ring(num_agents: int) -> Graph:
    """Every agent has a neighbour on each side."""
    require_size(num_agents)
    closing = [(num_agents - 1, 0)] if num_agents > 2 else []
    return _named(from_edges(num_agents, [*_line(num_agents), *closing]), "ring", num_agents=num_agents)


def path(num_agents: int) -> Graph:
    """A line of agents."""
    require_size(num_agents)
    return _named(from_edges(num_agents, _line(num_agents)), "path", num_agents=num_agents)


def star(num_agents: int) -> Graph:
    """Agent 0 in the middle, all others talk to it alone."""
    require_size(num_agents)
    return _named(from_edges(num_agents, [(0, i) for i in range(1, num_agents)]), "star", num_agents=num_agents)


def complete(num_agents: int) -> Graph:
    """Everybody talks to everybody."""
    require_edges(require_size(num_agents) * (num_agents - 1) // 2)
    return _named(from_edges(num_agents, combinations(range(num_agents), 2)), "complete", num_agents=num_agents)


def grid(rows: int, columns: int) -> Graph:
    """A rectangle of agents, each with up to four neighbours."""
    return _generated("grid", "grid_2d_graph", rows=rows, columns=columns)


def torus(rows: int, columns: int) -> Graph:
    """A grid whose opposite sides are joined."""
    return _generated("torus", "grid_2d_graph", {"periodic": True}, rows=rows, columns=columns)


def barbell(num_agents: int) -> Graph:
    """Two complete halves joined by a bridge (over the agent left in the middle when the number is odd)."""
    require_size(num_agents)
    if num_agents < 4:
        return _named(path(num_agents), "barbell", num_agents=num_agents)
    import networkx

    half = num_agents // 2
    require_edges(half * half)
    bell = from_networkx(networkx.barbell_graph(half, num_agents - 2 * half))
    return _named(bell, "barbell", num_agents=num_agents)


def erdos_renyi(num_agents: int, probability: float | None = None, seed: int = 0) -> Graph:
    """Every pair is an edge with the same probability (default `2 ln n / n`); redrawn until connected."""
    if probability is None:
        probability = min(1.0, 2 * math.log(max(num_agents, 2)) / num_agents)
    return _random("erdos_renyi", "fast_gnp_random_graph", num_agents=num_agents, probability=probability, seed=seed)


def watts_strogatz(num_agents: int, neighbours: int = 4, rewiring: float = 0.2, seed: int = 0) -> Graph:
    """A ring of near neighbours with some edges rewired at random; redrawn until connected."""
    if neighbours >= num_agents:
        raise GraphError(
            f"watts_strogatz needs fewer neighbours than agents, got {neighbours} neighbours for {num_agents} "
            "agents: lower `neighbours` or use complete()"
        )
    return _random(
        "watts_strogatz",
        "watts_strogatz_graph",
        num_agents=num_agents,
        neighbours=neighbours,
        rewiring=rewiring,
        seed=seed,
    )


def random_geometric(num_agents: int, radius: float | None = None, seed: int = 0) -> Graph:
    """Agents at random in the unit square, neighbours within `radius` of each other; redrawn until connected.

    The default radius is `sqrt(2 ln n/(π n))`, twice the area at which such graphs become connected.
    """
    if radius is None:
        radius = math.sqrt(2 * math.log(max(num_agents, 2)) / (math.pi * num_agents))
    return _random("random_geometric", "random_geometric_graph", num_agents=num_agents, radius=radius, seed=seed)


FAMILIES: dict[str, Callable[..., Graph]] = {
    "ring": ring,
    "path": path,
    "star": star,
    "complete": complete,
    "grid": grid,
    "torus": torus,
    "barbell": barbell,
    "erdos_renyi": erdos_renyi,
    "watts_strogatz": watts_strogatz,
    "random_geometric": random_geometric,
    "edges": from_edges,
}


def named(kind: str, num_agents: int) -> Graph:
    """The graph of a family with so many agents; a grid or torus takes the most square shape.

    >>> named("grid", 12).recipe["rows"], named("erdos-renyi", 8).num_agents
    (3, 8)
    """
    kind = kind.replace("-", "_")
    if kind not in FAMILIES or kind == "edges":
        _refuse("graph", kind, set(FAMILIES) - {"edges"})
    require_size(num_agents)
    if kind in ("grid", "torus"):
        rows = next(r for r in range(math.isqrt(num_agents), 0, -1) if num_agents % r == 0)
        return FAMILIES[kind](rows, num_agents // rows)
    return FAMILIES[kind](num_agents)


def from_recipe(recipe: Mapping[str, Any]) -> Graph:
    """The graph that a plan file describes, for example `{"kind": "ring", "num_agents": 5}`."""
    arguments = dict(recipe)
    kind = arguments.pop("kind", None)
    if kind not in FAMILIES:
        _refuse("graph kind", kind, FAMILIES)
    weights = arguments.pop("weights", None) if kind != "edges" else None
    wanted = inspect.signature(FAMILIES[kind]).parameters
    missing = [name for name, one in wanted.items() if one.default is one.empty and name not in arguments]
    unknown = [name for name in arguments if name not in wanted]
    if missing or unknown:
        told = [f"entry {name!r} is missing" for name in missing] + [f"unknown entry {name!r}" for name in unknown]
        raise GraphError(f"graph {kind!r}: {'; '.join(told)}; it takes {', '.join(wanted)}")
    try:
        graph = FAMILIES[kind](**arguments)
    except TypeError as error:
        raise GraphError(f"graph {kind!r}: {str(error).split('() ')[-1]}") from None
    return graph.with_weights(weights) if weights is not None else graph


def _refuse(what: str, kind: Any, known: Iterable[str]) -> NoReturn:
    near = difflib.get_close_matches(str(kind), known, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"choose one of {', '.join(sorted(known))}"
    raise GraphError(f"unknown {what} {kind!r}: {hint}")


def _generated(kind: str, generator: str, options: Mapping[str, Any] | None = None, **sizes: int) -> Graph:
    for size in sizes.values():
        require_size(size)
    require_size(math.prod(sizes.values()))
    import networkx

    return _named(from_networkx(getattr(networkx, generator)(*sizes.values(), **(options or {}))), kind, **sizes)


def _line(num_agents: int) -> list[tuple[int, int]]:
    """The edges of a path through all agents."""
    return [(i, i + 1) for i in range(num_agents - 1)]


def _random(kind: str, generator: str, *, seed: int, **parameters: Any) -> Graph:
    require_size(parameters["num_agents"])
    import networkx

    for attempt in range(_CONNECTION_TRIES):
        sample = getattr(networkx, generator)(*parameters.values(), seed=seed + attempt * 1_000_003)
        if networkx.is_connected(sample):
            graph = from_edges(parameters["num_agents"], sample.edges)
            return _named(graph, kind, **parameters, seed=seed)
    raise GraphError(
        f"{_CONNECTION_TRIES} random graphs {kind}({parameters}) were all disconnected: ask for more edges"
    )


def _named(graph: Graph, kind: str, **parameters: Any) -> Graph:
    plain = {name: getattr(value, "item", lambda value=value: value)() for name, value in parameters.items()}
    return replace(graph, recipe={"kind": kind, **plain})
