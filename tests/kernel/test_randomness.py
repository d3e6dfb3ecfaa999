import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.extend.random import threefry2x32_p
from scipy import stats

from consilience.kernel.randomness import (
    Purpose,
    agent_keys,
    replaced_rows,
    shuffled_row,
    shuffled_rows,
    threefry,
)

FALSE_ALARM = 1e-4


def test_the_hash_is_the_one_of_jax():
    words = [jax.random.bits(jax.random.key(i), (1000,), jnp.uint32) for i in range(4)]
    for ours, theirs in zip(threefry(*words), threefry2x32_p.bind(*words), strict=True):
        assert (ours == theirs).all()


def test_keys_are_the_ones_of_jax_known_or_traced():
    chains, agents = np.array([0, 7]), np.array([3, 0, 2**31 + 5])
    found = agent_keys(2**32 - 1, Purpose.BATCH, chains, agents)
    make = jax.jit(lambda *numbers: agent_keys(2**32 - 1, Purpose.BATCH, *numbers))
    traced = make(chains, agents.astype(np.uint32))
    root = jax.random.fold_in(jax.random.key(2**32 - 1, impl="threefry2x32"), Purpose.BATCH)
    for place, key in np.ndenumerate(np.asarray(jax.random.key_data(found)).view("u4,u4")[..., 0]):
        own = jax.random.fold_in(jax.random.fold_in(root, chains[place[0]]), np.uint32(agents[place[1]]))
        assert tuple(np.asarray(jax.random.key_data(own))) == tuple(key)
    assert found.shape == (2, 3)
    assert (jax.random.key_data(found) == jax.random.key_data(traced)).all()


def test_keys_depend_on_seed_purpose_chain_and_agent_alone():
    whole = agent_keys(3, Purpose.NOISE, np.arange(4), np.arange(6))
    part = agent_keys(3, Purpose.NOISE, np.array([2]), np.array([1, 5]))
    assert (jax.random.key_data(whole[2, jnp.array([1, 5])]) == jax.random.key_data(part[0])).all()
    words = np.asarray(jax.random.key_data(whole)).reshape(-1, 2)
    others = [
        np.asarray(jax.random.key_data(agent_keys(seed, purpose, np.arange(4), np.arange(6)))).reshape(-1, 2)
        for seed, purpose in ((4, Purpose.NOISE), (3, Purpose.BATCH))
    ]
    assert len(np.unique(np.concatenate([words, *others]), axis=0)) == 3 * 24


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 3000), st.integers(0, 2**32 - 1))
def test_shuffled_row_is_a_permutation(size, seed):
    keys = jax.random.bits(jax.random.key(seed), (8, 1), jnp.uint32)
    places = np.minimum(np.arange(3000, dtype=np.uint32), size - 1)  # of one length, so that it is compiled once
    rows = jax.jit(shuffled_row)(keys, places, np.uint32(size))[:size]
    assert sorted(rows.tolist()) == list(range(size))


@pytest.mark.parametrize(("size", "batch_size"), [(7, 3), (20, 20), (12, 4), (50, 7), (1, 1)])
def test_every_row_is_used_once_in_every_epoch(size, batch_size):
    key = agent_keys(0, Purpose.BATCH, np.arange(1), np.arange(1))[0, 0]
    steps = jnp.arange(3 * size)  # 3 · batch_size whole epochs
    rows = jax.jit(lambda steps: shuffled_rows(key, steps, size, batch_size))(steps)
    epochs = np.asarray(rows).reshape(3 * batch_size, size)
    assert (np.sort(epochs, 1) == np.arange(size)).all()
    if size > 5:
        assert len(np.unique(epochs, axis=0)) == len(epochs)


def test_rows_are_those_of_a_permutation_for_each_epoch_by_keys_of_jax():
    """Of several chains, agents and sizes: those of `shuffled_row` at the places that follow each other."""
    keys, sizes, batch = agent_keys(0, Purpose.BATCH, np.arange(2), np.arange(3)), np.array([9, 40, 1000]), 7
    steps = jnp.array([0, 1, 5, 6, 143, 10**6])
    found = jax.jit(lambda steps: shuffled_rows(keys, steps, sizes, batch))(steps)
    assert found.shape == (6, 2, 3, batch)
    one_row = jax.jit(shuffled_row)
    for s, chain, agent in np.ndindex(6, 2, 3):
        size = int(sizes[agent])
        places = np.arange(batch, dtype=object) + int(steps[s]) * batch
        for place, row in zip(places, found[s, chain, agent].tolist(), strict=True):
            words = jax.random.bits(jax.random.fold_in(keys[chain, agent], int(place // size)), (8, 1), jnp.uint32)
            assert row == one_row(words, jnp.array([place % size], jnp.uint32), jnp.uint32(size))[0]


@pytest.mark.parametrize("size", [2, 3, 5, 20])
@pytest.mark.parametrize("kind", ["shuffled", "identity"])
def test_shuffles_are_uniform(size, kind):
    """Chi-square over which row comes first, and which pair; false-alarm rate 1e-4. Unshuffled rows must fail."""
    key = agent_keys(5, Purpose.BATCH, np.arange(1), np.arange(1))[0, 0]
    epochs = 4000
    rows = shuffled_rows(key, jnp.arange(epochs), size, size)
    rows = np.asarray(rows) if kind == "shuffled" else np.tile(np.arange(size), (epochs, 1))
    first = np.bincount(rows[:, 0], minlength=size)
    pairs = np.bincount(rows[:, 0] * size + rows[:, 1], minlength=size * size).reshape(size, size)
    p_first = stats.chisquare(first).pvalue
    p_pairs = stats.chisquare(pairs[~np.eye(size, dtype=bool)]).pvalue
    assert (p_first > FALSE_ALARM and p_pairs > FALSE_ALARM) == (kind == "shuffled")


def test_rows_with_replacement_are_uniform():
    key = agent_keys(0, Purpose.BATCH, np.arange(1), np.arange(1))[0, 0]
    rows = jax.vmap(lambda k: replaced_rows(key, k, 11, 5))(jnp.arange(2000))
    assert stats.chisquare(np.bincount(np.asarray(rows).ravel(), minlength=11)).pvalue > FALSE_ALARM
