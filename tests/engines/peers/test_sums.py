"""Sums over a network: the same bits on every graph, by every algorithm, and after every kill."""

import numpy as np
import pytest

import consilience as cs
from consilience.engines.peers.sums import Sums
from tests.engines.peers.replicas import Replicas

GRAPHS = {
    "path": cs.graphs.path(5), "star": cs.graphs.star(5), "ring": cs.graphs.ring(5), "barbell": cs.graphs.barbell(5),
}  # fmt: skip


@pytest.fixture
def replicas(tmp_path):
    made = []

    def make(graph, **options):
        made.append(Replicas(graph, tmp_path, **options))
        return made[-1]

    yield make
    for one in made:
        one.clock.abandon()


@pytest.mark.parametrize("algorithm", ["tree", "flood"])
@pytest.mark.parametrize("graph", GRAPHS)
def test_all_replicas_end_with_the_same_bits(replicas, graph, algorithm):
    expected = alone(5)
    for state in replicas(GRAPHS[graph], algorithm=algorithm).run():
        np.testing.assert_array_equal(state, expected)


def alone(num_agents, num_draws=4):
    """What replicas end with, by NumPy's sums."""
    from tests.engines.peers.replicas import NUM_WORDS, own_words

    state = np.zeros(NUM_WORDS, np.uint64)
    for draw in range(num_draws + 1):
        for operation in range(1 + int(state.sum() % 3) if draw < num_draws else 1):
            words = np.sum(
                [own_words(agent, state, operation, 0) for agent in range(num_agents)], axis=0, dtype=np.uint64
            )
            state = state * np.uint64(3) + words
    return state


def test_one_agent_is_its_own_sum():
    sums = Sums(0, cs.graphs.path(1), "run", 10)
    words = np.array([1, 2**64 - 1], np.uint64)
    sums.begin_draw(0, 0)
    assert sums.adopt(words).tolist() == words.tolist()
    assert sums.total(words).tolist() == words.tolist()
