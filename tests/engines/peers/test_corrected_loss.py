"""Corrected samplers at nodes that continue without a lost agent, held against the law of what they then sample.

The problem is Gaussian, so mean and covariance of every agent are known: those of the stationary law of what is left
of the network, with the whole prior and the mixing numbers of the whole graph. Every test has several hundred chains,
independent of each other. A sound program is rejected less than once in a million runs (`rejected`).
"""

from dataclasses import replace

import jax
import numpy as np
import pytest
from scipy import stats

import consilience as cs
from consilience.deployment.merging import merge, network_draws
from consilience.deployment.networks import make_network
from consilience.deployment.nodes import run_node
from consilience.engines.peers import node
from consilience.engines.peers.corrected_node import CorrectedNode
from consilience.engines.peers.settings import NodeSettings
from consilience.engines.warmed import Warmed
from consilience.errors import NetworkError
from consilience.kernel.tuning import blank_tuning
from consilience.kernel.whitening import identity
from consilience.theory import ExactLaw, GaussianNetwork
from consilience.warmup.variates import BatchGradients
from tests.command import Command
from tests.engines.peers.lockstep import Lockstep, OneAgent
from tests.engines.peers.running import assert_same_draws, ended_at_last, wait_for_success
from tests.engines.peers.test_kills import wait_for_round
from tests.engines.peers.test_network import ring_of_five, ring_of_three
from tests.engines.peers.virtual import KilledError, Laboratory
from tests.hierarchical import quadratics, sites, wards
from tests.statistical import FALSE_ALARM, rejects_moments

OPTIMISED = True
CHAINS, ALL, RING = 600, range(5), [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)]
SAMPLERS = {
    "kinetic": cs.kinetic(0.1, 3, friction=6.0, whitening="none"),
    "langevin": cs.langevin(0.005, 3, whitening="none"),
}
"""Both forget their start, and a loss, within 60 steps: disturbances shrink to less than a thousandth."""


def plan_of(sampler, num_steps, **changes):
    return cs.Plan(**{
        "problem": "tests.engines.peers.test_network:ring_of_five", "graph": cs.graphs.ring(5), "sampler": sampler,
        "num_steps": num_steps, "store_every": 5, "num_chains": CHAINS, "dtype": "float64", **changes,
    })  # fmt: skip


def stationary_law(sampler, members, edges):
    """Moments of every one of some agents, joined by some of the edges, who mix as in the whole ring."""
    members, place = list(members), {agent: number for number, agent in enumerate(members)}
    graph = cs.graphs.from_edges(len(members), [(place[i], place[j]) for i, j in edges])

    class OfTheRing(type(sampler)):
        """The sampler with the polynomial of the whole graph."""

        def mixing(self, graph, coefficients):
            return super().mixing(cs.graphs.ring(5), coefficients)

    problem = replace(ring_of_five().of_agents(members), network_size=len(members))
    entries = {name: getattr(sampler, name) for name in type(sampler).model_fields}
    law = ExactLaw(GaussianNetwork.of(problem, graph), OfTheRing(**entries))
    found = law.positions(law.stationary())
    return found.mean.reshape(len(members), -1), np.diag(found.covariance).reshape(len(members), -1)


def rejected(draws, law):
    """Whether draws `(chains, agents, size)` contradict means or variances (Bonferroni over all of them)."""
    (means, variances), count = law, len(draws)
    of_means = 2 * stats.norm.sf(np.abs(draws.mean(0) - means) / np.sqrt(variances / count))
    ratio = (count - 1) * draws.var(0, ddof=1) / variances
    of_variances = 2 * np.minimum(stats.chi2.sf(ratio, count - 1), stats.chi2.cdf(ratio, count - 1))
    found = np.concatenate([of_means, of_variances])
    return bool(found.min() < FALSE_ALARM / found.size)


def last_draws(runs):
    return np.concatenate([np.asarray(run.draws["w"])[:, :, -1] for run in runs], 1)


@pytest.fixture
def states(monkeypatch):
    """The latest state of every node's sampler, by agent."""
    found, advance = {}, CorrectedNode.advance

    def remembered(self, *arguments):
        state, segment = advance(self, *arguments)
        found[self.settings.agent] = state.walk.sampler if isinstance(state, Warmed) else state.sampler
        return state, segment

    monkeypatch.setattr(CorrectedNode, "advance", remembered)
    return found


