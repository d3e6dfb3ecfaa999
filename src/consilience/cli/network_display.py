"""What the terminal shows of networks and meshes: a live table of nodes, and what a mesh would cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.table import Table

from consilience.cli.display import wide_console
from consilience.plans import Plan


@contextmanager
def network_table(quiet: bool = False) -> Iterator[Callable[[list[dict[str, Any]]], None]]:
    """A live table of a network's nodes on a terminal; the function takes what they say of themselves."""
    from rich.live import Live

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda _: None
        return
    rates = Rates()
    with Live(console=console, refresh_per_second=4) as live:
        yield lambda nodes: live.update(_network(nodes, rates.of(nodes, time.monotonic())))


class Rates:
    """How many rounds a second each node makes, from what it said before and says now.

    >>> rates = Rates()
    >>> rates.of([{"agent": 2, "here": True, "round": 100}], 10.0)
    {}
    >>> rates.of([{"agent": 2, "here": True, "round": 700}, {"agent": 3, "here": False}], 12.0)
    {2: 300.0}
    """

    def __init__(self) -> None:
        self._before: dict[int, tuple[int, float]] = {}

    def of(self, nodes: Sequence[Mapping[str, Any]], now: float) -> dict[int, float]:
        """The rates by agent; of one that is heard for the first time there is none."""
        here = {one["agent"]: one["round"] for one in nodes if one["here"]}
        known = {agent: self._before[agent] for agent in here if agent in self._before}
        self._before = {agent: (round_, now) for agent, round_ in here.items()}
        return {agent: (here[agent] - round_) / (now - then) for agent, (round_, then) in known.items() if now > then}


def print_network(nodes: Sequence[Mapping[str, Any]]) -> None:
    """A table of a network's nodes."""
    wide_console().print(_network(nodes))


def _network(nodes: Sequence[Mapping[str, Any]], rates: Mapping[int, float] | None = None) -> Table:
    in_unison = any("warming_up" in one for one in nodes)
    table = Table(box=None, padding=(0, 2), header_style="bold")
    rated = [] if rates is None else ["moves/s" if in_unison else "rounds/s"]
    place, last = (["", "move", "at most"], "masked") if in_unison else (["round", "of"], "distance")
    known = [*place, *rated, "checkpoint", last, "neighbours", "rejected"]
    for title in ["agent", *(known if any(one["here"] for one in nodes) else ["state"])]:
        table.add_column(title, justify="left" if title in ("", "neighbours", "state") else "right")
    for one in nodes:
        if not one["here"]:
            table.add_row(str(one["agent"]), f"[dim]{_ENDED.get(one.get('ended', ''), 'not here')}[/]")
            continue
        neighbours = " ".join(f"{number}{'✓' if up else '✗'}" for number, up in one["neighbours"].items())
        rate = [f"{rates[one['agent']]:,.0f}" if one["agent"] in rates else "–"] if rates is not None else []
        done = _of_replica(one, rate, len(nodes)) if in_unison else _of_walker(one, rate)
        table.add_row(str(one["agent"]), *done, neighbours, str(one["messages"]["rejected"]))
    return table


_ENDED = {"complete": "done", "interrupted": "stopped", "failed": "failed"}
"""How a node that does not answer ended, by the status of its run; of one that is running nobody knows."""


def _of_replica(one: Mapping[str, Any], rate: Sequence[str], num_agents: int) -> list[str]:
    """Where a node in unison is, and whose posterior it samples if not everybody's: moves count the warm-up's too."""
    state = "done" if one["done"] else "warming up" if one["warming_up"] else "sampling"
    present = one.get("present", range(num_agents))
    if len(present) < num_agents:
        state += f" for agent{'s' if len(present) > 1 else ''} {', '.join(map(str, present))} only"
    done = [f"{one['round']:,}", f"{one['num_rounds']:,}", *rate, f"{one['durable']:,}"]
    return [state, *done, "yes" if one["masked"] else "no"]


def _of_walker(one: Mapping[str, Any], rate: Sequence[str]) -> list[str]:
    """Where a node is that walks a chain of its own, and how far from its neighbours."""
    apart = one["distance_to_neighbours"]
    distance = "–" if apart is None else f"{apart:.3g}"
    return [f"{one['round']:,}", f"{one['num_rounds']:,}", *rate, f"{one['durable']:,}", distance]


def print_costs(plan: Plan, costs: Mapping[str, Any], rates: Mapping[str, float], repeated: bool) -> None:
    """What a mesh would cost, by device."""
    table = Table("", "", box=None, show_header=False, padding=(0, 2))
    axes = " × ".join(f"{costs[f'devices_along_{name}']} along {name}" for name in ("chains", "agents", "model"))
    fewest, most = costs["fewest_agents_per_device"], costs["agents_per_device"]
    rows = {
        "devices": f"{costs['devices']} ({axes})",
        "agents per device": f"{most:,}" if fewest == most else f"{fewest:,} to {most:,}",
        "edges cut": f"{costs['edges_cut']:,} of {plan.graph.num_edges:,} ({plan.graph.name})",
        "sent per step and device": f"{costs['bytes_sent_per_step']:,} bytes, of which "
        f"{costs['bytes_permuted_per_step']:,} in {costs['rounds']} permutations",
        "memory per device": f"{costs['memory_bytes'] / 2**20:,.1f} MiB (state: {costs['state_bytes']:,} bytes)",
        "work per step and device": f"{costs['flops_per_step']:,.0f} operations, "
        f"{costs['memory_traffic_per_step'] / 1e6:,.2f} MB to and from memory",
        "time per step": f"{1e6 * costs['compute_seconds']:,.1f} µs of work (memory "
        f"{rates['memory_bandwidth'] / 1e9:g} GB/s), "
        f"{1e6 * costs['network_seconds']:,.1f} µs of network ({rates['bandwidth'] / 1e9:g} GB/s, "
        f"{1e6 * rates['latency']:g} µs)",
        "expected speed-up": f"{costs['speed_up']:.2f} times one device, of {costs['devices']}",
    }
    for name, text in rows.items():
        table.add_row(name, text)
    console = wide_console()
    console.print(table, highlight=False)
    console.print(
        f"\nTimes and the speed-up assume {rates['bandwidth'] / 1e9:g} GB/s and {1e6 * rates['latency']:g} µs "
        f"between devices, and {rates['memory_bandwidth'] / 1e9:g} GB/s to memory; nothing was measured. Give your "
        "network's own with --bandwidth and --latency.",
        highlight=False,
    )
    if costs["work_is_more"]:
        console.print(
            "\nThe compiler counts a loop over agents or rows once: work and its time are more than that, and the "
            "speed-up is nearer to the number of devices."
        )
    if repeated:
        console.print("\nThe experiment has too few data for so many agents: those of its own network were repeated.")
