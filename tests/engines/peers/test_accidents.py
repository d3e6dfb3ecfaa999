"""What a hostile trial found, as tests on networks in memory: late edges, lost states, dead lines, bad plans."""

import shutil
import threading

import numpy as np
import pytest

import consilience as cs
from consilience.deployment.merging import network_draws
from consilience.deployment.nodes import own_problem, run_node
from consilience.engines.peers import agent_step
from consilience.engines.peers.connections import DEAF_SECONDS
from consilience.engines.peers.node import Node
from consilience.engines.peers.pace import Pace
from consilience.engines.peers.rejoining import BACK_SECONDS
from consilience.engines.peers.settings import NodeSettings
from consilience.engines.peers.wire import GONE
from consilience.errors import DivergedError, NetworkError, PlanError, ProblemError, RunError
from tests.engines.peers.running import assert_same_draws
from tests.engines.peers.test_network import plan_for, ring_of_five
from tests.engines.peers.virtual import KilledError

ALL = range(5)


def plan_of(num_steps, **changes):
    return plan_for(cs.graphs.ring(5)).replace(num_steps=num_steps, sampler=cs.dula(0.01, 0.2), **changes)


def all_edges(lab):
    return not any(node.rounds.edges.lost() or node.rounds.edges._again for node in lab.nodes.values())


def until_round(lab, number, agents=ALL):
    lab.until(lambda: len(lab.nodes) == 5 and min(lab.rounds(*agents)) > number, f"round {number}")


# --- edges that return -----------------------------------------------------------------------------------------


def test_edges_return_soon_after_a_leap(laboratory):
    """Agent 2 comes back five hundred rounds late; the rounds that it leaps over are no pace."""
    lab = laboratory(plan_of(1500), on_loss="continue", patience=1.0)
    lab.kill[2] = 30
    lab.start_all()
    assert isinstance(lab.until_ended(2), KilledError)
    until_round(lab, 500, [0, 1, 3, 4])
    lab.kill.clear()
    lab.start(2)
    began = lab.clock.now()
    lab.until(lambda: lab.nodes[2].rounds.round > 30, "its leap")
    lab.until(lambda: all_edges(lab), "all edges")
    assert lab.clock.now() - began < 2 * BACK_SECONDS  # one after the other, as the first one makes it leap
    assert lab.rounds(2)[0] < 800


def test_nobody_runs_away_from_a_lost_neighbour():
    """With an edge lost, a round that takes a tenth of the time is held back to what all took together."""
    clock, stop = StillClock(), threading.Event()
    pace = Pace(clock)
    for took in [30.0, *[1.0] * 200, 50.0, *[1.0] * 50]:  # somebody starts late, somebody stalls once
        made_round(pace, clock, took, whole=True, stop=stop)
    began = clock.now()
    for _ in range(100):
        made_round(pace, clock, 0.1, whole=False, stop=stop)
    assert clock.now() - began == pytest.approx(100, rel=0.1)


def made_round(pace, clock, took, whole, stop):
    pace.begin()
    clock.time += took
    pace.end(whole, stop)


class StillClock:
    """Passes only when somebody says so."""

    time = 0.0

    def now(self):
        return self.time

    def sleep(self, wake, seconds):
        self.time += seconds
        return wake.is_set()


@pytest.mark.slow(reason="one more network of five nodes")
def test_a_line_that_is_dead_in_one_direction_is_opened_anew(laboratory):
    """Agent 2 no longer hears agent 1, and both are said to be here: the edge is lost, and comes back."""
    lab = laboratory(plan_of(1500), on_loss="continue", patience=5.0)
    lab.start_all()
    until_round(lab, 50)
    lab.network.deaf.add((1, 2))
    lab.until(lambda: not all_edges(lab), "the loss")
    began = lab.clock.now()
    lab.until(lambda: all_edges(lab), "the edge")
    assert lab.clock.now() - began < DEAF_SECONDS + 2 * BACK_SECONDS
    assert not lab.network.deaf


