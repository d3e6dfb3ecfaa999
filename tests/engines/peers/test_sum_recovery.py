"""Nodes that are killed anywhere, and replicas that take different decisions: the sums are those without it."""

import numpy as np
import pytest

import consilience as cs
from tests.engines.peers.test_masks import masks_for
from tests.engines.peers.test_sums import alone, replicas  # noqa: F401 - a fixture


def kill_everywhere(replicas, agent, algorithm, step):  # noqa: F811
    """Kill an agent before every `step`th thing it says or asks, in a network of its own each."""
    expected = alone(4, 6)
    for kills, left in enumerate(range(0, 1000, step)):
        network = replicas(cs.graphs.path(4), algorithm=algorithm, num_draws=6, checkpoint_every=2)
        network.kill[agent] = left
        for state in network.run():
            np.testing.assert_array_equal(state, expected)
        network.clock.abandon()
        if agent in network.kill:  # it was done before
            return kills
    raise AssertionError("it never ends")


@pytest.mark.parametrize(("agent", "algorithm", "step"), [(0, "tree", 3), (1, "tree", 7), (1, "flood", 9)])
def test_a_node_may_be_killed_before_anything_it_says(replicas, agent, algorithm, step):  # noqa: F811
    """A leaf and the root, with checkpoints now and then."""
    assert kill_everywhere(replicas, agent, algorithm, step) >= 3


@pytest.mark.slow(reason="a network for every message of every agent")
@pytest.mark.parametrize("algorithm", ["tree", "flood"])
@pytest.mark.parametrize("agent", [0, 1, 2])
def test_a_node_may_be_killed_before_everything_it_says(replicas, agent, algorithm):  # noqa: F811
    assert kill_everywhere(replicas, agent, algorithm, 1) > 8


@pytest.mark.parametrize("seed", range(4))
def test_many_nodes_may_be_killed_again_and_again(replicas, seed):  # noqa: F811
    rng = np.random.default_rng(seed)
    network = replicas(cs.graphs.barbell(6), algorithm=["tree", "flood"][seed % 2], num_draws=6)
    network.masks = masks_for(network.graph)
    network.kill = {agent: int(rng.integers(30)) for agent in range(6)}
    revive = network.revive

    def revive_and_kill_again():
        revive()
        if rng.random() < 0.02:
            network.kill.setdefault(int(rng.integers(6)), int(rng.integers(20)))

    network.revive = revive_and_kill_again
    for state in network.run():
        np.testing.assert_array_equal(state, alone(6, 6))
    network.assert_no_label_is_used_twice()


@pytest.mark.parametrize("left", [3, 9, 14, 20])
def test_all_nodes_may_be_killed_at_once(replicas, left):  # noqa: F811
    """Then what one agent's checkpoint is ahead of another's is on the disk of the first."""
    network = replicas(cs.graphs.path(4), num_draws=8)
    network.kill = dict.fromkeys(range(4), left)
    network.every = {0: 1, 1: 3, 2: 2, 3: 5}
    revive = network.revive

    def revive_when_all_are_dead():
        if all(turn.ended for turn in network.turns.values()):
            revive()

    def die_with_the_first(draw, attempt, count):
        network.kill = dict.fromkeys(network.kill, 0) if len(network.kill) < 4 else network.kill
        return count

    network.mislead = dict.fromkeys(range(4), die_with_the_first)
    network.revive = revive_when_all_are_dead
    for state in network.run():
        np.testing.assert_array_equal(state, alone(4, 8))


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
    network.assert_no_label_is_used_twice()


@pytest.mark.parametrize("seed", range(4))
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
    network.assert_no_label_is_used_twice()
