"""Whole nodes in unison joined in memory: what they say of what is private.

Run by `test_nodes_in_memory.py`, in a process whose XLA has a thread for each node.
"""

import numpy as np
import pytest

import consilience as cs
from consilience.deployment.merging import merge
from tests.engines.peers.fixed_step import assert_same_draws, keep_step_size
from tests.engines.peers.in_memory import found_in
from tests.engines.peers.test_nodes_in_memory import Captured, problem  # noqa: F401 - a fixture

UNISON = cs.Plan(
    graph=cs.graphs.path(3), sampler=cs.hmc(), num_warmup=20, num_draws=20, num_chains=2, seed=4,
)  # fmt: skip


@pytest.mark.parametrize("masked", [True, False], ids=["masked", "plain"])
def test_nodes_in_unison_say_nothing_private(problem, tmp_path, monkeypatch, masked):  # noqa: F811
    """HMC over sums; what the root tells everybody is found. At a fixed step size draws are those of `simulate`."""
    if not masked:
        keep_step_size(monkeypatch.setattr)
    found = Captured(UNISON.replace(masked=masked), problem, tmp_path, monkeypatch)
    assert len(found_in(found.words, found.private)) == 0
    assert len(found_in(found.words, found.rows)) == 0
    shared = cs.Run(found.runs[0].path).draws["mean"].to_numpy()
    assert len(found_in(found.words, shared)) == len(np.unique(shared)), (
        "the control: what the root tells everybody is found"
    )
    if not masked:
        runs = [run.path for run in found.runs]
        assert_same_draws(
            merge(runs, tmp_path / "whole", problem), cs.sample(problem, UNISON, tmp_path / "simulated")
        )
