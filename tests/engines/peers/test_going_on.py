"""Networks that go on without a lost agent, held against the exact law of what they then sample.

The problem is Gaussian, so the mean and the covariance of all agents after many rounds are known: those of the
stationary law of `x ← A x + b + noise` with `A = I − β L − α n H`. Every test has several hundred chains, independent
of each other; a z-score beyond 4.5 in one of six numbers happens once in 20,000 runs of a sound program.
"""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import numpy as np
import pytest

import consilience as cs
from consilience.deployment import nodes
from consilience.deployment.merging import merge
from consilience.deployment.networks import make_network
from consilience.engines.peers.node import Node
from consilience.engines.peers.settings import NodeSettings
from consilience.theory.gaussian import GaussianNetwork
from tests.command import Command
from tests.engines.peers.test_network import ring_of_five

OPTIMISED = True
STEP_SIZE, CONSENSUS, CHAINS = 0.004, 0.2, 600
_LIMIT = 4.5
_ROUNDS = 700
_SECONDS = 200


def plan_of(num_steps):
    return cs.Plan(
        problem="tests.engines.peers.test_network:ring_of_five", graph=cs.graphs.ring(5), num_steps=num_steps,
        sampler=cs.dula(STEP_SIZE, CONSENSUS), num_chains=CHAINS, store_every=10,
    )  # fmt: skip


def stationary_law(members, edges):
    """Mean and covariance of the average of some of the agents, joined by some of the edges."""
    quadratics = GaussianNetwork.of(ring_of_five(), cs.graphs.ring(5))
    size = quadratics.precisions.shape[-1]
    place = {agent: number for number, agent in enumerate(members)}
    laplacian = np.zeros((len(members),) * 2)
    for i, j in ((place[i], place[j]) for i, j in edges):
        laplacian[[i, j], [i, j]] += 1
        laplacian[[i, j], [j, i]] -= 1
    pull = np.kron(CONSENSUS * laplacian, np.eye(size))
    drift = np.zeros_like(pull)
    for agent, number in place.items():
        here = slice(number * size, (number + 1) * size)
        drift[here, here] = 5 * STEP_SIZE * quadratics.precisions[agent]
    step = np.eye(len(pull)) - pull - drift
    push = 5 * STEP_SIZE * np.concatenate([quadratics.linear[agent] for agent in members])
    mean = np.linalg.solve(np.eye(len(step)) - step, push)
    covariance = np.zeros_like(step)
    for _ in range(3000):
        covariance = step @ covariance @ step.T + 2 * 5 * STEP_SIZE * np.eye(len(step))
    average = np.kron(np.ones((1, len(members))) / len(members), np.eye(size))
    return average @ mean, average @ covariance @ average.T


def scores(draws, law):
    """z-scores of the means and of the variances over chains, `draws` being `(chains, size)`."""
    mean, covariance = law
    variances = np.diag(covariance)
    of_means = (draws.mean(0) - mean) / np.sqrt(variances / len(draws))
    of_variances = (draws.var(0, ddof=1) / variances - 1) * np.sqrt((len(draws) - 1) / 2)
    return np.abs(np.concatenate([of_means, of_variances]))


def last_average(runs):
    return np.mean([np.asarray(run.draws["w"])[:, 0, -1] for run in runs], 0)


class KilledError(Exception):
    """Instead of `kill -9`, for a node that is a thread."""


class Watched(Node):
    """Nodes that a test can slow down, cut off from each other and kill at a round; they are kept to be looked at.

    A slow network makes at most 20 rounds a second, so that what a test waits for happens within some rounds.
    """

    made: ClassVar[dict] = {}
    cut: ClassVar[set] = set()
    kill: ClassVar[dict] = {}
    slow_after: ClassVar[float] = 0

    def __init__(self, problem, plan, settings):
        super().__init__(problem, plan, settings)
        Watched.made[settings.agent] = self

    def _apart(self, number):
        return frozenset((self.settings.agent, number)) in Watched.cut

    def _receive(self, number, content):
        if not self._apart(number):
            super()._receive(number, content)

    def _ask(self, number, what, content=None):
        return None if self._apart(number) else super()._ask(number, what, content)

    def _grant_edge(self, number, content):
        return None if self._apart(number) else super()._grant_edge(number, content)

    def _publish(self, k, message):
        if k >= Watched.kill.get(self.settings.agent, k + 1):
            raise KilledError
        if k >= Watched.slow_after:
            time.sleep(0.05)
        super()._publish(k, message)


@pytest.fixture
def watched(monkeypatch):
    monkeypatch.setattr(Watched, "made", {})
    monkeypatch.setattr(Watched, "cut", set())
    monkeypatch.setattr(Watched, "kill", {})
    monkeypatch.setattr(Watched, "slow_after", 60)
    monkeypatch.setattr(nodes, "Node", Watched)
    return Watched


def wait_for(condition, what, seconds=_SECONDS):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.02)


def drift_of_ledgers(made):
    """The largest amount that the two ends of an edge do not agree on."""
    found = 0.0
    for agent, node in made.items():
        for number in node.weights:
            both = node.edges._ledger[number] + made[number].edges._ledger[agent]
            found = max(found, np.abs(both).max())
    return found


def start_all(threads, files):
    problem = ring_of_five()
    return [
        threads.submit(nodes.run_node, NodeSettings.load(path), problem.of_agent(agent))
        for agent, path in enumerate(files)
    ]


ALL, RING = range(5), [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)]


def present(node):
    return np.flatnonzero(node._present).tolist()