def sum_of_corrections(states, agents):
    """The largest entry of the sum of some agents' corrections, which are far from 0."""
    own = [np.asarray(states[agent].correction) for agent in agents]
    assert max(np.abs(one).max() for one in own) > 0.01
    return np.abs(sum(own)).max()


def present(agent):
    return np.flatnonzero(agent.members.present).tolist()


def bits(runs):
    return [np.asarray(run.draws["w"]) for run in runs]


def assert_same_bits(found, expected):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


SHORT = plan_of(SAMPLERS["kinetic"], 40, num_chains=2, graph=cs.graphs.path(3), problem=None)


def test_nodes_that_would_have_to_ask_everybody_are_refused(tmp_path):
    plan = cs.Plan(problem="tests.engines.peers.test_network:ring_of_three", graph=cs.graphs.path(3),
                   sampler=cs.kinetic())  # fmt: skip
    files = make_network(plan, tmp_path / "network", insecure=True, on_loss="continue")
    with pytest.raises(NetworkError, match="say how many draws are wanted"):
        run_node(NodeSettings.load(files[0]), ring_of_three().of_agent(0))


@pytest.mark.slow(reason="networks of which nodes are lost")
def test_short_losses_change_nothing_and_an_agent_that_is_gone_leaves_no_trace(laboratory, states):
    """One in ten messages is lost and asked for again; then the end of a path is killed, for good.

    Until then draws are those of an undisturbed network. Afterwards the others' corrections add up to 0.
    """
    quiet = laboratory(SHORT, ring_of_three())
    quiet.start_all()
    expected = bits(quiet.runs(range(3)))
    assert sum_of_corrections(states, range(3)) < 1e-12
    lab = laboratory(SHORT, ring_of_three(), on_loss="continue", patience=10.0)
    rng = np.random.default_rng(2)
    lab.network.hears = lambda listener, speaker: rng.random() > 0.1
    lab.kill[2] = 70  # in the second of three exchanges
    lab.start_all()
    assert isinstance(lab.until_ended(2), KilledError)
    runs = [cs.Run(run.path) for run in lab.runs([0, 1])]
    taking_part = np.asarray(runs[0].draws["participation"])
    assert taking_part[:4].all()
    assert taking_part[-2:].tolist() == [[True, True, False]] * 2
    assert_same_bits([found[:, :, :4] for found in bits(runs)], [found[:, :, :4] for found in expected[:2]])
    assert max(lab.nodes[agent].wire.counts["asked_for"] for agent in (0, 1)) > 5
    assert sum_of_corrections(states, [0, 1]) < 1e-12
    assert np.abs(np.asarray(states[2].correction)).max() > 0.01


@pytest.mark.slow(reason="several hundred chains at five nodes")
@pytest.mark.parametrize("name", SAMPLERS)
def test_an_agent_lost_for_good(name, laboratory, tmp_path, states):
    """Agent 2 is killed: the others finish, and each samples what the data of the four says."""
    survivors, sampler = [0, 1, 3, 4], SAMPLERS[name]
    lab = laboratory(on_loss="continue", plan=plan_of(sampler, 160), patience=2.0)
    lab.kill[2] = 100
    lab.start_all()
    assert isinstance(lab.until_ended(2), KilledError)
    runs = [cs.Run(run.path) for run in lab.runs(survivors)]
    assert sum_of_corrections(states, survivors) < 1e-11
    draws = last_draws(runs)
    assert not rejected(draws, stationary_law(sampler, survivors, [(0, 1), (3, 4), (4, 0)]))
    whole = [part[survivors] for part in stationary_law(sampler, ALL, RING)]
    assert rejected(draws, whole), "the control: what all five say is something else"
    for run in runs:
        share = run.summary["participation"]
        assert 0 < share[2] < 0.5
        assert [share[agent] for agent in survivors] == [1.0] * 4
        assert run.draws["participation"].to_numpy()[-1].tolist() == [True, True, False, True, True]
        since = run.latest_draws["step"].to_numpy()
        assert 30 < since[0] < 45
    assert "with the whole prior" in runs[0].report().read_text()
    together = cs.Run(merge([run.path for run in runs], tmp_path / "survivors").path)
    assert "the data of agent 2" in together.report().read_text()


