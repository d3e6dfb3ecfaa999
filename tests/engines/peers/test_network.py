"""Nodes on real connections: the draws of `simulate`, strangers and liars, killed and stopped processes."""

import logging
import time

import numpy as np
import pytest

import consilience as cs
from consilience.deployment.merging import network_draws
from consilience.deployment.networks import make_network
from consilience.deployment.processes import network_status
from consilience.engines.peers.messages import Message
from consilience.engines.peers.node import Node
from consilience.engines.peers.settings import NodeSettings
from consilience.engines.peers.transport import Handlers
from consilience.engines.peers.wire import Wire
from consilience.engines.peers.zenoh_transport import ZenohTransport, by_zenoh
from tests.engines.peers.running import assert_same_draws, sample_by_peers
from tests.engines.peers.virtual import KilledError, Laboratory
from tests.samplers.last_word import LastWord
from tests.samplers.table import MADE


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


def ring_of_three():
    return sensors((4, 9, 6))


CASES = {
    "ring": (cs.graphs.ring(5), {}),
    "ring-minibatch": (cs.graphs.ring(5), {"batch_size": 3, "num_chains": 2, "burn_in": 10, "store_every": 7}),
    "star-replacement": (cs.graphs.star(5), {"batch_size": 2, "batches": "replacement"}),
    "bridge-weights": (
        cs.graphs.from_edges(5, [(0, 1), (1, 2), (0, 2), (2, 3), (3, 4)], weights=[1, 0.5, 1, 2, 1]), {"seed": 4}
    ),
}  # fmt: skip


def sample_in_memory(plan, directory, monkeypatch, **options):
    """The runs of all nodes of a network in memory."""
    lab = Laboratory(plan, directory, ring_of_five(), monkeypatch, **options)
    try:
        lab.start_all()
        return [cs.Run(run.path) for run in lab.runs(range(plan.num_agents))]
    finally:
        lab.clock.abandon()


@pytest.mark.parametrize("case", [
    pytest.param(case, marks=[pytest.mark.slow(reason="one more network of five nodes")] * (case != "bridge-weights"))
    for case in CASES
])  # fmt: skip
def test_peers_draw_what_simulate_draws(case, tmp_path, monkeypatch):
    graph, changes = CASES[case]
    plan = plan_for(graph, **changes)
    runs = sample_in_memory(plan, tmp_path / "network", monkeypatch)
    whole = cs.sample(ring_of_five(), plan, tmp_path / "whole")
    assert_same_draws(network_draws([run.path for run in runs]), whole)
    for agent, run in enumerate(runs):
        assert run.summary["agent"] == agent
        assert run.summary["messages"]["sent"] == plan.num_steps
        assert run.summary["messages"]["rejected"] == 0
        assert run.summary["agents"][0]["agent"] == agent
        assert run.draws["agent"].to_numpy().tolist() == [agent]
        assert "consensus_error" not in run.summary  # a node sees its neighbours only
        assert run.summary["distance_to_neighbours"] > 0


@pytest.mark.parametrize("name", [
    *(
        pytest.param(name, marks=pytest.mark.slow(reason="one more network"))
        for name in (
            "sghmc, constant", "kinetic, one exchange", "langevin, three exchanges", "last word (tests only)"
        )
    ),
    "dula, constant",
])  # fmt: skip
def test_every_sampler_draws_the_same_by_peers(name, tmp_path, monkeypatch):
    """Messages and states are pytrees of any structure: on the wire, in checkpoints, in the nodes' draws."""
    sampler = MADE[name]() if name in MADE else LastWord()
    plan = plan_for(cs.graphs.ring(3)).model_copy(update={"sampler": sampler, "num_steps": 14})
    monkeypatch.setattr("consilience.deployment.nodes.Plan.load", lambda path: plan)
    monkeypatch.setattr("consilience.runs.directory.Plan.load", lambda path: plan)
    monkeypatch.setattr(Node, "segment_seconds", 1e-6)  # so that there are checkpoints
    lab = Laboratory(plan, tmp_path / "n", sensors((4, 9, 6)), monkeypatch, checkpoint_seconds=1e-6)
    try:
        lab.kill[1] = 8
        lab.start_all()
        assert isinstance(lab.until_ended(1), KilledError)
        lab.kill.clear()
        lab.start(1)
        runs = lab.runs(range(3))
    finally:
        lab.clock.abandon()
    assert runs[1].status["restarts"] == 1
    whole = cs.sample(sensors((4, 9, 6)), plan, tmp_path / "whole")
    assert_same_draws(network_draws([run.path for run in runs]), whole)