@pytest.mark.slow(reason="one more network of five nodes")
def test_nodes_that_wait_connect_anew_over_a_dead_line_too(laboratory):
    plan = plan_of(200)
    lab = laboratory(plan)
    lab.start_all()
    until_round(lab, 50)
    lab.network.deaf |= {(1, 2), (2, 1)}
    runs = lab.runs(ALL)
    assert_same_draws(network_draws([run.path for run in runs]), cs.sample(ring_of_five(), plan))


# --- states that cannot be recovered ---------------------------------------------------------------------------


def killed_with_checkpoints(lab, monkeypatch, *agents):
    """Kill some agents at round 12; all have made a checkpoint in every round until then."""
    monkeypatch.setattr(Node, "segment_seconds", 1e-6)
    for agent in agents:
        lab.kill[agent] = 12
    lab.start_all()
    for agent in agents:
        assert isinstance(lab.until_ended(agent), KilledError)
    lab.kill.clear()
    monkeypatch.setattr(Node, "segment_seconds", 2.0)


def run_of(lab, agent):
    return NodeSettings.load(lab.files[agent]).run


def lose_outbox(lab):
    """Agent 2 has lost its messages, and agent 1 its last checkpoint: it needs them."""
    shutil.rmtree(run_of(lab, 2) / "outbox")
    steps = sorted(int(path.name) for path in (run_of(lab, 1) / "checkpoints").iterdir())
    shutil.rmtree(run_of(lab, 1) / "checkpoints" / str(steps[-1]))


def lose_checkpoints(lab):
    shutil.rmtree(run_of(lab, 2) / "checkpoints")


def lose_run(lab):
    shutil.rmtree(run_of(lab, 2))


@pytest.mark.parametrize("lose", [
    pytest.param(lose_outbox, marks=pytest.mark.slow(reason="one more network with many checkpoints")),
    pytest.param(lose_checkpoints, marks=pytest.mark.slow(reason="one more network with many checkpoints")),
    pytest.param(lose_run, marks=pytest.mark.slow(reason="one more network with many checkpoints")),
])  # fmt: skip
def test_a_network_that_waits_ends_when_a_state_is_lost(laboratory, monkeypatch, lose):
    lab = laboratory(plan_of(400), checkpoint_seconds=1e-6)
    killed_with_checkpoints(lab, monkeypatch, 1, 2)
    lose(lab)
    lab.start(1)
    lab.start(2)
    for agent in ALL:
        error = lab.until_ended(agent)
        assert isinstance(error, NetworkError)
        assert "no longer has it" in str(error)
        assert "restore it from a copy" in str(error)


@pytest.mark.slow(reason="networks with many checkpoints")
@pytest.mark.parametrize("lose", [lose_checkpoints, lose_run])
def test_a_network_that_continues_takes_an_agent_without_its_state_for_a_new_one(laboratory, monkeypatch, lose):
    lab = laboratory(plan_of(300), on_loss="continue", patience=30.0, checkpoint_seconds=1e-6)
    killed_with_checkpoints(lab, monkeypatch, 2)
    lose(lab)
    lab.start(2)
    lab.until(lambda: lab.nodes[2].rounds.round > 12 and all_edges(lab), "its return")
    runs = lab.runs(ALL)
    assert all(run.complete for run in runs)


# --- two of one, plans that cannot be --------------------------------------------------------------------------


def test_a_message_that_is_made_while_it_is_asked_for_is_not_called_gone(laboratory):
    """The asker would end a healthy network."""
    lab = laboratory(plan_of(60))
    lab.start_all()
    until_round(lab, 5)
    node = lab.nodes[0]
    k, since = node.rounds.round, node.rounds.outbox.since

    def made_meanwhile(round_):
        kept = since(round_)
        node.rounds.round = k + 1
        return kept

    node.rounds.outbox.since = made_meanwhile
    node.rounds.outbox._kept.pop(k, None)
    assert node.wire.answer(f"since/{k}", b"") == b""
    node.rounds.round, node.rounds.outbox.since = k, since
    assert node.wire.answer(f"since/{k - 1}", b"") not in (b"", GONE)
    node.rounds.outbox._kept.pop(k - 1)
    assert node.wire.answer(f"since/{k - 1}", b"") == GONE  # the control


