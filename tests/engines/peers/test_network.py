"""Nodes on real connections: the draws of `simulate`, strangers and liars, killed and stopped processes."""

import logging
import os
import random
import signal
import time

import numpy as np
import pytest

import consilience as cs
from consilience.deployment.merging import network_draws
from consilience.deployment.networks import make_network
from consilience.deployment.processes import network_status
from consilience.engines.peers.messages import Message
from consilience.engines.peers.settings import NodeSettings
from tests.command import Command
from tests.engines.peers.running import (
    assert_same_draws,
    ended_at_last,
    sample_by_peers,
    sample_by_processes,
    wait_for_success,
)

OPTIMISED = True


def sensors(sizes, features=3):
    """A linear regression with shards of different sizes: quick to compile, and known exactly."""
    rng = np.random.default_rng(3)
    shards = [(rng.normal(size=(m, features)), rng.normal(size=m)) for m in sizes]
    return cs.models.linear_regression(shards)


def plan_for(graph, **changes):
    return cs.Plan(
        problem="tests.engines.peers.test_network:ring_of_five", graph=graph,
        sampler=cs.dula(cs.Polynomial(scale=0.002, offset=10, exponent=0.55), 0.1), num_steps=60, **changes,
    )  # fmt: skip


def ring_of_five():
    return sensors((4, 9, 6, 5, 7))


@pytest.mark.parametrize(
    ("graph", "changes"),
    [
        (cs.graphs.ring(5), {}),
        (cs.graphs.ring(5), {"batch_size": 3, "num_chains": 2, "burn_in": 10, "store_every": 7}),
        (cs.graphs.star(5), {"batch_size": 2, "batches": "replacement"}),
        (cs.graphs.from_edges(5, [(0, 1), (1, 2), (0, 2), (2, 3), (3, 4)], weights=[1, 0.5, 1, 2, 1]), {"seed": 4}),
    ],
    ids=["ring", "ring-minibatch", "star-replacement", "bridge-weights"],
)
def test_peers_draw_what_simulate_draws(graph, changes, tmp_path):
    plan, problem = plan_for(graph, **changes), ring_of_five()
    found, runs = sample_by_processes(plan, tmp_path / "network")
    assert_same_draws(found, cs.sample(problem, plan, tmp_path / "whole"))
    for agent, run in enumerate(runs):
        assert run.summary["agent"] == agent
        assert run.summary["messages"]["sent"] == plan.num_steps
        assert run.summary["messages"]["rejected"] == 0
        assert run.summary["agents"][0]["agent"] == agent
        assert run.draws["agent"].to_numpy().tolist() == [agent]
        assert (run.path / "report.html").exists()


def test_an_edge_used_by_one_side_only_would_be_seen(tmp_path, monkeypatch):
    """The control: agent 0 leaves out one neighbour, and the draws differ by far more than rounding."""
    from consilience.engines.peers.step import AgentStep

    mixed = AgentStep._after_mixing

    def one_sided(self, state, prepared, others):
        return mixed(self, state, prepared, others.at[0].set(state[:, 0]) if self.agent == 0 else others)

    monkeypatch.setattr(AgentStep, "_after_mixing", one_sided)
    plan, problem = plan_for(cs.graphs.ring(5)), ring_of_five()
    found, _ = sample_by_peers(plan, tmp_path / "network", problem)
    with pytest.raises(AssertionError):
        assert_same_draws(found, cs.sample(problem, plan, tmp_path / "whole"), tolerance=1e-3)


def test_a_node_needs_only_its_own_shard(tmp_path):
    made = []

    def problem(num_agents, agent):
        made.append(agent)
        whole = ring_of_five()
        return cs.Problem(whole.log_likelihood, whole.log_prior, whole.init, [whole.shards[agent]])

    from consilience.experiments import _of_agents

    alone = _of_agents(problem, 5, [3])
    assert made == [3]
    assert (alone.num_agents, alone.prior_share) == (1, 0.2)
    together = _of_agents(problem, 5, None)
    assert (together.num_agents, together.prior_share) == (5, 0.2)


class Listener:
    """The open end of one agent in a test, which says what the test wants."""

    def __init__(self, path, **changes):
        self.heard, self.here = [], set()
        settings = NodeSettings.load(path).model_copy(update=changes)
        self.transport = Transport(
            settings,
            lambda sender, content: self.heard.append((sender, content)),
            lambda what, content: b"yes",
            lambda number, here: self.here.add(number) if here else self.here.discard(number),
        )

    def wait_for(self, condition, seconds=8.0):
        deadline = time.monotonic() + seconds
        while not condition() and time.monotonic() < deadline:
            time.sleep(0.05)
        return condition()


