"""Nodes in unison as processes of their own: one set of draws whatever the sums, the masks and the kills."""

import threading

import numpy as np
import pytest

import consilience as cs
from consilience.deployment.merging import merge, shared_digest
from consilience.deployment.networks import make_network
from consilience.engines.peers.settings import NodeSettings
from consilience.engines.peers.unison_node import UnisonNode
from consilience.errors import NetworkError, PlanError
from tests.command import Command
from tests.engines.peers.running import ended_at_last, wait_for_success
from tests.engines.peers.test_kills import wait_for_round
from tests.hierarchical import wards

OPTIMISED = True  # as the processes are

PLAN = cs.Plan(
    problem="tests.hierarchical:wards", graph=cs.graphs.path(3), sampler=cs.hmc(), num_warmup=60, num_draws=40,
    num_chains=2, seed=4,
)  # fmt: skip


def sampled(plan, place, kill=(), **options):
    """The run of a network of processes; those in `kill` are killed in the middle, and started again."""
    files = make_network(plan, place / "network", allow=("tests.hierarchical",), checkpoint_seconds=0.2, **options)
    nodes = [Command("node", path) for path in files]
    with ended_at_last(nodes):
        for agent in kill:
            wait_for_round(place / "network", 15)
            nodes[agent].kill()
            nodes[agent].wait(10)
            nodes[agent] = Command("node", files[agent])
            threading.Event().wait(0.5)
        wait_for_success(nodes)
    runs = [NodeSettings.load(path).run for path in files]
    digests = {shared_digest(cs.Run(run)) for run in runs}
    assert len(digests) == 1
    return merge(runs, place / "whole", wards()), digests.pop()


@pytest.fixture(scope="module")
def masked(tmp_path_factory):
    """Undisturbed, over TLS, masked, on a tree."""
    return sampled(PLAN, tmp_path_factory.mktemp("masked"))


@pytest.mark.slow(reason="two networks of processes")
def test_other_sums_without_masks_on_another_graph_have_the_same_bits(masked, tmp_path):
    plan = PLAN.replace(masked=False, summation="flood", graph=cs.graphs.ring(3))
    plain, digest = sampled(plan, tmp_path, insecure=True)
    assert digest == masked[1]
    np.testing.assert_array_equal(plain.draws["effect"], masked[0].draws["effect"])


@pytest.mark.slow(reason="a network of processes of which two are killed")
def test_killed_nodes_change_nothing(masked, tmp_path):
    """The root and a leaf; they replay the totals that they missed."""
    found, digest = sampled(PLAN, tmp_path, kill=(1, 2))
    assert digest == masked[1]
    np.testing.assert_array_equal(found.draws["effect"], masked[0].draws["effect"])
    assert [node["restarts"] for node in found.summary["nodes"]] == [0, 1, 1]


@pytest.mark.slow(reason="a network of processes")
def test_the_first_draws_are_those_of_simulate(masked):
    """Local gradients round differently, by which replicas of two engines part slowly; while they warm up too."""
    simulated = cs.sample(wards(), PLAN)
    ours, theirs = (run.metrics["energy"].to_numpy()[:, :10] for run in (masked[0], simulated))
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    assert masked[0].draws.sizes == simulated.draws.sizes


def test_what_nodes_in_unison_refuse(tmp_path):
    files = make_network(PLAN.replace(graph=cs.graphs.path(2), masked=True), tmp_path / "two", insecure=True)
    with pytest.raises(NetworkError, match="masks hide nothing between two agents"):
        UnisonNode(wards().of_agent(0), cs.Plan.load(tmp_path / "two" / "plan.toml"), NodeSettings.load(files[0]))
    files = make_network(PLAN.replace(sampler=cs.nuts()), tmp_path / "nuts", insecure=True)
    with pytest.raises(PlanError, match="does not take private parameters"):
        UnisonNode(wards().of_agent(0), PLAN.replace(sampler=cs.nuts()), NodeSettings.load(files[0]))
