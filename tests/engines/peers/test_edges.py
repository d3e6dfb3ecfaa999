"""Ledgers: whatever is lost on the way, two ends that have compared theirs leave the average where it was."""

import numpy as np
import pytest

from consilience.engines.peers.edges import Edges
from consilience.engines.peers.messages import Message

PULL, SHAPE = 0.2, (2, 3)


class End:
    """One of two agents that only mix, so that the sum of their positions must stay the same."""

    def __init__(self, agent, other, rng):
        self.edges = Edges(agent, {other: 0.7}, [SHAPE], 2)
        self.other, self.position, self.round = other, rng.normal(size=SHAPE), 0

    def mix(self, sent, received):
        position, life = sent
        message = Message(self.other, self.round, 0, (position,), np.zeros(2, int), life)
        found = {self.other: message} if received else {}
        self.edges.used(self.round)
        (others,) = self.edges.settle(self.round, (self.position,), found, PULL)
        self.position = self.position - PULL * 0.7 * (self.position - others[0])
        self.round += 1


def both_mix(a, b, a_hears=True, b_hears=True):
    first, second = (a.position, a.edges.life), (b.position, b.edges.life)
    a.mix(second, a_hears)
    b.mix(first, b_hears)


def rejoin(a, b, answered=True):
    """`a` asks for the edge; its answer may be lost."""
    first = max(a.round, b.round) + 3
    mine = a.edges.ask(a.edges_number)
    theirs = b.edges.accept(b.edges_number, first, mine, b.round, a.round)
    return a.edges.agreed(a.edges_number, first, theirs if answered else None, a.round, b.round)


def two_ends():
    rng = np.random.default_rng(5)
    a, b = End(0, 1, rng), End(1, 0, rng)
    a.edges_number, b.edges_number = 1, 0
    return a, b, a.position + b.position


def test_one_sided_rounds_are_made_good():
    a, b, total = two_ends()
    both_mix(a, b)
    np.testing.assert_allclose(a.position + b.position, total)
    both_mix(a, b, b_hears=False)
    assert np.abs(a.position + b.position - total).max() > 0.01  # the control: without ledgers it would stay so
    a.edges.lose(1)
    assert rejoin(a, b)
    for _ in range(6):
        both_mix(a, b)
    np.testing.assert_allclose(a.position + b.position, total)
    assert a.edges.is_up(1)
    assert b.edges.is_up(0)


def test_a_lost_answer_is_made_good_by_the_next_comparison():
    a, b, total = two_ends()
    both_mix(a, b, a_hears=False)
    a.edges.lose(1)
    assert not rejoin(a, b, answered=False)  # b believes that they agreed
    for _ in range(5):
        both_mix(a, b)
    assert np.abs(a.position + b.position - total).max() > 1e-3
    assert rejoin(a, b)
    for _ in range(6):
        both_mix(a, b)
    np.testing.assert_allclose(a.position + b.position, total)


@pytest.mark.parametrize("answers_lost", [0, 1, 3])
def test_an_end_that_begins_anew_owes_nothing(answers_lost):
    """Its whole run was lost: what had flowed over the edge for long must not move anybody at once.

    Whatever answers are lost before they agree: the new end then uses the edge alone for a while.
    """
    a, b, _ = two_ends()
    for _ in range(200):
        a.position = a.position + 1.0  # a and b pull in different ways, so much flows
        both_mix(a, b)
        b.position = b.position - 1.0
    assert np.abs(a.edges.record().ledger[0]).max() > 10
    b.edges = Edges(1, {0: 0.7}, [SHAPE], 2)
    a.edges.lose(1)
    b.edges.lose(0)
    b.position = a.position - 0.1
    for _ in range(answers_lost):
        assert not rejoin(a, b, answered=False)
        for _ in range(5):
            both_mix(a, b)
    before = a.position + b.position
    assert rejoin(a, b)
    for _ in range(8):
        both_mix(a, b)
    np.testing.assert_allclose(a.position + b.position, before)
    assert a.edges.anew
    assert b.edges.anew


def test_a_killed_end_resumes_from_its_checkpoint():
    """What it did after the checkpoint is gone from its memory, not from its neighbour's position."""
    a, b, total = two_ends()
    for _ in range(3):
        both_mix(a, b)
    position, record = b.position, b.edges.record()
    for _ in range(4):
        both_mix(a, b)
    b.position = position
    b.edges = Edges(1, {0: 0.7}, [SHAPE], 2)
    b.edges.restore(record)
    a.edges.lose(1)
    b.edges.lose(0)
    assert rejoin(a, b)
    for _ in range(8):
        both_mix(a, b)
    np.testing.assert_allclose(a.position + b.position, total)


def test_of_two_wishes_at_once_the_lower_number_has_its_way():
    a, b, _ = two_ends()
    a.edges.lose(1)
    b.edges.lose(0)
    of_a, of_b = a.edges.ask(1), b.edges.ask(0)
    assert a.edges.accept(1, 10, of_b, 0, 0) is None
    theirs = b.edges.accept(0, 12, of_a, 0, 0)
    assert b.edges.agreed(0, 10, None, 0, 0) is False
    assert a.edges.agreed(1, 12, theirs, 0, 0)
    assert a.edges.used(12) == [1]
    assert b.edges.used(11) == []
    assert b.edges.used(12) == [0]


def test_a_wish_for_a_round_that_is_past_is_refused():
    a, b, _ = two_ends()
    a.edges.lose(1)
    assert b.edges.accept(0, 5, a.edges.ask(1), 4, 0) is None
    assert b.edges.is_up(0)


@pytest.mark.parametrize(("behind", "jumps"), [(10, False), (1000, True)])
def test_who_is_far_behind_takes_up_the_others_round(behind, jumps):
    a, b, _ = two_ends()
    a.edges.lose(1)
    b.edges.accept(0, behind + 20, a.edges.ask(1), 0, behind)
    assert b.edges.must_jump(0) == jumps
    assert b.edges.jump(0) == (behind if jumps else 0)


def test_presence_fades_when_no_news_comes():
    edges = Edges(0, {1: 1.0, 4: 1.0}, [SHAPE], 5)
    message = (np.zeros(SHAPE),)
    for k in range(20):
        heard = np.array([k - 1, k, k - 1, min(k, 7), k])  # agent 3 is gone after round 7
        came = {1: Message(1, k, 0, message, np.maximum(heard, 0)), 4: Message(4, k, 0, message, np.zeros(5, int))}
        edges.settle(k, message, came, PULL)
        assert edges.present(k).tolist() == [True, True, True, k - 7 < 5, True]
