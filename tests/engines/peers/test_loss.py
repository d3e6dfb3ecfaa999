"""Networks that continue without a lost agent, held against the exact law of what they then sample.

The problem is Gaussian, so the mean and the covariance of all agents after many rounds are known: those of the
stationary law of what is left of the network. Every test has several hundred chains, independent of each other; a
z-score beyond `_LIMIT` in one of six numbers happens less than once in a million runs of a sound program. Nodes are
those that users run, on a network in memory and a clock that the test turns.
"""

import numpy as np
import pytest

import consilience as cs
from consilience.deployment.merging import merge
from consilience.engines.peers.rejoining import BACK_SECONDS
from consilience.samplers import SAMPLERS
from consilience.theory import ExactLaw, GaussianNetwork
from tests.engines.peers.test_network import ring_of_five
from tests.engines.peers.virtual import ROUND_SECONDS, KilledError, Laboratory
from tests.samplers.table import CONSTRUCTORS

OPTIMISED = True
CHAINS, ROUNDS = 600, 700
ALL, RING = range(5), [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)]
_LIMIT = 5.4
SETTLED = {name: ways["settled"]() for name, ways in CONSTRUCTORS.items() if "settled" in ways}
"""Samplers whose network forgets its start, and a loss, within some hundred rounds."""


def plan_of(num_steps, sampler=SETTLED["dula"]):
    return cs.Plan(
        problem="tests.engines.peers.test_network:ring_of_five", graph=cs.graphs.ring(5), num_steps=num_steps,
        sampler=sampler, num_chains=CHAINS, store_every=10,
    )  # fmt: skip


def stationary_law(sampler, members, edges):
    """Mean and covariance of the average of some of the agents, joined by some of the edges.

    The plan keeps `n = 5` in gradient and noise, whoever is left: the law has the factor 5/members in both.
    """
    whole, place = GaussianNetwork.of(ring_of_five(), cs.graphs.ring(5)), {a: i for i, a in enumerate(members)}
    graph = cs.graphs.from_edges(len(members), [(place[i], place[j]) for i, j in edges])
    members = list(members)

    class Scaled(type(sampler)):
        """The sampler with the factor of the whole network, not of what is left of it."""

        def coefficients(self, k, n):
            return super().coefficients(k, 5)

    network = GaussianNetwork(graph, whole.precisions[members], whole.linear[members])
    entries = {name: getattr(sampler, name) for name in type(sampler).model_fields}
    law = ExactLaw(network, Scaled(**entries))
    return network.average(law.positions(law.stationary()))


def scores(draws, law):
    """z-scores of the means and of the variances over chains, `draws` being `(chains, size)`."""
    variances = np.diag(law.covariance)
    of_means = (draws.mean(0) - law.mean) / np.sqrt(variances / len(draws))
    of_variances = (draws.var(0, ddof=1) / variances - 1) * np.sqrt((len(draws) - 1) / 2)
    return np.abs(np.concatenate([of_means, of_variances]))


def last_average(runs):
    return np.mean([np.asarray(run.draws["w"])[:, 0, -1] for run in runs], 0)


def drift_of_ledgers(made):
    """The largest amount that the two ends of an edge do not agree on."""
    found = 0.0
    for agent, node in made.items():
        for number in node.rounds.neighbours:
            for mine, theirs in zip(
                node.rounds.edges._ledger[number], made[number].rounds.edges._ledger[agent], strict=True
            ):
                found = max(found, np.abs(mine + theirs).max())
    return found


def present(node):
    return np.flatnonzero(node.members.present).tolist()


def test_every_sampler_that_can_do_without_an_edge_is_tried():
    able = {
        name for name, ways in CONSTRUCTORS.items()
        for sampler in [next(iter(ways.values()))()] if sampler.edge_rate(sampler.coefficients(0, 5)) is not None
    }  # fmt: skip
    assert able == set(SETTLED) <= set(SAMPLERS)