@pytest.mark.slow(reason="several hundred chains at five nodes")
def test_lost_and_returned(laboratory, states):
    """Agent 2 dies without a checkpoint of its last rounds, and comes back when the others have continued.

    Meanwhile a line between two others is cut, and heals.
    """
    sampler = SAMPLERS["kinetic"]
    lab = laboratory(on_loss="continue", plan=plan_of(sampler, 400), patience=1.0, checkpoint_seconds=0.3)
    lab.kill[2] = 100
    lab.start_all()
    assert isinstance(lab.until_ended(2), KilledError)
    lab.until(lambda: min(lab.rounds(1, 3)) > 150, "the others to continue")
    lab.kill.clear()
    lab.start(2)
    lab.until(lambda: all(present(one) == [*ALL] for one in lab.nodes.values()), "its return")
    lab.cut |= {frozenset((0, 4))}
    lab.until(lambda: 4 in lab.nodes[0].rounds.edges.lost(), "another loss")
    lab.cut.clear()
    lab.until(lambda: not any(one.rounds.edges.down() for one in lab.nodes.values()), "all edges")
    runs = lab.runs(ALL)
    assert sum_of_corrections(states, ALL) < 1e-11
    assert not rejected(last_draws(runs), stationary_law(sampler, ALL, RING))
    numbers = runs[2].draws["draw"].to_numpy()
    assert len(numbers) < 80
    assert numbers[-1] == 79
    counted = runs[0].draws["participation"].to_numpy()
    assert counted[-1].all()
    assert 0 < counted[:, 2].mean() < 1
    assert counted[:, 4].all()  # news of it came the other way


@pytest.mark.slow(reason="two networks of five nodes")
def test_what_happens_is_the_same_every_time(tmp_path, monkeypatch):
    """Two laboratories with the same accidents end with the same draws, to the bit."""
    found = []
    for name in ("first", "second"):
        plan = plan_of(SAMPLERS["kinetic"], 120, num_chains=2, dtype="float32")
        lab = Laboratory(
            plan, tmp_path / name, ring_of_five(), monkeypatch, on_loss="continue", patience=1.0
        )  # fmt: skip
        lab.kill[4] = 200
        lab.start_all()
        lab.until(lambda lab=lab: len(lab.nodes) == 5 and min(lab.rounds(*ALL)) > 50, "round 50")
        lab.cut |= {frozenset((1, 2))}
        lab.until(lambda lab=lab: 2 in lab.nodes[1].rounds.edges.lost(), "the loss")
        lab.cut.clear()
        found.append(bits(lab.runs(range(4))))
        lab.clock.abandon()
    assert_same_bits(*found)


def rarely(share, both):
    """Whether messages arrive when every edge fails in a share of the exchanges: at both ends, or at one of them."""

    def arrives(round_, speaker, listener):
        lower, upper = min(speaker, listener), max(speaker, listener)
        fails, side = np.random.default_rng((round_, lower, upper)).random(2)
        return fails >= share or not (both or (speaker < listener) == (side < 0.5))

    return arrives


OFTEN_ENOUGH = pytest.param("langevin", marks=pytest.mark.slow(reason="the same again, compiled anew"))


@pytest.mark.parametrize("name", ["kinetic", OFTEN_ENOUGH])
def test_an_edge_that_both_ends_leave_out_keeps_the_averages(name):
    """In every exchange some edges are missing: `Σ_i s_i = 0`, and flows are those of both ends, the other way."""
    plan = plan_of(SAMPLERS[name], 40, num_chains=2, graph=cs.graphs.path(3), problem=None)
    with jax.enable_x64(True):
        network = Lockstep(ring_of_three(), plan, rarely(0.3, both=True))
        network.walk(20)
        assert np.abs(network.corrections().sum(0)).max() < 1e-12
        np.testing.assert_allclose(network.flow(0, 1), -network.flow(1, 0), atol=1e-13)
        assert_made_of_flows(network)
        network.arrives = rarely(0.3, both=False)
        network.walk(20)
        assert np.abs(network.corrections().sum(0)).max() > 1e-3, "the control: an edge used at one end"
        assert_made_of_flows(network)
        kept = network.corrections()
        for agent in (0, 1):  # both ends lose the edge: what it did is undone, the rest stays
            network.agents[agent].rounds.edges.lose(1 - agent)
        for one in network.agents:
            one.state = one.continuing.begin(one.state)
    np.testing.assert_allclose(network.corrections()[0], 0, atol=1e-12)
    np.testing.assert_allclose(network.corrections()[1], network.flow(1, 2), atol=1e-12)
    np.testing.assert_array_equal(network.corrections()[2], kept[2])


def assert_made_of_flows(network):
    """The correction of each agent of a path of three is the sum of what flowed over its edges."""
    found = [network.flow(0, 1), network.flow(1, 0) + network.flow(1, 2), network.flow(2, 1)]
    np.testing.assert_allclose(network.corrections(), found, atol=1e-12)
    assert np.abs(found).max() > 1e-3


