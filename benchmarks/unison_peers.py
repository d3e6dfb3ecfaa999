"""Nodes in unison, each a process: evaluations a second, what a node adds to what cannot be avoided, and masks.

Five nodes on a star, 4 chains, 20 weights. What cannot be avoided is measured by processes that do only that: they
send as many bytes up the tree and down again, over the same connections, and compute the gradient of their own rows.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks.peers import _require_done, _start
from benchmarks.table import Line
from benchmarks.timing import best_of_each
from benchmarks.unison import NUM_AGENTS, NUM_CHAINS, NUM_WEIGHTS, logistic, logistic_rows
from consilience import Plan, Problem, graphs, nuts

_ROWS, _WARMUP, _DRAWS = 200, 100, 150
_EXCHANGES, _SETTLE_SECONDS, _PATIENCE_SECONDS = 3_000, 2.0, 60.0


def evaluations() -> Iterator[Line]:
    """The rate of sums, and its parts."""
    best = best_of_each(
        {"plain": lambda: _network(False), "masked": lambda: _network(True), "bare": _bare}, repetitions=2
    )
    yield Line("NUTS, 5 nodes: an evaluation / a 600th of a second", best["plain"], 1 / 600, 1)
    yield Line("NUTS, 5 nodes: an evaluation / bytes and step alone", best["plain"], best["bare"], 1.5)
    yield Line("NUTS, 5 nodes: with masks / without", best["masked"], best["plain"], 1.2)


def silo(num_agents: int, agent: int) -> Problem:
    """One agent's rows."""
    return logistic([logistic_rows(_ROWS, seed=agent)])


def _plan(masked: bool) -> Plan:
    return Plan(
        problem="benchmarks.unison_peers:silo", graph=graphs.star(NUM_AGENTS), sampler=nuts(), masked=masked,
        num_chains=NUM_CHAINS, num_warmup=_WARMUP, num_draws=_DRAWS,
    )  # fmt: skip


def _network(masked: bool) -> float:
    """Seconds of an evaluation in a network whose nodes run here."""
    from consilience.deployment.networks import make_network, node_runs
    from consilience.runs.files import read_json

    with tempfile.TemporaryDirectory() as directory:
        files = make_network(_plan(masked), Path(directory) / "network")
        _require_done([_start(["-m", "consilience.cli.main", "node", str(path)], path) for path in files], files)
        runs = node_runs(Path(directory) / "network")
        seconds = min(read_json(run / "status.json")["timing"]["sampling_seconds"] for run in runs)
        return seconds / read_json(runs[0] / "summary.json")["evaluations"]


def _bare() -> float:
    """Seconds of an exchange and a step when processes do nothing else."""
    from consilience.deployment.networks import make_network

    with tempfile.TemporaryDirectory() as directory:
        files = make_network(_plan(False), Path(directory) / "network")
        started = [_start(["-m", __name__, str(path)], path) for path in files]
        _require_done(started, files)
        return min(json.loads(path.with_suffix(".out").read_text()) for path in files) / _EXCHANGES


def _exchanges(path: str) -> float:
    """Seconds for all exchanges of one agent; agent 0 is the star's centre."""
    from consilience.engines.peers.settings import NodeSettings
    from consilience.engines.peers.transport import Handlers
    from consilience.engines.peers.zenoh_transport import ZenohTransport

    jax.config.update("jax_cpu_enable_async_dispatch", False)  # as in a node's process
    os.environ.setdefault("PJRT_NPROC", "1")  # likewise
    settings = NodeSettings.load(path)
    arrived: dict[int, queue.SimpleQueue[bytes]] = {number: queue.SimpleQueue() for number in settings.neighbours}
    here: dict[int, threading.Event] = {number: threading.Event() for number in settings.neighbours}
    transport = ZenohTransport(
        settings,
        Handlers(
            receive=lambda sender, content: arrived[sender].put(content), answer=lambda what, content: None,
            change=lambda number, up: here[number].set() if up else None, notice=lambda number, content: None,
            longest=2**20,
        ),
    )  # fmt: skip
    try:
        gradients = _gradients(settings.agent)
        for one in here.values():
            one.wait(_PATIENCE_SECONDS)
        time.sleep(_SETTLE_SECONDS)
        content = bytes(8 * NUM_CHAINS * (NUM_WEIGHTS + 2) + 150)
        began = time.perf_counter()
        for _ in range(_EXCHANGES):
            gradients()
            if settings.agent:
                transport.send(0, content)
                arrived[0].get(timeout=_PATIENCE_SECONDS)
            else:
                for one in arrived.values():
                    one.get(timeout=_PATIENCE_SECONDS)
                for number in arrived:
                    transport.send(number, content)
        seconds = time.perf_counter() - began
        time.sleep(_SETTLE_SECONDS)  # others may still wait for the last bytes
        return seconds
    finally:
        transport.close()  # its threads keep a process alive


def _gradients(agent: int) -> Any:
    """One agent's potentials and gradients of all chains, compiled."""
    from consilience.kernel.gradients import network_potentials
    from consilience.kernel.parameters import Parameters
    from consilience.kernel.rows import Rows

    with jax.enable_x64(True):
        problem = silo(NUM_AGENTS, agent)
        rows = Rows(problem, _plan(False), np.float64)
        potentials = rows.evaluated(network_potentials(problem, Parameters.of(problem, np.float64)))
        at = jax.device_put(np.zeros((NUM_CHAINS, 1, NUM_WEIGHTS)))
        shards, *others = rows.arrays
        program = jax.jit(lambda w: potentials(w, rows.used(shards), *others, False)).lower(at).compile()
        return lambda: jax.block_until_ready(program(at))


if __name__ == "__main__":
    print(_exchanges(sys.argv[1]))
