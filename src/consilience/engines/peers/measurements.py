"""What a node measures of itself, for Prometheus: a page on loopback that is read when somebody asks for it.

Nothing is computed in a round but a few sums; the page is made from them and from the node's state.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from consilience.engines.peers.settings import split_endpoint
from consilience.errors import NetworkError

if TYPE_CHECKING:
    from consilience.engines.peers.node import Node
    from consilience.engines.peers.unison_node import UnisonNode

PHASES = ("publish", "gradient", "wait", "mix")
"""The parts of a round, in their order."""


class Stopwatch:
    """Seconds by phase; each phase ends when it is told so, and the next begins."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self._since = time.perf_counter()

    def begin(self) -> None:
        """Begin a round."""
        self._since = time.perf_counter()

    def end(self, phase: str) -> None:
        """Count the time since the last phase ended as this one's."""
        now = time.perf_counter()
        self.seconds[phase] += now - self._since
        self._since = now


class NodePage:
    """What Prometheus reads of a node."""

    def __init__(self, node: Node | UnisonNode) -> None:
        self._node = node

    def collect(self) -> Iterator[Any]:
        """The measurements as they are now."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        node, status = self._node, self._node.status()

        def counter(name: str, words: str, label: str, values: dict[str, float]) -> Any:
            family = CounterMetricFamily(f"consilience_{name}", words, labels=[label])
            for key, value in values.items():
                family.add_metric([key], value)
            return family

        yield GaugeMetricFamily("consilience_agent", "Which agent of the plan this node is.", node.settings.agent)
        yield GaugeMetricFamily("consilience_round", "Rounds that are complete.", status["round"])
        yield GaugeMetricFamily("consilience_rounds_planned", "Rounds of the plan.", node.plan.num_steps)
        yield GaugeMetricFamily("consilience_durable_round", "Up to where checkpoints reach.", status["durable"])
        seconds = node.phases.seconds
        if seconds:
            yield counter("phase_seconds", "Seconds spent in each part of rounds since the start.", "phase", seconds)
        counts = node.wire.all_counts()
        kinds = {kind: float(counts[kind]) for kind in ("sent", "received", "rejected", "asked_for")}
        words = "Messages since the start; those asked for had not come by themselves."
        yield counter("messages", words, "kind", kinds)
        sizes = {kind: float(counts[f"bytes_{kind}"]) for kind in ("sent", "received")}
        yield counter("message_bytes", "Bytes of messages since the start.", "kind", sizes)
        up = GaugeMetricFamily("consilience_neighbour_up", "Whether a neighbour is here.", labels=["neighbour"])
        for number in node.neighbours:
            up.add_metric([str(number)], float(number in node.members.here))
        yield up
        if "distance_to_neighbours" in status:
            yield GaugeMetricFamily(
                "consilience_distance_to_neighbours",
                "Squared distance to the neighbours, mean over chains.",
                node.distance,
            )


@contextlib.contextmanager
def served(place: str | None, node: Node | UnisonNode) -> Iterator[None]:
    """Serve a node's page at `host:port` while the context lasts; without a place, nothing."""
    if place is None:
        yield
        return
    from prometheus_client import CollectorRegistry, start_http_server

    registry = CollectorRegistry(auto_describe=False)
    registry.register(NodePage(node))
    host, port = split_endpoint(place)
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise NetworkError(
            f"the measurements cannot be served on {place} ({error.strerror}): choose another port under `metrics`"
        ) from None
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
