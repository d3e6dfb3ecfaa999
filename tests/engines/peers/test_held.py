"""What nodes in unison adopt of each other's replicas."""

import jax
import numpy as np
import pytest

import consilience as cs
from consilience.engines.peers.held import CommonWords
from consilience.engines.unison import OneProcess, Replicas
from tests.hierarchical import sites

WARMUP, MOVES = 60, 12


@pytest.fixture(
    scope="module", params=[pytest.param("nuts", marks=pytest.mark.slow(reason="one more sampler to compile")), "hmc"]
)
def replicas(request):
    """Replicas after each of some moves, of which the first warm up."""
    sampler = cs.nuts() if request.param == "nuts" else cs.hmc()
    problem = sites((4, 5)) if request.param == "hmc" else shared_only()
    plan = cs.Plan(graph=cs.graphs.path(2), sampler=sampler, num_warmup=WARMUP, num_draws=MOVES, num_chains=2, seed=1)
    with jax.enable_x64(True):
        programs = Replicas(problem, plan, OneProcess(2), 0)
        found = [programs.initial_state()]
        for step in range(WARMUP + MOVES):
            found.append(programs.moved(found[-1], step, 1)[0])
    return found


def shared_only():
    rows = np.random.default_rng(3).normal(size=(2, 6, 1))
    return cs.Problem(
        shards=list(rows), init=lambda key: 0.0 * jax.random.normal(key, (2,)),
        log_prior=lambda w: -0.5 * (w**2).sum(), log_likelihood=lambda w, rows: -0.5 * (rows[:, 0] - w.sum()) ** 2,
    )  # fmt: skip


def test_after_the_warm_up_moves_change_only_what_is_then_adopted(replicas):
    whole, moving = CommonWords(replicas[0]), CommonWords(replicas[0], after_warmup=True)
    found = [whole.of(one)[moving.size :] for one in replicas]
    for later in found[WARMUP + 1 :]:
        np.testing.assert_array_equal(later, found[WARMUP])
    assert (found[WARMUP - 1] != found[WARMUP]).any(), "the control: the warm-up changes the rest"
    assert (moving.of(replicas[-1]) != moving.of(replicas[WARMUP])).any(), "draws move"


@pytest.mark.parametrize("after_warmup", [False, True])
def test_words_bring_back_what_they_were_made_of(replicas, after_warmup):
    words = CommonWords(replicas[0], after_warmup)
    with jax.enable_x64(True):
        brought = words.adopted(replicas[-2], words.of(replicas[-1]))
    np.testing.assert_array_equal(words.of(brought), words.of(replicas[-1]))
    np.testing.assert_array_equal(brought.private, replicas[-2].private)
    assert [leaf.dtype for leaf in jax.tree.leaves(brought)] == [leaf.dtype for leaf in jax.tree.leaves(replicas[-1])]


def moved_alike(replica, rounds_up):
    """A move that magnifies every difference, on a processor that rounds up or does not."""
    shared = 4 * replica.shared * (1 - replica.shared)
    return replica._replace(shared=np.nextafter(shared, 1) if rounds_up else shared)


def test_without_adoption_replicas_that_round_differently_part(replicas):
    """The control of what nodes do at the start of every move: with it there is no bit between them."""
    words = CommonWords(replicas[0])
    first = replicas[0]._replace(shared=np.full_like(replicas[0].shared, 0.3))
    root = adopting = alone = first
    with jax.enable_x64(True):
        for _ in range(60):
            root, adopting, alone = moved_alike(root, False), moved_alike(adopting, True), moved_alike(alone, True)
            assert (words.of(adopting) != words.of(root)).any(), "the processors do round differently"
            adopting = words.adopted(adopting, words.of(root))
            adopting = adopting._replace(shared=np.asarray(adopting.shared))
    np.testing.assert_array_equal(words.of(adopting), words.of(root))
    assert np.abs(alone.shared - root.shared).max() > 1e-3
