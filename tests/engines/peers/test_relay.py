"""Nodes that only connect outwards: the draws are the same, and the relay lets nobody speak for another."""

import socket
import threading
import time

import pytest

import consilience as cs
from consilience.deployment.networks import make_network
from consilience.deployment.processes import network_status
from consilience.engines.peers.relay import RelaySettings, configuration, relaying
from consilience.engines.peers.settings import NodeSettings
from consilience.engines.peers.transport import Handlers
from consilience.engines.peers.zenoh_transport import ZenohTransport, ask_status
from consilience.engines.peers.zenoh_transport import configuration as node_configuration
from consilience.errors import NetworkError
from tests.deployment.test_merging import sensors
from tests.engines.peers.running import assert_same_draws, sample_by_peers

PLAN = cs.Plan(
    problem="tests.deployment.test_merging:sensors", graph=cs.graphs.ring(3), num_steps=40,
    sampler=cs.dula(step_size=1e-3, consensus=0.2),
)  # fmt: skip
RING = PLAN.replace(graph=cs.graphs.ring(4))


@pytest.fixture
def place():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


class Member:
    """One end of the network in a test, which notes what it hears."""

    def __init__(self, path):
        self.heard, self.here = [], set()
        self.transport = ZenohTransport(
            NodeSettings.load(path),
            Handlers(
                lambda sender, content: self.heard.append((sender, content)),
                lambda what, content: b'{"said": "here"}',
                lambda number, here: self.here.add(number) if here else self.here.discard(number),
                lambda number, content: self.heard.append((number, content)),
                10**6,
            ),
        )


def eventually(condition, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


@pytest.mark.slow(reason="a network through a relay")
def test_a_ring_through_a_relay_draws_what_simulate_draws(tmp_path, place):
    network = tmp_path / "network"
    with LateRelay(network):
        found, runs = sample_by_peers(PLAN, network, sensors(), relay=place)
    assert_same_draws(found, cs.sample(sensors(), PLAN, tmp_path / "whole"))
    assert all(run.summary["messages"]["rejected"] == 0 for run in runs)


class LateRelay:
    """A relay that begins when its file is there, which may be after the nodes."""

    def __init__(self, network):
        self.network, self.stop = network, threading.Event()
        self.thread = threading.Thread(target=self.run)

    def __enter__(self):
        self.thread.start()

    def run(self):
        assert eventually((self.network / "relay.toml").exists)
        with relaying(RelaySettings.load(self.network / "relay.toml")):
            self.stop.wait()

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()


@pytest.fixture
def members(tmp_path, place):
    """Four agents on a ring, connected to a relay."""
    files = make_network(RING, tmp_path / "network", relay=place)
    with relaying(RelaySettings.load(tmp_path / "network" / "relay.toml")):
        found = [Member(path) for path in files]
        try:
            yield found
        finally:
            for one in found:
                one.transport.close()


def test_nobody_speaks_for_another_or_hears_strangers(members, tmp_path):
    first, second, third, _ = members
    assert eventually(lambda: first.here == {1, 3})
    leaked = []
    spy = first.transport._session.declare_subscriber("consilience/agent/2/message", leaked.append)
    everything = first.transport._session.declare_subscriber("consilience/**", leaked.append)
    third.transport.publish(b"for 1 and 3 only")
    assert eventually(lambda: (2, b"for 1 and 3 only") in second.heard)
    second.transport._session.put("consilience/agent/3/message", b"forged")  # agent 3 is a neighbour of agent 0
    second.transport.publish(b"mine")
    assert eventually(lambda: (1, b"mine") in first.heard)
    assert b"forged" not in [content for _, content in first.heard]
    assert [str(sample.key_expr) for sample in leaked if "/2/" in str(sample.key_expr)] == []
    assert first.transport.ask(1, "status", 2.0) == b'{"said": "here"}'
    assert first.transport.ask(2, "status", 1.0) is None
    spy.undeclare()
    everything.undeclare()


def test_without_access_control_a_forged_name_would_be_heard(tmp_path, place):
    """The control: the same without certificates, and the forged message arrives."""
    files = make_network(RING, tmp_path / "network", relay=place, insecure=True)
    with relaying(RelaySettings.load(tmp_path / "network" / "relay.toml")):
        first, second = Member(files[0]), Member(files[1])
        assert eventually(lambda: 1 in first.here)
        second.transport._session.put("consilience/agent/3/message", b"forged")
        assert eventually(lambda: (3, b"forged") in first.heard)
        first.transport.close()
        second.transport.close()


def test_status_is_asked_through_the_relay(members, tmp_path):
    found = network_status(tmp_path / "network", 3.0)
    assert [(one["here"], one["said"]) for one in found] == [(True, "here")] * 4
    settings = NodeSettings.load(tmp_path / "network" / "agent-0.toml")
    stranger = NodeSettings.load(tmp_path / "network" / "agent-2.toml").tls
    assert ask_status(settings, stranger, 1.0) is None


def test_nodes_do_not_listen(tmp_path, place):
    files = make_network(RING, tmp_path / "network", relay=place)
    settings = NodeSettings.load(files[1])
    settings.require_fitting(RING)
    found = node_configuration(settings, 10**6)
    assert found["mode"] == "client"
    assert found["listen"]["endpoints"] == []
    assert found["connect"]["endpoints"] == [f"tls/{place}"]
    relay = RelaySettings.load(tmp_path / "network" / "relay.toml")
    made = configuration(relay, RING)
    assert made["access_control"]["default_permission"] == "deny"
    assert {one["id"] for one in made["access_control"]["subjects"]} == {f"agent-{i}" for i in range(4)} | {
        "operator"
    }


def test_what_does_not_fit_is_told(tmp_path, place):
    with pytest.raises(NetworkError, match="give --relay or --endpoint"):
        make_network(RING, tmp_path / "both", ["127.0.0.1:7001"] * 4, relay=place)
    with pytest.raises(NetworkError, match="not on loopback"):
        make_network(RING, tmp_path / "open", relay="192.0.2.1:7447", insecure=True)
    files = make_network(RING, tmp_path / "network", relay=place)
    settings = NodeSettings.load(files[0]).model_copy(update={"listen": "127.0.0.1:7001"})
    with pytest.raises(NetworkError, match="either an endpoint"):
        settings.require_fitting(RING)
    with pytest.raises(NetworkError, match="there is no file"):
        RelaySettings.load(tmp_path / "none.toml")
    relay = RelaySettings.load(tmp_path / "network" / "relay.toml")
    with (
        pytest.raises(NetworkError, match="not on loopback"),
        relaying(relay.model_copy(update={"tls": None, "listen": "192.0.2.1:1"})),
    ):
        pass
    host, port = place.split(":")
    with socket.socket() as taken:
        taken.bind((host, int(port)))
        taken.listen()
        with pytest.raises(NetworkError, match="can listen on"), relaying(relay):
            pass