@pytest.mark.slow(reason="several hundred chains for hundreds of rounds, at five nodes")
@pytest.mark.parametrize("name", SETTLED)
def test_an_agent_lost_for_good(name, laboratory, tmp_path):
    """Agent 2 is killed: the others finish, and sample what the data of the four says."""
    survivors, sampler = [0, 1, 3, 4], SETTLED[name]
    lab = laboratory(on_loss="continue", plan=plan_of(ROUNDS, sampler), patience=2.0)
    lab.kill[2] = 70
    lab.start_all()
    assert isinstance(lab.until_ended(2), KilledError)
    runs = [cs.Run(run.path) for run in lab.runs(survivors)]
    average = last_average(runs)
    assert scores(average, stationary_law(sampler, survivors, [(3, 4), (4, 0), (0, 1)])).max() < _LIMIT
    assert scores(average, stationary_law(sampler, ALL, RING)).max() > _LIMIT  # the control: not what all five say
    for run in runs:
        share = run.summary["participation"]
        assert 0 < share[2] < 0.9
        assert [share[agent] for agent in survivors] == [1.0] * 4
        assert run.draws["participation"].to_numpy()[-1].tolist() == [True, True, False, True, True]
    assert "the data of agent 2" in runs[0].report().read_text()
    together = cs.Run(merge([run.path for run in runs], tmp_path / "survivors").path)
    assert together.draws["agent"].to_numpy().tolist() == survivors
    assert "the data of agent 2" in together.report().read_text()


@pytest.mark.slow(reason="several hundred chains for hundreds of rounds, at five nodes")
@pytest.mark.parametrize("name", SETTLED)
def test_lost_and_returned(name, laboratory):
    """Agent 2 dies without a checkpoint of its last rounds, and comes back when the others have continued."""
    sampler = SETTLED[name]
    lab = laboratory(on_loss="continue", plan=plan_of(ROUNDS, sampler), patience=1.0, checkpoint_seconds=0.3)
    lab.kill[2] = 80
    lab.start_all()
    assert isinstance(lab.until_ended(2), KilledError)
    lab.until(lambda: min(lab.rounds(1, 3)) > 100, "the others to continue")
    lab.kill.clear()
    lab.start(2)
    lab.until(lambda: not any(2 in node.rounds.edges.lost() for node in lab.nodes.values()), "edges")
    lab.until(lambda: all(present(node) == [*ALL] for node in lab.nodes.values()), "its return")
    runs = lab.runs(ALL)
    assert drift_of_ledgers(lab.nodes) < 1e-4  # tests/engines/peers/test_edges.py has the controls
    assert scores(last_average(runs), stationary_law(sampler, ALL, RING)).max() < _LIMIT
    numbers = runs[2].draws["draw"].to_numpy()
    assert len(numbers) <= ROUNDS // 10
    assert numbers[-1] == ROUNDS // 10 - 1
    assert 0 < runs[0].summary["participation"][2] < 1
    assert runs[0].draws["participation"].to_numpy()[[0, -1]].all()


@pytest.mark.slow(reason="several hundred chains for hundreds of rounds, at five nodes")
def test_three_cuts_and_heals(laboratory):
    """The ring falls into two parts, loses one agent, falls apart otherwise; each time it is whole again soon."""
    patience = 1.0
    lab = laboratory(plan_of(1200), on_loss="continue", patience=patience)
    cuts = {
        (0, 1): {frozenset((1, 2)), frozenset((4, 0))},
        (3,): {frozenset((2, 3)), frozenset((3, 4))},
        (4, 0, 1): {frozenset((3, 4)), frozenset((1, 2))},
    }
    lab.start_all()
    lab.until(lambda: len(lab.nodes) == 5, "all nodes")
    for part, lines in cuts.items():
        cut_and_healed(lab, part, lines)
    runs = lab.runs(ALL)
    assert drift_of_ledgers(lab.nodes) < 1e-4
    assert scores(last_average(runs), stationary_law(SETTLED["dula"], ALL, RING)).max() < _LIMIT
    most = (patience + 2 * BACK_SECONDS) / ROUND_SECONDS + 2 * len(ALL)  # until the loss, the return, and all know it
    for agent, run in enumerate(runs):
        counted = run.draws["participation"].to_numpy()
        assert alone_for(counted, agent) * run.plan.store_every < most
        assert counted.all(1).mean() > 0.5


