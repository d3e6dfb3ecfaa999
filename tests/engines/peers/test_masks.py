"""Masks hide every part, cancel in every sum, and are noticed where they do not."""

import stat
import threading
from dataclasses import replace

import networkx
import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

import consilience as cs
from consilience.engines.peers import certificates
from consilience.engines.peers.clock import SteadyClock
from consilience.engines.peers.mask_exchange import MARK, MaskExchange
from consilience.engines.peers.mask_keys import Registry, own_key, shared_secret
from consilience.engines.peers.masks import ALL_PARTNERS, LEAST_PARTNERS, Masks, partners
from consilience.engines.peers.memory import MemoryNetwork
from consilience.engines.peers.messages import Rejected, join
from consilience.engines.peers.participants import Participants
from consilience.engines.peers.settings import TLS
from consilience.engines.peers.sum_messages import Phase
from consilience.engines.peers.transport import Handlers
from consilience.errors import NetworkError, Stopped, SumError
from tests.engines.peers.test_sums import GRAPHS, alone, replicas  # noqa: F401 - a fixture


def masks_for(graph):
    """Masks of all agents, by keys of their own."""
    keys = [X25519PrivateKey.generate() for _ in range(graph.num_agents)]
    public = [key.public_key().public_bytes_raw() for key in keys]
    return {
        i: Masks(i, {j: shared_secret(keys[i], public[j], "run", i, j) for j in near})
        for i, near in enumerate(partners(graph))
    }


@pytest.mark.parametrize("algorithm", ["tree", "flood"])
@pytest.mark.parametrize("graph", GRAPHS)
def test_masks_change_no_bit_of_a_sum(replicas, graph, algorithm):  # noqa: F811
    network = replicas(GRAPHS[graph], algorithm=algorithm)
    network.masks = masks_for(GRAPHS[graph])
    for state in network.run():
        np.testing.assert_array_equal(state, alone(5))


def parts_of(network, agent):
    """The words of the parts that an agent sent for itself."""
    codec, found = network.sums[agent].lines.codec, []
    for sender, _, content in network.sent:
        if sender == agent:
            found += [one.words for one in codec.decode_all(content, agent) if one.phase in (Phase.PART, Phase.FLOOD)]
    return np.array(found)


def test_a_masked_part_is_uniform_and_not_the_plain_one(replicas):  # noqa: F811
    """The check words of plain parts are 0 and 1, those of masked ones anything."""
    graph = cs.graphs.path(5)
    plain, masked = replicas(graph), replicas(graph, num_draws=60)
    masked.masks = masks_for(graph)
    plain.run(), masked.run()
    assert (parts_of(plain, 0)[:, -2:] == [0, 1]).all()
    words = parts_of(masked, 0)
    assert len(np.unique(words)) == words.size
    bits = np.unpackbits(words.view(np.uint8))
    assert bits.size > 40_000
    assert abs(bits.mean() - 0.5) < 5 * 0.5 / np.sqrt(bits.size)  # five sd: a false alarm in 1.7 million runs
    assert abs(np.unpackbits(parts_of(plain, 0)[:, -2:].copy().view(np.uint8)).mean() - 0.5) > 0.4  # the control


@pytest.mark.parametrize("algorithm", ["tree", "flood"])
def test_masks_that_do_not_cancel_are_noticed_by_all(replicas, algorithm):  # noqa: F811
    graph = cs.graphs.ring(5)
    network = replicas(graph, algorithm=algorithm)
    network.masks = masks_for(graph)
    network.masks[2]._secrets[4] = bytes(32)
    for agent in range(5):
        network.start(agent)
    for agent in range(5):
        network.clock.run_until(lambda agent=agent: network.turns[agent].ended, "an error")
        assert isinstance(network.turns[agent].error, SumError)
        assert "masks do not cancel" in str(network.turns[agent].error)


def test_partners_are_symmetric_connected_and_enough():
    """Also without any one of them: otherwise that one could unmask the sum of a group, which hides from it alone."""
    for graph in (cs.graphs.ring(50), cs.graphs.star(40), cs.graphs.path(21), cs.graphs.barbell(31)):
        found = partners(graph)
        assert all(i in found[j] for i in range(graph.num_agents) for j in found[i])
        assert min(map(len, found)) >= LEAST_PARTNERS
        assert networkx.is_biconnected(networkx.Graph([(i, j) for i, near in enumerate(found) for j in near]))
    assert not networkx.is_biconnected(networkx.Graph(graph.edges.tolist())), "the control: neighbours alone"
    assert partners(cs.graphs.path(ALL_PARTNERS))[0] == tuple(range(1, ALL_PARTNERS))


@pytest.mark.parametrize("num_agents", [1, 2])
def test_masks_are_refused_where_they_hide_nothing(num_agents):
    with pytest.raises(NetworkError, match=r"masks hide nothing between .* let a third agent take part"):
        partners(cs.graphs.path(num_agents))


def test_masks_of_different_labels_differ():
    mask = Masks(0, {1: b"k" * 32})
    found = np.concatenate([mask.of(epoch, number, 50) for epoch in (0, 1) for number in (0, 1, 2**40, 2**62)])
    assert len(np.unique(found)) == found.size
    np.testing.assert_array_equal(mask.of(1, 5, 3), mask.of(1, 5, 50)[:3])


