"""A node in unison says every ten seconds where it is, on a clock that the tests turn."""

import logging

import pytest

import consilience as cs
from consilience.engines import unison
from consilience.engines.peers.participants import Participants
from consilience.engines.peers.unison_node import UnisonNode
from consilience.engines.peers.whereabouts import Whereabouts
from tests.engines.peers.virtual import Laboratory, VirtualClock
from tests.hierarchical import sites

PLAN = cs.Plan(graph=cs.graphs.path(2), sampler=cs.hmc(), num_warmup=20, num_draws=10, num_chains=1)


@pytest.fixture(autouse=True)
def _told(caplog):
    caplog.set_level(logging.INFO, "consilience.peers")


def test_a_node_that_waits_in_a_sum_says_where_it_is(tmp_path, monkeypatch, caplog):
    """Its only neighbour does not come; that it is the first sum is what it waits for all the time."""
    monkeypatch.setattr(UnisonNode, "compile", lambda self: None)
    monkeypatch.setattr(unison, "require_usable", lambda *arguments: None)
    lab = Laboratory(PLAN, tmp_path / "network", sites((4, 5)), monkeypatch)
    lab.start(0)
    lab.until(lambda: lab.clock.now() > 35, "35 seconds")
    lab.clock.abandon()
    assert [record.getMessage() for record in caplog.records].count("agent 0: warming up, 0 of 20") == 3


def test_a_part_of_the_network_says_that_it_samples_its_part_only(caplog):
    clock, plan = VirtualClock(), PLAN.replace(graph=cs.graphs.path(4))
    everybody, some = Participants.everybody(plan.graph), Participants((0, 1), ((0, 1),), epoch=1)
    said = Whereabouts(1, plan, everybody, clock)

    def at(seconds, step, who):
        clock._now = seconds
        said.arrive(step, who)
        return [record.getMessage() for record in caplog.records]

    assert at(9, 18, everybody) == []
    assert at(10, 19, everybody) == ["agent 1: warming up, 19 of 20"]
    assert len(at(19, 20, everybody)) == 1
    assert at(20, 3, some)[1:] == ["agent 1: warming up, 3 of 20, of the posterior of agent 0, agent 1 only"]
    assert at(40, 25, some)[2:] == ["agent 1: 5 draws, of the posterior of agent 0, agent 1 only"]
    assert at(50, 27, everybody)[3:] == ["agent 1: 7 draws"]