def cut_and_healed(lab, part, lines):
    """Cut some lines until all have noticed, and let them heal."""
    parts = sorted(part), [agent for agent in ALL if agent not in part]
    first = max(lab.rounds(*ALL)) + 40
    lab.until(lambda: min(lab.rounds(*ALL)) > first, f"round {first}")
    lab.cut.update(lines)
    lab.until(lambda: all(present(lab.nodes[agent]) == one for one in parts for agent in one), "two parts")
    began = lab.clock.now()
    lab.cut.clear()
    edges = [node.rounds.edges for node in lab.nodes.values()]
    lab.until(lambda: not any(one.lost() or one._again for one in edges), "all edges")
    assert lab.clock.now() - began < 2 * BACK_SECONDS
    lab.until(lambda: all(present(node) == [*ALL] for node in lab.nodes.values()), "one network")


def alone_for(counted, agent):
    """The longest stretch of draws in which no other agent's data counted."""
    longest = length = 0
    for row in counted:
        length = length + 1 if row.sum() == 1 and row[agent] else 0
        longest = max(longest, length)
    return longest


@pytest.mark.slow(reason="several hundred chains at five nodes")
def test_a_neighbour_that_keeps_sending_nonsense_counts_as_lost(laboratory):
    """Agent 2's messages are damaged on their way at some round: its neighbours continue without it."""
    lab = laboratory(on_loss="continue", plan=plan_of(300), patience=30.0)
    lab.start_all()
    lab.until(lambda: len(lab.nodes) == 5 and min(lab.rounds(*ALL)) > 65, "round 65")
    lab.damage.add(2)
    for agent in (1, 3):
        for _ in range(100):
            lab.nodes[agent].wire.receive(2, b"")
    runs = lab.runs([0, 1, 3, 4])
    assert 0 < runs[0].summary["participation"][2] < 1
    assert runs[1].summary["messages"]["rejected"] >= 100


@pytest.mark.slow(reason="two networks of five nodes")
def test_what_happens_is_the_same_every_time(tmp_path, monkeypatch):
    """Two laboratories with the same accident end with the same draws, to the bit."""
    found = []
    for name in ("first", "second"):
        lab = Laboratory(
            plan_of(150).replace(num_chains=3), tmp_path / name, ring_of_five(), monkeypatch, on_loss="continue",
            patience=1.0,
        )  # fmt: skip
        lab.start_all()
        lab.until(lambda lab=lab: len(lab.nodes) == 5 and min(lab.rounds(*ALL)) > 20, "round 20")
        lab.cut |= {frozenset((1, 2))}
        lab.until(lambda lab=lab: 2 in lab.nodes[1].rounds.edges.lost(), "the loss")
        lab.cut.clear()
        found.append([np.asarray(run.draws["w"]) for run in lab.runs(ALL)])
        lab.clock.abandon()
    for first, second in zip(*found, strict=True):
        np.testing.assert_array_equal(first, second)


def test_a_sampler_that_needs_all_its_edges_is_refused(tmp_path, monkeypatch):
    from consilience.deployment.networks import make_network
    from consilience.engines.peers.node import Node
    from consilience.engines.peers.settings import NodeSettings
    from consilience.errors import NetworkError
    from tests.samplers.last_word import LastWord

    plan = plan_of(20)
    settings = NodeSettings.load(make_network(plan, tmp_path / "n", insecure=True, on_loss="continue")[0])
    needy = plan.model_copy(update={"sampler": LastWord()})
    with pytest.raises(NetworkError, match="cannot do without an edge"):
        Node(ring_of_five().of_agent(0), needy, settings)