def test_members_reach_their_neighbours_and_speak_only_for_themselves(tmp_path):
    files = make_network(plan_for(cs.graphs.ring(5)), tmp_path / "network")
    first, second = Listener(files[0]), Listener(files[1])
    try:
        assert first.wait_for(lambda: 1 in first.here)
        second.transport.publish(b"mine")
        assert first.wait_for(lambda: (1, b"mine") in first.heard)
        # agent 4 is a neighbour of agent 0 too; agent 1 speaks under its name
        second.transport._session.put("consilience/agent/4/message", b"forged")
        second.transport.publish(b"mine again")
        assert first.wait_for(lambda: (1, b"mine again") in first.heard)
        assert not [content for _, content in first.heard if content == b"forged"]
        # nor may it ask for the edge of another
        assert second.transport.ask(0, "edge/1", 2.0, b"mine") == b"yes"
        assert second.transport.ask(0, "edge/4", 2.0, b"forged") is None
    finally:
        first.transport.close()
        second.transport.close()


def test_a_node_with_another_plan_is_refused_and_the_difference_named(tmp_path, caplog):
    """Agent 1 follows a plan with another seed: agent 0 takes none of its messages and says why."""
    from consilience.engines.peers.node import Node

    plan = plan_for(cs.graphs.from_edges(2, [(0, 1)]))
    problem = sensors((4, 5))
    files = make_network(plan, tmp_path / "network")
    other = plan.replace(seed=8)
    nodes = [
        Node(problem.of_agent(agent), own, NodeSettings.load(path))
        for agent, (own, path) in enumerate(zip((plan, other), files, strict=True))
    ]
    with caplog.at_level(logging.INFO, "consilience.peers"):
        for one in nodes:
            one.connect(0, one.initial_state())
        try:
            deadline = time.monotonic() + 10
            while "differs in seed" not in caplog.text and time.monotonic() < deadline:
                nodes[1]._publish(0, np.zeros(nodes[1].codec.shape, np.float32))
                time.sleep(0.2)
        finally:
            for one in nodes:
                one.close()
    assert "agent 1 follows another plan: it differs in seed" in caplog.text
    assert nodes[0].counts["rejected"] > 0
    assert nodes[0].inbox.latest[1] == -1


def test_bad_messages_are_counted_and_ignored(tmp_path):
    from consilience.engines.peers.node import Node

    plan = plan_for(cs.graphs.from_edges(2, [(0, 1)]))
    node = Node(sensors((4, 5)).of_agent(0), plan, NodeSettings.load(make_network(plan, tmp_path / "n")[0]))
    codec = node.codec
    for content in (b"", b"\x00" * 50, codec.encode(Message(1, 0, 0, np.full(codec.shape, np.nan)))):
        node._receive(1, content)
    assert node.counts["rejected"] == 3
    node._receive(1, codec.encode(Message(1, 0, 0, np.zeros(codec.shape))))
    assert node.counts["received"] == 1
    assert node.inbox.wait(0, 0.0, [1]) == []


def wait_until_all_sample(network, seconds=120):
    deadline = time.monotonic() + seconds
    while not all(one["here"] for one in network_status(network, 0.5)):
        assert time.monotonic() < deadline, "the nodes did not come up"


def test_killed_and_stopped_nodes_change_nothing(tmp_path):
    """20 kills of one, several or all processes, then the draws of an undisturbed run, to the bit."""
    plan = plan_for(cs.graphs.ring(5)).replace(num_steps=6000, store_every=5)
    undisturbed, _ = sample_by_peers(plan, tmp_path / "quiet", ring_of_five())
    files = make_network(plan, tmp_path / "network", checkpoint_seconds=0.2)
    rng, kills = random.Random(5), 0
    nodes = [Command("node", path) for path in files]
    with ended_at_last(nodes):
        for count in (1, 5, 4, 5, 5):
            wait_until_all_sample(tmp_path / "network")
            time.sleep(rng.uniform(0.0, 0.6))
            for agent in rng.sample(range(5), count):
                nodes[agent].kill()
                nodes[agent].wait(10)
                nodes[agent] = Command("node", files[agent])
                kills += 1
        wait_until_all_sample(tmp_path / "network")
        paused = nodes[2].pid
        os.kill(paused, signal.SIGSTOP)
        time.sleep(1.5)
        os.kill(paused, signal.SIGCONT)
        wait_for_success(nodes)
    found = network_draws([NodeSettings.load(path).run for path in files])
    for name, values in undisturbed.items():
        np.testing.assert_array_equal(found[name], values)
    restarts = [cs.Run(NodeSettings.load(path).run).summary["restarts"] for path in files]
    assert sum(restarts) == kills == 20


def test_status_of_a_network_that_is_not_up(tmp_path):
    make_network(plan_for(cs.graphs.ring(3)), tmp_path / "network")
    assert [one["here"] for one in network_status(tmp_path / "network", 0.3)] == [False] * 3
