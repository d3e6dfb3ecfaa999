"""`python -m benchmarks [name ...]`: run all comparisons, or the named ones, and print their table."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version

from benchmarks import (
    a9a,
    against_others,
    by_hand,
    cold,
    gossip,
    growth,
    kinetic_by_hand,
    lenet,
    memory,
    mesh,
    page,
    peers,
    scaling,
    skewed,
    steps,
    storing,
    unison,
    unison_draws,
    unison_peers,
)
from benchmarks.table import Line, Skipped, Told, header

COMPARISONS: dict[str, Callable[[], Iterator[Line | Skipped | Told]]] = {
    "mixture": against_others.mixture_of_five,
    "centralized": against_others.centralized,
    "a9a": a9a.a9a,
    "a9a-rows": a9a.dense_rows,
    "lenet": lenet.lenet,
    "models": by_hand.models,
    "chains": scaling.chains,
    "agents": scaling.agents,
    "growth": growth.growth,
    "mesh": mesh.mesh,
    "cold": cold.cold,
    "storing": storing.storing,
    "memory": memory.memory,
    "page": page.watched,
    "peers": peers.rounds,
    "peers-lenet": peers.lenet_rounds,
    "peers-checkpoints": peers.checkpoints,
    "peers-memory": peers.growth,
    "gossip": gossip.rounds,
    "gossip-grid": gossip.grid,
    "gossip-by-label": skewed.errors,
    "gossip-step": steps.steps,
    "gossip-models": kinetic_by_hand.steps,
    "unison": unison.leapfrogs,
    "unison-gradients": unison_draws.gradients,
    "unison-rounds": unison_draws.rounds,
    "unison-peers": unison_peers.evaluations,
}


def main(names: list[str]) -> int:
    """Run the named comparisons, all without a name; misses are told, not raised."""
    unknown = [name for name in names if name not in COMPARISONS]
    if unknown:
        print(f"unknown benchmark {', '.join(unknown)}: choose from {', '.join(COMPARISONS)}", file=sys.stderr)
        return 2
    began = time.perf_counter()
    print(f"{platform.machine()}, {os.cpu_count()} cores, JAX {version('jax')}, {_load()}")
    print("Contestants take turns, and the best of each counts.\n")
    print(header(), flush=True)
    for name in names or COMPARISONS:
        for line in COMPARISONS[name]():
            print(line, flush=True)
    print(f"\nTook {time.perf_counter() - began:.0f} s, {_load()}. benchmarks/notes.md says what each number means.")
    return 0


def _load() -> str:
    """How busy the machine is, which tells how far to trust the numbers."""
    return f"load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "load unknown"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
