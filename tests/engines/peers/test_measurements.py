"""A node's measurements as Prometheus reads them, on loopback only."""

import socket
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

import consilience as cs
from consilience.deployment.networks import make_network
from consilience.deployment.nodes import own_problem
from consilience.engines.peers.measurements import PHASES, Stopwatch, served
from consilience.engines.peers.node import Node
from consilience.engines.peers.settings import NodeSettings
from consilience.errors import NetworkError

PLAN = cs.Plan(problem="gmm", graph=cs.graphs.ring(3), sampler=cs.dula(step_size=1e-3, consensus=0.2), num_steps=20)


@pytest.fixture
def node(tmp_path):
    """A node that is not connected to anybody."""
    files = make_network(PLAN, tmp_path / "network", insecure=True)
    return Node(own_problem(PLAN, NodeSettings.load(files[1])), PLAN, NodeSettings.load(files[1]))


def free_place():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def read(place):
    """All measurements of a page, by name and labels."""
    with urllib.request.urlopen(f"http://{place}/metrics", timeout=5) as page:
        text = page.read().decode()
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_the_page_says_how_the_node_is(node):
    messages = {"sent": 4, "received": 7, "rejected": 1, "asked_for": 2}
    node.wire.counts.update({**messages, "bytes_sent": 800, "bytes_received": 1400})
    node.rounds.round, node.rounds.durable, node.distance = 4, 2, 0.25
    node.members.here.add(2)
    node.phases.end("wait")
    place = free_place()
    with served(place, node):
        found = read(place)
    assert found["consilience_agent",] == 1
    assert found["consilience_round",] == 4
    assert found["consilience_durable_round",] == 2
    assert found["consilience_rounds_planned",] == 20
    assert {kind: found["consilience_messages_total", kind] for kind in messages} == messages
    assert found["consilience_message_bytes_total", "received"] == 1400
    assert [found["consilience_neighbour_up", number] for number in ("0", "2")] == [0, 1]
    assert found["consilience_distance_to_neighbours",] == 0.25
    assert found["consilience_phase_seconds_total", "wait"] > 0
    assert all(("consilience_phase_seconds_total", phase) in found for phase in PHASES)
    with pytest.raises(OSError, match="refused"):
        read(place)


def test_without_a_place_nothing_is_served(node):
    with served(None, node):
        pass


def test_a_taken_port_is_told(node):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(NetworkError, match="choose another port under `metrics`"), served(place, node):
            pass


@pytest.mark.parametrize("place", ["0.0.0.0:9400", "192.0.2.1:9400", "9400"])
def test_measurements_are_refused_off_loopback(node, place):
    settings = node.settings.model_copy(update={"metrics": place})
    with pytest.raises(NetworkError, match=r"loopback|no endpoint"):
        settings.require_fitting(PLAN)


def test_phases_add_up_to_the_time_that_passed():
    clock = Stopwatch()
    clock.begin()
    for phase in PHASES:
        clock.end(phase)
    total = sum(clock.seconds.values())
    clock.end("wait")
    assert sum(clock.seconds.values()) >= total > 0