@pytest.mark.slow(reason="several hundred chains of five agents, three times")
def test_a_tenth_of_all_exchanges_without_an_edge_is_harmless():
    """Every agent samples the posterior of all data; if edges fail at one end only, no agent does."""
    sampler = cs.kinetic(0.1, 6, friction=6.0, whitening="none")
    posterior = GaussianNetwork.of(ring_of_five(), cs.graphs.ring(5)).posterior
    law = np.tile(posterior.mean, (5, 1)), np.tile(np.diag(posterior.covariance), (5, 1))
    found = {}
    for both in (True, False):
        with jax.enable_x64(True):
            network = Lockstep(ring_of_five(), plan_of(sampler, 120), rarely(0.1, both))
            found[both] = network.walk(120)[-1], np.abs(network.corrections().sum(0)).max()
    assert not rejected(found[True][0], law)
    assert found[True][1] < 1e-11
    assert rejected(found[False][0], law), "the control"


@pytest.mark.slow(reason="hundreds of steps until nothing moves")
def test_private_parameters_and_the_whole_prior_at_those_that_are_left():
    """Without noise agents end at the mode of what those say that are joined, with effects of their own."""
    sampler = cs.kinetic(0.15, 2, friction=1.5, temperature=0, whitening="none")
    plan = plan_of(sampler, 700, num_chains=1, graph=cs.graphs.path(3), problem=None)
    problem = replace(wards(), shards=[shard.astype(np.float64) for shard in wards().shards])
    with jax.enable_x64(True):
        network = Lockstep(problem, plan, lambda *_: True)
        network.walk(30)
        network.arrives = lambda _, speaker, listener: 2 not in (speaker, listener)
        for agent, other in ((1, 2), (2, 1)):
            network.agents[agent].rounds.edges.lose(other)
        found = network.walk(350)[-1][0]
    for part in ([0, 1], [2]):
        hessians, linear = quadratics(problem.of_agents(part))
        pull = hessians[:, 0, 1] / hessians[:, 1, 1]
        mean = (linear[:, 0] - pull * linear[:, 1]).sum() / (hessians[:, 0, 0] - pull * hessians[:, 0, 1]).sum()
        effects = (linear[:, 1] - hessians[:, 0, 1] * mean) / hessians[:, 1, 1]
        np.testing.assert_allclose(found[part], np.stack([np.full(len(part), mean), effects], 1), atol=1e-8)


def test_anchors_are_those_of_the_potentials_of_those_that_are_left():
    """At the anchor a minibatch's gradient has no noise, and is that of all rows with a half of the prior."""
    plan = cs.Plan(
        problem=None, graph=cs.graphs.path(3), sampler=cs.kinetic(), batch_size=2, num_chains=1, num_draws=4,
        dtype="float64",
    )  # fmt: skip
    problem, place = ring_of_three(), np.array([[0.3, -0.2, 0.5]])
    with jax.enable_x64(True):
        one = OneAgent(problem, plan, 1)
        whole = replace(problem.of_agent(1), network_size=3)
        anchor = BatchGradients(whole, plan).anchor(place)
        tuning = blank_tuning(identity(3, 1, 0), 1, 3, True)._replace(anchor=anchor)
        one.members.present = np.array([True, True, False])
        step, numbers = one.continuing.step(tuning)
        state = one.state._replace(position=place[None])
        found = [np.asarray(step.prepare(state, np.int32(k), numbers).gradient)[0, 0] for k in (0, 1)]
        stale = np.asarray(step.prepare(state, np.int32(0), one.step.tuned(tuning)).gradient)[0, 0]
    half = BatchGradients(replace(whole, network_size=2), plan).anchor(place).gradient[0]
    np.testing.assert_allclose(found, [half, half], rtol=1e-10)
    assert np.abs(stale - half).max() > 0.01, "the control: the anchor of three"


TUNED = cs.Plan(
    problem="tests.engines.peers.test_network:ring_of_three", graph=cs.graphs.path(3), sampler=cs.kinetic(),
    num_warmup=200, num_draws=60, num_chains=2, batch_size=3, dtype="float64", seed=3,
)  # fmt: skip