@pytest.mark.slow(reason="one more network of five nodes")
def test_a_node_that_cannot_connect_anew_tries_again(laboratory, caplog):
    """A port may be taken, a certificate half written: it is said, and the network waits until it is mended."""
    plan = plan_of(200)
    lab = laboratory(plan)
    lab.start_all()
    until_round(lab, 50)
    wire, fails = lab.nodes[2].wire, iter([True, True])
    connect = wire._connect

    def sometimes(handlers):
        if next(fails, False):
            raise NetworkError("the port is taken")
        return connect(handlers)

    wire._connect = sometimes
    lab.network.deaf |= {(1, 2)}
    runs = lab.runs(ALL)
    assert "cannot connect: the port is taken" in caplog.text
    assert_same_draws(network_draws([run.path for run in runs]), cs.sample(ring_of_five(), plan))


@pytest.mark.slow(reason="one more network of five nodes")
def test_a_network_that_continues_does_so_without_an_agent_that_diverged(laboratory):
    lab = laboratory(plan_of(200), on_loss="continue", patience=30.0)
    lab.start_all()
    until_round(lab, 50)
    lab.nodes[2].is_finite = lambda state: False
    lab.nodes[2].step.message = lambda state, prepared=None: (np.full((1, 3), np.nan),)
    assert isinstance(lab.until_ended(2), DivergedError)
    assert all(run.complete for run in lab.runs([0, 1, 3, 4]))


@pytest.mark.slow(reason="one more network that samples")
def test_a_second_process_for_an_agent_says_so(laboratory):
    lab = laboratory(plan_of(60))
    lab.start_all()
    until_round(lab, 5)
    settings = NodeSettings.load(lab.files[2])
    with pytest.raises(RunError, match="is being sampled by another process"):
        run_node(settings, ring_of_five().of_agent(2), clock=lab.clock)
    assert all(run.complete for run in lab.runs(ALL))


def test_a_plan_that_one_shard_makes_unstable_is_refused_by_all(laboratory, monkeypatch):
    lab = laboratory(plan_of(60))
    monkeypatch.setattr(Node, "largest_curvature", lambda node: 1e4 if node.settings.agent == 2 else 1.0)
    lab.start_all()
    assert isinstance(lab.until_ended(2), PlanError)
    for agent in (0, 1, 3, 4):
        error = lab.until_ended(agent)
        assert isinstance(error, NetworkError)
        assert "agent 2 cannot continue" in str(error)
        assert "unstable" in str(error)
    assert not run_of(lab, 2).exists()


def test_rows_that_one_node_cannot_use_are_refused_by_all(laboratory, monkeypatch):
    """Before that node is even made."""
    lab = laboratory(plan_of(60))

    def require_usable(problem, parameters, start, rows, agents):
        if agents == [2]:
            raise ProblemError("a row has no likelihood")

    monkeypatch.setattr(agent_step, "require_usable", require_usable)
    lab.start_all()
    assert isinstance(lab.until_ended(2), ProblemError)
    for agent in (0, 1, 3, 4):
        error = lab.until_ended(agent)
        assert isinstance(error, NetworkError)
        assert str(error) == "agent 2 cannot continue: a row has no likelihood"


@pytest.mark.parametrize("reference", ["os:abort", "../../x:y", "tests.engines.peers.other:problem"])
def test_a_plan_runs_only_what_the_node_allows(laboratory, reference):
    plan = plan_of(60)
    lab = laboratory(plan)
    settings = NodeSettings.load(lab.files[0])
    assert own_problem(plan, settings).num_agents == 1  # the module that `network init` was given
    carried = plan.replace(problem=reference)
    with pytest.raises(PlanError, match=r'write allow = \["|unknown experiment'):
        own_problem(carried, settings)
    own_problem(plan, settings.model_copy(update={"allow": ("tests",)}))
