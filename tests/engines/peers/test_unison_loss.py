"""Networks in unison that continue without a lost agent: processes are killed, and the others sample what is left."""

import time

import numpy as np
import pytest

import consilience as cs
from consilience.deployment.merging import merge
from consilience.deployment.networks import make_network
from consilience.deployment.processes import network_status
from consilience.engines.peers.settings import NodeSettings
from tests.command import Command
from tests.engines.peers.running import ended_at_last, wait_for_success
from tests.engines.peers.test_kills import wait_for_round
from tests.hierarchical import quadratics, sites
from tests.statistical import rejects_moments


def four_wards():
    """Four sites, of which one knows more than the others."""
    return sites((4, 5, 60, 12), seed=3)


PLAN = cs.Plan(
    problem="tests.engines.peers.test_unison_loss:four_wards", graph=cs.graphs.ring(4), sampler=cs.hmc(),
    num_warmup=100, num_draws=1200, num_chains=4, seed=4,
)  # fmt: skip


def started(plan, place, **options):
    """The files of a network that continues, and its processes."""
    files = make_network(plan, place, checkpoint_seconds=0.2, on_loss="continue", **options)
    return files, [Command("node", path) for path in files]


def posterior(problem):
    """Mean and variance of the shared mean: private effects integrated out, the prior counted once."""
    hessians, linear = quadratics(problem)
    pull = hessians[:, 0, 1] / hessians[:, 1, 1]
    precision = (hessians[:, 0, 0] - pull * hessians[:, 0, 1]).sum()
    return (linear[:, 0] - pull * linear[:, 1]).sum() / precision, 1 / precision


def contradict(run, agents):
    """Whether the latest draws of a run are not those of the posterior of some agents (false alarms: 1e-6)."""
    mean, variance = posterior(four_wards().of_agents(agents))
    return rejects_moments(run.latest_draws["mean"].to_numpy()[..., None], np.array([mean]), np.array([variance]))


def wait_for_loss(network, agents, seconds=120):
    """Wait until some agents sample without another."""
    deadline = time.monotonic() + seconds
    while not all(one.get("present", agents) != [0, 1, 2, 3] for one in network_status(network, 0.5) if one["here"]):
        assert time.monotonic() < deadline, "nobody was lost"


@pytest.mark.slow(reason="a network of processes that loses one for good")
def test_those_that_are_left_sample_their_posterior_and_say_so(tmp_path):
    files, nodes = started(PLAN, tmp_path / "network", patience=2.0)
    with ended_at_last(nodes):
        wait_for_round(tmp_path / "network", 150)
        nodes[2].kill()
        nodes[2].wait(10)
        wait_for_success([nodes[agent] for agent in (0, 1, 3)])
    runs = [NodeSettings.load(files[agent]).run for agent in (0, 1, 3)]
    whole = merge(runs, tmp_path / "whole")
    took_part = whole.draws["participation"].to_numpy()[0]
    assert took_part[0].all()
    assert took_part[-1].tolist() == [True, True, False, True]
    assert 0 < whole.summary["participation"][2] < 1
    assert not contradict(whole, [0, 1, 3])
    assert contradict(whole, [0, 1, 2, 3]), "the control: the posterior of everybody is another one"
    assert "missing from some of its draws" in cs.Run(whole.path).report().read_text()


@pytest.mark.slow(reason="a network of processes that loses one, which comes back")
def test_an_agent_that_comes_back_counts_again(tmp_path):
    files, nodes = started(PLAN, tmp_path / "network", patience=1.0)
    with ended_at_last(nodes):
        wait_for_round(tmp_path / "network", 150)
        nodes[2].kill()
        nodes[2].wait(10)
        wait_for_loss(tmp_path / "network", [0, 1, 3])
        nodes[2] = Command("node", files[2])
        wait_for_success(nodes)
    runs = [NodeSettings.load(path).run for path in files]
    for run in map(cs.Run, runs):
        assert run.draws["participation"].to_numpy()[-1].all()
    whole = merge(runs, tmp_path / "whole", four_wards())
    assert not contradict(whole, [0, 1, 2, 3])
    assert contradict(whole, [0, 1, 3])


@pytest.mark.slow(reason="a network of processes that loses one")
def test_two_agents_that_are_left_do_not_lose_their_masks(tmp_path):
    plan = PLAN.replace(problem="tests.hierarchical:wards", graph=cs.graphs.path(3), num_draws=5000)
    _, nodes = started(plan, tmp_path / "network", patience=1.0)
    with ended_at_last(nodes):
        wait_for_round(tmp_path / "network", 15)
        nodes[2].kill()
        nodes[2].wait(10)
        for node in nodes[:2]:
            _, said = node.communicate(timeout=120)
            assert node.returncode != 0
            assert "masks hide nothing between two" in said