@pytest.mark.slow(reason="a network that warms up, one node of it three times")
def test_nobody_is_lost_before_it_has_a_checkpoint_from_after_the_warm_up(laboratory, tmp_path):
    """In a window others wait, and so they do right after it: draws are those of `simulate`."""
    lab = laboratory(TUNED, ring_of_three(), on_loss="continue", patience=1.0, checkpoint_seconds=1e9)
    lab.kill[2] = 30
    lab.start_all()
    wait_without(lab)
    lab.start(2)
    lab.until(lambda: lab.rounds(2) > [0] and all(one.rounds.grid for one in lab.nodes.values()), "the first steps")
    lab.kill[2] = lab.rounds(2)[0] + 40
    wait_without(lab)
    lab.start(2)
    found = network_draws([run.path for run in lab.runs(range(3))])
    assert_same_draws(found, cs.sample(ring_of_three(), TUNED, tmp_path / "whole"), tolerance=1e-6)


def wait_without(lab):
    """Agent 2 dies; the others wait, much longer than they would if they could do without it."""
    assert isinstance(lab.until_ended(2), KilledError)
    waited = lab.clock.now() + 30
    lab.until(lambda: lab.clock.now() > waited, "half a minute")
    assert not any(lab.nodes[agent].rounds.edges.down() for agent in (0, 1))
    lab.kill.clear()


@pytest.mark.slow(reason="a network that warms up, one node of it twice")
def test_lost_after_the_warm_up_and_returned_with_minibatches(laboratory, states, monkeypatch):
    monkeypatch.setattr(node, "_LONGEST_SEGMENT", 20)  # so many steps between two checkpoints
    lab = laboratory(TUNED, ring_of_three(), on_loss="continue", patience=1.0, checkpoint_seconds=1e-6)
    lab.start_all()
    lab.until(lambda: len(lab.nodes) == 3 and lab.rounds(2) > [0], "the warm-up")
    lab.until(lambda: all(one.rounds.grid for one in lab.nodes.values()), "the first steps")
    lab.kill[2] = lab.rounds(2)[0] + 100 * lab.nodes[2].rounds.grid.exchanges + 1
    assert isinstance(lab.until_ended(2), KilledError)
    lab.until(lambda: present(lab.nodes[0]) == present(lab.nodes[1]) == [0, 1], "the loss")
    later = lab.rounds(0)[0] + 40
    lab.until(lambda: lab.rounds(0)[0] > later, "the others to go on")
    lab.kill.clear()
    lab.start(2)
    runs = lab.runs(range(3))
    assert sum_of_corrections(states, range(3)) < 1e-10
    for run in runs[:2]:
        counted = run.draws["participation"].to_numpy()
        assert counted[0].all()
        assert counted[-1].all()
        assert not counted[:, 2].all()
    assert runs[2].status["restarts"] == 1


def three_wards():
    """Three sites, of which the last knows more than the others."""
    return sites((4, 5, 60), seed=3)


@pytest.mark.slow(reason="a network of processes that loses one for good")
def test_real_processes_that_are_left(tmp_path):
    """Over TLS: one of three is killed, the others sample what they say together, with their private effects."""
    plan = cs.Plan(
        problem="tests.engines.peers.test_corrected_loss:three_wards", graph=cs.graphs.star(3), num_steps=3000,
        sampler=cs.kinetic(0.15, 2, friction=1.5, whitening="none"), num_chains=32, store_every=10, burn_in=100,
        dtype="float64",
    )  # fmt: skip
    allowed = ("tests.engines.peers.test_corrected_loss",)
    files = make_network(plan, tmp_path / "network", on_loss="continue", patience=2.0, allow=allowed)
    nodes = [Command("node", path) for path in files]
    with ended_at_last(nodes):
        wait_for_round(tmp_path / "network", 150)
        nodes[2].kill()
        nodes[2].wait(10)
        wait_for_success(nodes[:2], seconds=500)
    whole = merge([NodeSettings.load(files[agent]).run for agent in (0, 1)], tmp_path / "whole")
    assert 0 < whole.summary["participation"][2] < 1
    draws = whole.latest_draws["mean"].to_numpy()
    for part, contradicted in (([0, 1], False), ([0, 1, 2], True)):
        hessians, linear = quadratics(three_wards().of_agents(part))
        pull = hessians[:, 0, 1] / hessians[:, 1, 1]
        precision = (hessians[:, 0, 0] - pull * hessians[:, 0, 1]).sum()
        mean = (linear[:, 0] - pull * linear[:, 1]).sum() / precision
        for agent in (0, 1):
            found = draws[:, agent, 20:, None]  # the first ones remember the loss
            assert rejects_moments(found, np.array([mean]), np.array([1 / precision])) == contradicted