def test_an_edge_used_by_one_side_only_would_be_seen(tmp_path, monkeypatch):
    """The control: agent 0 leaves out one neighbour, and the draws differ by far more than rounding."""
    from consilience.engines.peers.agent_step import AgentStep

    finish = AgentStep.finish

    def one_sided(self, state, prepared, message, others):
        if self.agent == 0:
            others[0][0] = message[0]
        return finish(self, state, prepared, message, others)

    monkeypatch.setattr(AgentStep, "finish", one_sided)
    plan = plan_for(cs.graphs.ring(5))
    runs = sample_in_memory(plan, tmp_path / "network", monkeypatch)
    with pytest.raises(AssertionError):
        assert_same_draws(
            network_draws([run.path for run in runs]), cs.sample(ring_of_five(), plan, tmp_path / "whole"),
            tolerance=1e-3,
        )  # fmt: skip


def test_a_node_needs_only_its_own_shard(tmp_path):
    made = []

    def problem(num_agents, agent):
        made.append(agent)
        whole = ring_of_five()
        return cs.Problem(whole.log_likelihood, whole.log_prior, whole.init, [whole.shards[agent]])

    from consilience.experiments.loading import _of_agents

    alone = _of_agents(problem, 5, [3])
    assert made == [3]
    assert (alone.num_agents, alone.prior_share) == (1, 0.2)
    together = _of_agents(problem, 5, None)
    assert (together.num_agents, together.prior_share) == (5, 0.2)


class Listener:
    """The open end of one agent in a test, which says what the test wants."""

    def __init__(self, path, longest=10**6, **changes):
        self.heard, self.here = [], set()
        settings = NodeSettings.load(path).model_copy(update=changes)
        self.transport = ZenohTransport(
            settings,
            Handlers(
                lambda sender, content: self.heard.append((sender, content)),
                lambda what, content: b"yes",
                lambda number, here: self.here.add(number) if here else self.here.discard(number),
                lambda number, content: self.heard.append((number, content)),
                longest,
            ),
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


@pytest.mark.slow(reason="one more network on real connections")
def test_connections_that_are_opened_anew_change_nothing(tmp_path, monkeypatch):
    """Agent 1 finds agent 0 deaf again and again, on real connections: it connects anew, and no draw changes."""
    opened = []

    def deaf_soon(self, number):
        if self.agent == 1 and self._transport is not None and len(opened) < 3:
            opened.append(number)
            with self._opening:
                self._transport.close()
                self.open(self._connect)

    say = Wire.say

    def revive_sometimes(self, k, message):
        say(self, k, message)
        if k in (5, 15, 25):
            deaf_soon(self, 0)

    monkeypatch.setattr(Wire, "say", revive_sometimes)
    plan = plan_for(cs.graphs.ring(3))
    found, _ = sample_by_peers(plan, tmp_path / "network", ring_of_three())
    assert len(opened) == 3
    assert_same_draws(found, cs.sample(ring_of_three(), plan, tmp_path / "whole"))


def test_a_node_with_another_plan_is_refused_and_the_difference_named(tmp_path, caplog):
    """Agent 1 follows a plan with another seed: agent 0 takes none of its messages and says why."""
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
            one.connect(by_zenoh(one.settings), 0, one.initial_state())
        try:
            deadline = time.monotonic() + 10
            while "differs in seed" not in caplog.text and time.monotonic() < deadline:
                nodes[1].wire.say(0, tuple(np.zeros(shape, dtype) for shape, dtype in nodes[1].step.message_shapes))
                time.sleep(0.2)
        finally:
            for one in nodes:
                one.close()
    assert "agent 1 follows another plan: it differs in seed" in caplog.text
    assert nodes[0].wire.counts["rejected"] > 0
    assert nodes[0].rounds.inbox.latest[1] == -1


def test_bad_messages_are_counted_and_ignored(tmp_path):
    plan = plan_for(cs.graphs.from_edges(2, [(0, 1)]))
    node = Node(sensors((4, 5)).of_agent(0), plan, NodeSettings.load(make_network(plan, tmp_path / "n")[0]))
    wire, codec = node.wire, node.wire.codec
    shape, _ = codec.arrays[0]
    for content in (b"", b"\x00" * 50, codec.encode(Message(1, 0, 0, (np.full(shape, np.nan),)))):
        wire.receive(1, content)
    assert wire.counts["rejected"] == 3
    wire.receive(1, codec.encode(Message(1, 0, 0, (np.zeros(shape),))))
    assert wire.counts["received"] == 1
    assert node.rounds.inbox.wait(0, 0.0, [1]) == []


def test_status_of_a_network_that_is_not_up(tmp_path):
    make_network(plan_for(cs.graphs.ring(3)), tmp_path / "network")
    assert [one["here"] for one in network_status(tmp_path / "network", 0.3)] == [False] * 3