def test_a_process_lost_for_good(tmp_path, watched):
    """Agent 2 is killed: the others finish, and sample what the data of the four says."""
    network = tmp_path / "network"
    files = make_network(plan_of(_ROUNDS), network, on_loss="continue", patience=2.0)
    lost = Command("node", files[2])
    problem, survivors = ring_of_five(), [0, 1, 3, 4]
    try:
        with ThreadPoolExecutor(4) as threads:
            jobs = [
                threads.submit(nodes.run_node, NodeSettings.load(files[agent]), problem.of_agent(agent))
                for agent in survivors
            ]
            wait_for(lambda: len(watched.made) == 4 and watched.made[0].round > 65, "round 65")
            lost.kill()
            wait_for(lambda: all(present(node) == survivors for node in watched.made.values()), "the loss")
            watched.slow_after = np.inf
            runs = [job.result(timeout=_SECONDS) for job in jobs]
    finally:
        lost.kill()
        lost.wait(10)
    average = last_average(runs)
    assert scores(average, stationary_law(survivors, [(3, 4), (4, 0), (0, 1)])).max() < _LIMIT
    assert scores(average, stationary_law(ALL, RING)).max() > _LIMIT  # the control: not what all five say
    for run in runs:
        share = run.summary["participation"]
        assert 0 < share[2] < 0.9
        assert [share[agent] for agent in survivors] == [1.0] * 4
        assert run.draws["participation"].to_numpy()[-1].tolist() == [True, True, False, True, True]
        assert "the data of agent 2" in run.report().read_text()
    together = merge([run.path for run in runs], tmp_path / "survivors")
    assert together.draws["agent"].to_numpy().tolist() == survivors
    assert "the data of agent 2" in together.report().read_text()


def test_lost_and_returned(tmp_path, watched):
    """Agent 2 dies without a checkpoint of its last rounds, and comes back when the others have gone on."""
    files = make_network(plan_of(_ROUNDS), tmp_path / "n", on_loss="continue", patience=1.0, checkpoint_seconds=0.3)
    watched.kill[2] = 80
    with ThreadPoolExecutor(5) as threads:
        jobs = start_all(threads, files)
        with pytest.raises(KilledError):
            jobs[2].result(timeout=_SECONDS)
        wait_for(lambda: watched.made[1].round > 100 and watched.made[3].round > 100, "the others to go on")
        watched.kill.clear()
        jobs[2] = threads.submit(nodes.run_node, NodeSettings.load(files[2]), ring_of_five().of_agent(2))
        wait_for(lambda: not any(2 in node.edges.lost() for node in watched.made.values()), "edges")
        wait_for(lambda: all(present(node) == [*ALL] for node in watched.made.values()), "its return")
        watched.slow_after = np.inf
        runs = [job.result(timeout=_SECONDS) for job in jobs]
    assert drift_of_ledgers(watched.made) < 1e-4  # tests/engines/peers/test_edges.py has the controls
    assert scores(last_average(runs), stationary_law(ALL, RING)).max() < _LIMIT
    numbers = runs[2].draws["draw"].to_numpy()
    assert len(numbers) <= _ROUNDS // 10
    assert numbers[-1] == _ROUNDS // 10 - 1
    assert 0 < runs[0].summary["participation"][2] < 1
    assert runs[0].draws["participation"].to_numpy()[[0, -1]].all()


def test_a_partition_and_its_healing(tmp_path, watched):
    files = make_network(plan_of(_ROUNDS), tmp_path / "n", on_loss="continue", patience=1.0)
    parts = ([0, 1], [2, 3, 4])
    with ThreadPoolExecutor(5) as threads:
        jobs = start_all(threads, files)
        wait_for(lambda: len(watched.made) == 5 and watched.made[0].round > 65, "round 65")
        watched.cut |= {frozenset((1, 2)), frozenset((4, 0))}
        wait_for(lambda: all(present(watched.made[agent]) == part for part in parts for agent in part), "two parts")
        watched.cut.clear()
        wait_for(lambda: all(present(node) == [*ALL] for node in watched.made.values()), "one network")
        wait_for(lambda: not any(node.edges.lost() for node in watched.made.values()), "all edges")
        watched.slow_after = np.inf
        runs = [job.result(timeout=_SECONDS) for job in jobs]
    assert drift_of_ledgers(watched.made) < 1e-4
    assert scores(last_average(runs), stationary_law(ALL, RING)).max() < _LIMIT
    for part in parts:
        for agent in part:
            share = np.array(runs[agent].summary["participation"])
            assert (share[part] == 1).all()
            assert (share[[other for other in ALL if other not in part]] < 1).all()


def test_a_neighbour_that_keeps_sending_nonsense_counts_as_lost(tmp_path, watched):
    """Agent 2's messages are damaged on their way at some round: its neighbours go on without it."""
    files = make_network(plan_of(300), tmp_path / "n", on_loss="continue", patience=30.0)
    damaged = threading.Event()

    def receive(node, number, content):
        Node._receive(node, number, b"nonsense" if number == 2 and damaged.is_set() else content)

    watched._receive = receive
    try:
        with ThreadPoolExecutor(5) as threads:
            jobs = start_all(threads, files)
            wait_for(lambda: len(watched.made) == 5 and watched.made[0].round > 65, "round 65")
            damaged.set()
            for node in (watched.made[1], watched.made[3]):
                for _ in range(100):
                    node._receive(2, b"")
            watched.slow_after = np.inf
            runs = [job.result(timeout=_SECONDS) for job in jobs]
    finally:
        del watched._receive
    assert 0 < runs[0].summary["participation"][2] < 1
    assert runs[1].summary["messages"]["rejected"] >= 100
