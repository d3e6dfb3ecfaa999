"""Networks of nodes, each agent a process: the rate of rounds, and what the node adds to what cannot be avoided.

What cannot be avoided is measured by processes that do only that: `exchange` sends and awaits as many bytes as a
node, over the same connections, and makes the compiled step; `compute` makes the step alone. A network's time for a
round is that of the node that joined last, so that waiting for others to start does not count.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.setting import NUM_AGENTS
from benchmarks.table import Line
from benchmarks.timing import best_of_each
from consilience import Plan, Problem, dula, graphs
from consilience.models import classifier, lenet5

if TYPE_CHECKING:
    from consilience.engines.peers.node import Node

_ROUNDS = 3_000
_LENET_ROUNDS = 30
_LENET_BATCH = 256
_CHECKPOINT_ROUNDS = 12_000
_MEMORY_ROUNDS = 100_000
_MEMORY_LIMIT = 20.0
_REPETITIONS = 2
_SETTLE_SECONDS = 2.0
_PATIENCE_SECONDS = 60.0
_LONGEST_SECONDS = 600.0


def rounds() -> Iterator[Line]:
    """The mixture on a ring of five: its rate, and what the node adds."""
    plan = _mixture(_ROUNDS)
    best = best_of_each(
        {"nodes": lambda: network(plan), "exchange": lambda: side_by_side(plan, "exchange")}, _REPETITIONS
    )
    yield Line("mixture, 5 nodes: one round / a 1,000th of a second", best["nodes"], 1 / 1000, 1)
    yield Line("mixture, 5 nodes: one round / bytes and step alone", best["nodes"], best["exchange"], 1.5)


def lenet_rounds() -> Iterator[Line]:
    """LeNet-5 in minibatches of 256 noise images: all that is not the step is at most 18 % of the step.

    There is a node for each core: with more of them a round would end when the last one has got a core.
    """
    num_agents = max(2, os.cpu_count() or 2)
    plan = Plan(
        problem="benchmarks.peers:lenet_shard", graph=graphs.path(num_agents), num_steps=_LENET_ROUNDS,
        sampler=dula(1e-6, 0.2), batch_size=_LENET_BATCH, store_every=_LENET_ROUNDS,
    )  # fmt: skip
    best = best_of_each(
        {"nodes": lambda: network(plan), "compute": lambda: side_by_side(plan, "compute")}, _REPETITIONS
    )
    yield Line(
        f"LeNet-5, {num_agents} nodes: one round / the step alone",
        best["nodes"],
        best["compute"],
        1.18,
    )


def checkpoints() -> Iterator[Line]:
    """The mixture with checkpoints at the default interval, and without."""
    plan = _mixture(_CHECKPOINT_ROUNDS)
    best = best_of_each({"with": lambda: network(plan), "none": lambda: network(plan, checkpoint_seconds=1e9)}, 2)
    yield Line("mixture, 5 nodes: checkpoints every 10 s / none", best["with"], best["none"], 1.05)


def growth() -> Iterator[Line]:
    """How much a node of two grows from its 50,000th round to its 100,000th; what follows sampling does not count.

    Before that it does grow: nodes keep messages for two checkpoints.
    """
    plan = _mixture(_MEMORY_ROUNDS, num_agents=2)
    sizes: list[float] = []

    def watch(node: subprocess.Popen[bytes], status: dict[str, Any]) -> None:
        if status["status"] == "running" and status["step"] > 0.5 * _MEMORY_ROUNDS:
            sizes.append(_resident(node))

    network(plan, watch)
    yield Line(
        "memory: a node's growth over 50,000 rounds / limit", max(sizes) - sizes[0], _MEMORY_LIMIT, 1, unit="MB"
    )


def network(plan: Plan, watch=None, **options: float) -> float:
    """Seconds of a round of a network whose nodes run here; `watch` is called with a process and its run's status."""
    from consilience.deployment.networks import make_network, node_runs
    from consilience.runs.files import read_json

    with tempfile.TemporaryDirectory() as directory:
        files = make_network(plan, Path(directory) / "network", **options)
        started = [_start(["-m", "consilience.cli.main", "node", str(path)], path) for path in files]
        runs = node_runs(Path(directory) / "network")
        while any(process.poll() is None for process in started):
            time.sleep(0.5)
            if watch is not None and (runs[0] / "status.json").exists():
                watch(started[0], read_json(runs[0] / "status.json"))
        _require_done(started, files)
        return min(read_json(run / "status.json")["timing"]["sampling_seconds"] for run in runs) / plan.num_steps


def side_by_side(plan: Plan, part: str) -> float:
    """Seconds of a round when as many processes as agents do only a part of what nodes do."""
    from consilience.deployment.networks import make_network

    with tempfile.TemporaryDirectory() as directory:
        files = make_network(plan, Path(directory) / "network")
        started = [_start(["-m", __name__, part, str(path)], path) for path in files]
        _require_done(started, files)
        return min(json.loads(path.with_suffix(".out").read_text()) for path in files) / plan.num_steps


