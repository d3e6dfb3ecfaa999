import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.datasets import splits
from consilience.errors import DataError


def require_partition(parts, num_rows):
    assert sorted(np.concatenate(parts).tolist()) == list(range(num_rows))
    assert all(len(part) for part in parts)


@given(st.integers(1, 200), st.integers(1, 20), st.integers(0, 5))
def test_equal_splits_are_equal_partitions(num_rows, num_agents, seed):
    if num_agents > num_rows:
        with pytest.raises(DataError, match="cannot be split"):
            splits.equal(num_rows, num_agents, seed)
        return
    parts = splits.equal(num_rows, num_agents, seed)
    require_partition(parts, num_rows)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=12), st.integers(12, 300))
def test_unequal_splits_follow_the_shares(shares, num_rows):
    parts = splits.unequal(num_rows, shares, 0)
    require_partition(parts, num_rows)
    wanted, sizes = np.array(shares) / sum(shares) * num_rows, np.array([len(part) for part in parts])
    given_up = np.maximum(1 - np.floor(wanted), 0).sum()  # by the largest, so that nobody is empty
    assert (sizes - wanted <= 1 + 1e-9).all()
    assert (wanted - sizes <= 1 + given_up).all()


def test_other_seeds_give_other_splits():
    assert splits.equal(50, 2, 0)[0].tolist() != splits.equal(50, 2, 1)[0].tolist()
    assert splits.equal(50, 2, 0)[0].tolist() == splits.equal(50, 2, 0)[0].tolist()


def test_splits_by_label_go_from_one_label_each_to_equal_mixtures():
    labels = np.repeat(np.arange(10), 200)
    even = splits.by_label(labels, 5, 1000.0, 0)
    require_partition(even, 2000)
    shares = np.array([np.bincount(labels[part], minlength=10) / len(part) for part in even])
    assert np.abs(shares - 0.1).max() < 0.02
    skewed = splits.by_label(labels, 5, 0.1, 0)
    require_partition(skewed, 2000)
    assert max(np.bincount(labels[part]).max() / len(part) for part in skewed) > 0.4


def test_a_split_that_leaves_an_agent_empty_is_refused():
    with pytest.raises(DataError, match=r"leaves agent .* without rows"):
        splits.by_label(np.zeros(20), 10, 0.01, 0)
    with pytest.raises(DataError, match="must be positive"):
        splits.by_label(np.zeros(20), 10, 0.0, 0)


def test_splits_by_column():
    column = np.array([2.0, 9.0, 1.0, 5.0, 7.0, 3.0])
    low, high = splits.by_column(column, 2)
    assert column[low].max() < column[high].min()
    require_partition([low, high], 6)
    with pytest.raises(DataError):
        splits.unequal(10, [1.0, -1.0], 0)