def test_a_key_is_made_once_and_only_its_owner_reads_it(tmp_path):
    path = tmp_path / "mask.key"
    first = own_key(path).private_bytes_raw()
    assert own_key(path).private_bytes_raw() == first
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_bytes(b"short")
    with pytest.raises(NetworkError, match="restore it from a copy"):
        own_key(path)


@pytest.fixture
def authority(tmp_path):
    made = certificates.make_authority(tmp_path, "test")
    for agent in range(3):
        certificates.issue(made, tmp_path, f"agent-{agent}", [])
    return tmp_path


def tls_of(directory, agent):
    return TLS(
        authority=directory / "authority.pem", certificate=directory / f"agent-{agent}.pem",
        key=directory / f"agent-{agent}.key",
    )  # fmt: skip


def test_announcements_are_believed_only_if_their_agent_signed_them(authority, tmp_path):
    registry = [Registry("run", 3, tls_of(authority, agent)) for agent in range(3)]
    good = registry[1].announce(1, b"p" * 32)
    assert registry[0].read(good).public == b"p" * 32
    assert "did not sign" in registry[0].read(good.replace(b"p" * 32, b"q" * 32)).reason
    assert "did not sign" in registry[0].read(registry[1].announce(2, b"p" * 32)).reason
    assert "did not sign" in registry[0].read(Registry("run", 3).announce(1, b"p" * 32)).reason
    assert registry[0].read(Registry("other", 3, tls_of(authority, 1)).announce(1, b"p" * 32)).other_run
    assert "is none" in registry[0].read(registry[1].announce(1, bytes(32))).reason
    other = tmp_path / "other"
    other.mkdir()
    certificates.issue(certificates.make_authority(other, "test"), other, "agent-1", [])
    assert "did not sign" in registry[0].read(Registry("run", 3, tls_of(other, 1)).announce(1, b"p" * 32)).reason
    for damaged in (good[:-1], good + b"x", b"", b"\x95" * 100):
        assert isinstance(registry[0].read(damaged), Rejected)


class Exchanging:
    """The exchange of keys in a network in memory, each node in a thread."""

    def __init__(self, graph, directory):
        self.graph, self.directory, self.network = graph, directory, MemoryNetwork()
        self.found, self.errors, self.stop = {}, {}, threading.Event()

    def run(self, agents):
        threads = [threading.Thread(target=self.live, args=(agent,)) for agent in agents]
        for one in threads:
            one.start()
        return threads

    def live(self, agent):
        registry = Registry("run", self.graph.num_agents)
        exchange = MaskExchange(agent, self.graph, registry, self.directory / f"{agent}.key", SteadyClock())
        near = {*self.graph.edges[(self.graph.edges == agent).any(1)].ravel().tolist()} - {agent}
        handlers = Handlers(exchange.receive, exchange.answer, lambda *_: None, lambda *_: None, 10**6)
        try:
            exchange.collect(self.network.connect(agent, near)(handlers), 0.02, self.stop)
            self.found[agent] = exchange
        except Exception as error:
            self.errors[agent] = error


def test_keys_reach_everybody_and_a_lost_key_is_told(tmp_path):
    exchanging = Exchanging(cs.graphs.path(6), tmp_path)
    for thread in exchanging.run(range(6)):
        thread.join(30)
    assert sum(one.of(0, 9, 4) for one in exchanging.found.values()).tolist() == [0] * 4
    found = exchanging.found
    for thread in exchanging.run([3]):  # restarted, with its key
        thread.join(30)
    np.testing.assert_array_equal(exchanging.found[3].of(0, 9, 4), found[3].of(0, 9, 4))
    assert_other_masks_in_other_epochs({agent: found[agent] for agent in (0, 1, 2)})
    (tmp_path / "0.key").unlink()
    exchanging.found.pop(0)
    for thread in exchanging.run([0]):
        thread.join(30)
    assert "announces another mask key" in str(exchanging.errors[0])
    assert found[1].receive(0, MARK + join([b"nonsense"]))
    assert found[1].answer("keys", b"") is not None
    assert found[1].answer("status", b"") is None


def assert_other_masks_in_other_epochs(exchanges):
    """Epochs with the same number and agents, which begin with different steps, as after kills that forget one."""
    some = Participants(tuple(exchanges), ((0, 1), (1, 2)), epoch=1, step=40)
    masks = []
    for who in (some, replace(some, step=20), some):
        for agent, exchange in exchanges.items():
            exchange.share_with(who.partners(agent), who.digest())
        masks.append([exchange.of(who.epoch, 9, 4) for exchange in exchanges.values()])
        assert sum(masks[-1]).tolist() == [0] * 4
    assert not np.isin(masks[1], masks[0]).any()
    np.testing.assert_array_equal(masks[2], masks[0])


def test_a_node_that_waits_for_keys_can_be_stopped(tmp_path):
    exchanging = Exchanging(cs.graphs.path(3), tmp_path)
    threads = exchanging.run([0, 1])
    exchanging.stop.set()
    for thread in threads:
        thread.join(30)
    assert all(isinstance(error, Stopped) for error in exchanging.errors.values())
    assert len(exchanging.errors) == 2
