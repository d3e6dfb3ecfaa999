"""Nodes as processes of their own, over TLS, as users have them: killed and stopped, and no bit changes."""

import os
import random
import signal
import threading
import time

import numpy as np
import pytest

import consilience as cs
from consilience.deployment.merging import network_draws
from consilience.deployment.networks import make_network
from consilience.deployment.processes import network_status
from consilience.engines.peers.settings import NodeSettings
from tests.command import Command
from tests.engines.peers.running import ended_at_last, sample_by_peers, wait_for_success
from tests.engines.peers.test_network import plan_for, ring_of_five, ring_of_three

OPTIMISED = True  # as the processes are


def wait_until_all_sample(network, seconds=120):
    deadline = time.monotonic() + seconds
    while not all(one["here"] for one in network_status(network, 0.5)):
        assert time.monotonic() < deadline, "the nodes did not come up"


def test_real_processes_of_which_one_is_killed(tmp_path):
    """A network over TLS as users have it: one node is killed and started again, and no bit of the draws changes."""
    plan = plan_for(cs.graphs.ring(3)).replace(
        num_steps=2000, store_every=5, problem="tests.engines.peers.test_network:ring_of_three"
    )
    undisturbed, _ = sample_by_peers(plan, tmp_path / "quiet", ring_of_three())
    found, restarts = killed_at_random(plan, tmp_path / "network", waves=(1,), checkpoint_seconds=0.2)
    for name, values in undisturbed.items():
        np.testing.assert_array_equal(found[name], values)
    assert sum(restarts) == 1


@pytest.mark.slow(reason="20 kills of real processes, each of which takes seconds to come back")
def test_killed_and_stopped_nodes_change_nothing(tmp_path):
    """20 kills of one, several or all processes, then the draws of an undisturbed run, to the bit."""
    plan = plan_for(cs.graphs.ring(5)).replace(num_steps=6000, store_every=5)
    undisturbed, _ = sample_by_peers(plan, tmp_path / "quiet", ring_of_five())
    found, restarts = killed_at_random(
        plan, tmp_path / "network", waves=(1, 5, 4, 5, 5), pause=True, checkpoint_seconds=0.2
    )
    for name, values in undisturbed.items():
        np.testing.assert_array_equal(found[name], values)
    assert sum(restarts) == 20


def killed_at_random(plan, network, waves, pause=False, **options):
    """The draws of a network of processes of which so many are killed in each wave, and how often each was restarted.

    A wave comes when all are up, a random moment later. With `pause`, one process is stopped for a while too.
    """
    files, rng = make_network(plan, network, **options), random.Random(5)
    nodes = [Command("node", path) for path in files]
    with ended_at_last(nodes):
        for count in waves:
            wait_until_all_sample(network)
            threading.Event().wait(rng.uniform(0.0, 0.6))
            for agent in rng.sample(range(len(nodes)), count):
                nodes[agent].kill()
                nodes[agent].wait(10)
                nodes[agent] = Command("node", files[agent])
        wait_until_all_sample(network)
        if pause:
            os.kill(nodes[2].pid, signal.SIGSTOP)
            threading.Event().wait(1.5)
            os.kill(nodes[2].pid, signal.SIGCONT)
        wait_for_success(nodes)
    runs = [NodeSettings.load(path).run for path in files]
    return network_draws(runs), [cs.Run(run).summary["restarts"] for run in runs]