def lenet_shard(num_agents: int, agent: int) -> Problem:
    """Noise in place of images: the message is what counts."""
    rng = np.random.default_rng(agent)
    images = rng.random((2 * _LENET_BATCH, 32, 32), np.float32)
    return classifier(lenet5(), [(images, rng.integers(0, 10, len(images)))])


def _mixture(num_steps: int, num_agents: int = NUM_AGENTS) -> Plan:
    return Plan(
        problem="gmm", graph=graphs.ring(num_agents), num_steps=num_steps, store_every=10,
        sampler=dula(step_size=1e-3, consensus=0.2),
    )  # fmt: skip


def _start(words: Sequence[str], file: Path) -> subprocess.Popen[bytes]:
    """A process whose words go to files beside the node's own, where nobody has to read them while it runs.

    Its compiled programs are kept for the next one: LeNet-5 takes five of them a while.
    """
    kept = {"JAX_COMPILATION_CACHE_DIR": str(Path(tempfile.gettempdir()) / "consilience-benchmarks")}
    with file.with_suffix(".out").open("wb") as out, file.with_suffix(".err").open("wb") as error:
        return subprocess.Popen([sys.executable, *words], stdout=out, stderr=error, env={**os.environ, **kept})


def _require_done(started: Sequence[subprocess.Popen[bytes]], files: Sequence[Path]) -> None:
    for process, file in zip(started, files, strict=True):
        if process.wait(_LONGEST_SECONDS):
            raise RuntimeError(f"a process failed: {file.with_suffix('.err').read_text()}")


def _resident(process: subprocess.Popen[bytes]) -> float:
    """Megabytes of a process that are in memory."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("VmRSS")), 0.0)


def _part(part: str, path: str) -> float:
    """Seconds for all rounds of one agent, doing only a part of what a node does."""
    import jax

    from consilience.deployment.nodes import own_problem
    from consilience.engines.peers.node import Node
    from consilience.engines.peers.settings import NodeSettings

    jax.config.update("jax_cpu_enable_async_dispatch", False)  # as in a node's process
    settings = NodeSettings.load(path)
    plan = Plan.load(settings.plan)
    node = Node(own_problem(plan, settings), plan, settings)
    node.compile()
    step, state = node.step, node.initial_state().sampler
    others = tuple(np.zeros((len(step.weights), *shape), dtype) for shape, dtype in step.message_shapes)
    exchange = _Exchange(node) if part == "exchange" else None
    began = time.perf_counter()
    for k in range(plan.num_steps):
        message = step.message(state)
        if exchange is not None:
            exchange.send(message)
        prepared = jax.block_until_ready(step.prepare(state, np.int32(k)))
        if exchange is not None:
            exchange.receive()
        state = jax.block_until_ready(step.finish(state, prepared, message, others))
    seconds = time.perf_counter() - began
    if exchange is not None:
        time.sleep(_SETTLE_SECONDS)  # neighbours may still wait for the last bytes
        exchange.transport.close()
    return seconds


class _Exchange:
    """As many bytes as a node's message, to the neighbours and from them; nothing is encoded, checked or kept."""

    def __init__(self, node: Node) -> None:
        from consilience.engines.peers.messages import Message
        from consilience.engines.peers.transport import Handlers
        from consilience.engines.peers.zenoh_transport import ZenohTransport

        here: set[int] = set()
        neighbours, settings = node.rounds.neighbours, node.settings
        self.arrived: dict[int, queue.SimpleQueue] = {number: queue.SimpleQueue() for number in neighbours}
        self.transport = ZenohTransport(
            settings,
            Handlers(
                receive=lambda sender, content: self.arrived[sender].put(content),
                answer=lambda what, content: None,
                change=lambda number, up: here.add(number) if up else here.discard(number),
                notice=lambda number, content: None,
                longest=2**24,
            ),
        )
        nothing = tuple(np.zeros(shape, dtype) for shape, dtype in node.step.message_shapes)
        empty = node.wire.codec.encode(Message(settings.agent, 0, 0, nothing))
        self.header = empty[: len(empty) - sum(one.nbytes for one in nothing)]
        while len(here) < len(neighbours):
            time.sleep(0.05)
        time.sleep(_SETTLE_SECONDS)

    def send(self, values: tuple[np.ndarray, ...]) -> None:
        self.transport.publish(self.header + b"".join(one.tobytes() for one in values))

    def receive(self) -> None:
        for one in self.arrived.values():
            one.get(timeout=_PATIENCE_SECONDS)


if __name__ == "__main__":
    print(_part(*sys.argv[1:]))
