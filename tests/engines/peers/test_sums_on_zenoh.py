"""Sums over real connections with TLS on loopback: masks, signed keys, messages for one neighbour, a restart."""

import threading

import numpy as np
import pytest

import consilience as cs
from consilience.deployment.networks import make_network
from consilience.engines.peers.clock import SteadyClock
from consilience.engines.peers.mask_exchange import MaskExchange
from consilience.engines.peers.mask_keys import Registry
from consilience.engines.peers.settings import NodeSettings
from consilience.engines.peers.sums import Place, Sums
from consilience.engines.peers.transport import Handlers
from consilience.engines.peers.zenoh_transport import by_zenoh
from tests.engines.peers.test_network import Listener, plan_for

GRAPH = cs.graphs.path(4)


class Node:
    """An agent that adds its number to the totals of some draws, and then serves others until it is closed."""

    def __init__(self, path, stop):
        self.settings, self.stop, self.transport = NodeSettings.load(path), stop, None
        self.key = path.with_suffix(".mask")

    def open(self, place):
        agent = self.settings.agent
        self.exchange = MaskExchange(
            agent, GRAPH, Registry("run", GRAPH.num_agents, self.settings.tls), self.key, SteadyClock()
        )
        self.sums = Sums(agent, GRAPH, "run", 100, masks=self.exchange, ask_seconds=0.1, stop=self.stop)
        if place.draw:
            self.sums.start_at(place)
        lines = self.sums.lines
        self.transport = by_zenoh(self.settings)(
            Handlers(
                lambda number, content: self.exchange.receive(number, content) or lines.receive(number, content),
                lambda what, content: self.exchange.answer(what, content) or lines.answer(what, content),
                lambda *_: None,
                lambda *_: None,
                lines.longest,
            )
        )
        self.sums.attach(self.transport)
        self.exchange.collect(self.transport, 0.1, self.stop)

    def sample(self, first, last):
        state = np.full(3, first, np.uint64)
        for draw in range(first, last):
            self.sums.begin_draw(draw, 0)
            state = self.sums.adopt(state) + np.uint64(1)
            total = self.sums.total(np.full(3, self.settings.agent + draw, np.uint64))
            assert total.tolist() == [6 + 4 * draw] * 3
        assert state.tolist() == [last] * 3

    def live(self, first, last):
        self.open(Place(first, ()))
        self.sample(first, last)


def run(*jobs):
    errors = []

    def guarded(job):
        try:
            job()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(job,)) for job in jobs]
    for one in threads:
        one.start()
    for one in threads:
        one.join(60)
    assert not errors, errors
    assert not any(one.is_alive() for one in threads)


def test_masked_sums_over_tls_and_after_a_restart(tmp_path):
    files = make_network(plan_for(GRAPH), tmp_path / "network")
    stop = threading.Event()
    nodes = [Node(path, stop) for path in files]
    try:
        run(*[lambda node=node: node.live(0, 20) for node in nodes])
        nodes[2].transport.close()  # as if killed, with a checkpoint of draw 5
        run(lambda: nodes[2].live(5, 20))
        run(*[lambda node=node: node.sample(20, 25) for node in nodes])
        assert all(node.sums.lines.counts["rejected"] == 0 for node in nodes)
    finally:
        stop.set()
        for node in nodes:
            if node.transport is not None:
                node.transport.close()


@pytest.mark.parametrize("insecure", [False, True])
def test_what_is_sent_to_one_neighbour_is_heard_by_no_other(tmp_path, insecure):
    """Agent 2 asks to hear what agent 1 sends agent 0: access control denies it; without, the control, it hears."""
    files = make_network(plan_for(cs.graphs.complete(3)), tmp_path / "network", insecure=insecure)
    ends = [Listener(path) for path in files]
    try:
        for end in ends:
            assert end.wait_for(lambda end=end: len(end.here) == 2)
        overheard = []
        spy = ends[2].transport._session.declare_subscriber("consilience/agent/1/to/0", overheard.append)

        def overhears():
            ends[1].transport.send(0, b"yours")
            return bool(overheard)

        ends[1].transport.send(2, b"hers")
        assert ends[2].wait_for(lambda: (1, b"hers") in ends[2].heard)
        assert ends[2].wait_for(overhears, seconds=8.0 if insecure else 0.5) == insecure
        assert ends[0].wait_for(lambda: (1, b"yours") in ends[0].heard)
        assert {content for _, content in ends[0].heard} == {b"yours"}
        assert {content for _, content in ends[2].heard} == {b"hers"}
        spy.undeclare()
    finally:
        for end in ends:
            end.transport.close()
