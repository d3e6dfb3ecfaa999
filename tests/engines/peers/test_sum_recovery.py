"""Nodes that are killed anywhere, and replicas that take different decisions: the sums are those without it."""

import numpy as np
import pytest

import consilience as cs
from tests.engines.peers.test_sums import alone, replicas  # noqa: F401 - a fixture


@pytest.mark.parametrize("algorithm", ["tree", "flood"])
@pytest.mark.parametrize("agent", [0, 1, 2])
def test_a_node_may_be_killed_before_anything_it_says(replicas, agent, algorithm):  # noqa: F811
    """Before every message and question of a leaf, the root and an inner agent, with checkpoints now and then."""
    expected, kills = alone(4, 6), 0
    for left in range(200):
        network = replicas(cs.graphs.path(4), algorithm=algorithm, num_draws=6, checkpoint_every=2)
        network.kill[agent] = left
        for state in network.run():
            np.testing.assert_array_equal(state, expected)
        network.clock.abandon()
        if agent in network.kill:  # it was done before
            break
        kills += 1
    assert kills > 8


@pytest.mark.parametrize("seed", range(8))
def test_many_nodes_may_be_killed_again_and_again(replicas, seed):  # noqa: F811
    rng = np.random.default_rng(seed)
    network = replicas(cs.graphs.barbell(6), algorithm=["tree", "flood"][seed % 2], num_draws=6)
    network.kill = {agent: int(rng.integers(30)) for agent in range(6)}
    revive = network.revive

    def revive_and_kill_again():
        revive()
        if rng.random() < 0.02:
            network.kill.setdefault(int(rng.integers(6)), int(rng.integers(20)))

    network.revive = revive_and_kill_again
    for state in network.run():
        np.testing.assert_array_equal(state, alone(6, 6))


def test_what_all_have_passed_is_forgotten(replicas):  # noqa: F811
    network = replicas(cs.graphs.path(4), num_draws=30)
    network.run()
    for sums in network.sums.values():
        assert sums.lines.counts["operations"] > 60
        assert len(sums.lines.log) < 20


@pytest.mark.parametrize("algorithm", ["tree", "flood"])
@pytest.mark.parametrize("change", [-1, 1, 5])
@pytest.mark.parametrize("liar", [0, 1, 2, 3])
def test_other_decisions_make_all_repeat_the_draw(replicas, liar, change, algorithm):  # noqa: F811
    """One replica makes more totals in a draw, or fewer: all go back, also those that have begun the next."""
    network = replicas(cs.graphs.path(4), algorithm=algorithm)
    found = []

    def mislead(draw, attempt, count):
        if draw == 2 and attempt == 0:
            found.append(count)
            return max(1, count + change)
        return count

    network.mislead[liar] = mislead
    states = network.run()
    assert all((state == states[0]).all() for state in states)
    repeated = () if max(1, found[0] + change) == found[0] else (2,)
    assert all(sums.lines.retries.draws == repeated for sums in network.sums.values())


@pytest.mark.parametrize("seed", range(8))
def test_kills_while_a_draw_is_repeated(replicas, seed):  # noqa: F811
    rng = np.random.default_rng(seed)
    network = replicas(cs.graphs.ring(5), algorithm=["tree", "flood"][seed % 2], num_draws=6)
    network.mislead[int(rng.integers(5))] = lambda draw, attempt, count: (
        count + (draw in (1, 3) and attempt == draw // 2)
    )
    network.kill = {agent: int(rng.integers(40)) for agent in range(5)}
    states = network.run()
    assert all((state == states[0]).all() for state in states)
    assert all(sums.lines.retries.draws == (1, 3) for sums in network.sums.values())
