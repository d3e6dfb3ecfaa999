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
from tests.engines.peers.test_network import plan_for, ring_of_three, sensors

OPTIMISED = True  # as the processes are


def wait_for_round(network, number, seconds=120):
    """Wait until all nodes are up and have made so many rounds."""
    deadline = time.monotonic() + seconds
    while not all(one["here"] and one["round"] >= number for one in network_status(network, 0.5)):
        assert time.monotonic() < deadline, f"the nodes did not come to round {number}"


@pytest.mark.slow(reason="five processes, one of them started twice")
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


def barbell_of_six():
    """Two triangles and a bridge, with weights of their own."""
    edges = [(0, 1), (0, 2), (1, 2), (2, 3), (3, 4), (3, 5), (4, 5)]
    return cs.graphs.from_edges(6, edges, weights=[1.0, 0.5, 1.0, 2.0, 0.7, 1.0, 1.3])


def sensors_of_six():
    return sensors((4, 9, 6, 5, 7, 3))


@pytest.mark.slow(reason="40 kills of real processes, each of which takes seconds to come back")
def test_killed_and_stopped_nodes_change_nothing(tmp_path):
    """40 kills spread over the whole length of a run, then the draws of an undisturbed one, to the bit."""
    plan = plan_for(barbell_of_six()).replace(
        num_steps=9000, store_every=5, problem="tests.engines.peers.test_kills:sensors_of_six"
    )
    undisturbed, _ = sample_by_peers(plan, tmp_path / "quiet", sensors_of_six())
    found, restarts = killed_at_random(
        plan, tmp_path / "network", waves=(6, 5, 6, 6, 5, 6, 6), pause=True, checkpoint_seconds=0.2
    )
    for name, values in undisturbed.items():
        np.testing.assert_array_equal(found[name], values)
    assert sum(restarts) == 40


def killed_at_random(plan, network, waves, pause=False, until=0.9, **options):
    """The draws of a network of processes of which so many are killed in each wave, and how often each was restarted.

    Waves are spread over a share of all rounds: nodes go on while they are asked for their round, and must not be
    done when a wave comes. A process is killed at a random moment after that. With `pause`, one process is stopped
    for a while too.
    """
    files, rng = make_network(plan, network, **options), random.Random(5)
    nodes = [Command("node", path) for path in files]
    with ended_at_last(nodes):
        for wave, count in enumerate(waves):
            wait_for_round(network, (wave + rng.random()) * until * plan.num_steps / len(waves))
            for agent in rng.sample(range(len(nodes)), count):
                threading.Event().wait(rng.uniform(0.0, 0.1))
                nodes[agent].kill()
                nodes[agent].wait(10)
                nodes[agent] = Command("node", files[agent])
        wait_for_round(network, 0)
        if pause:
            os.kill(nodes[2].pid, signal.SIGSTOP)
            threading.Event().wait(1.5)
            os.kill(nodes[2].pid, signal.SIGCONT)
        wait_for_success(nodes)
    runs = [NodeSettings.load(path).run for path in files]
    return network_draws(runs), [cs.Run(run).summary["restarts"] for run in runs]
