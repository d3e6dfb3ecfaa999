"""Whole nodes joined in memory: neither in unison nor by gossip do they say what is private."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import consilience as cs
from consilience.engines.peers.agent_step import AgentStep
from consilience.engines.peers.moving import Moving
from consilience.kernel.step import each
from tests.engines.peers.in_memory import found_in, sampled_in_memory, words_of
from tests.hierarchical import sites

SIZES = (4, 9, 6)
KINETIC = cs.Plan(
    graph=cs.graphs.path(3), sampler=cs.kinetic(), num_warmup=200, num_draws=12, num_chains=2, dtype="float64",
)  # fmt: skip
FEW = cs.Plan(
    graph=cs.graphs.path(3), sampler=cs.kinetic(0.1, 3, whitening="none"), num_steps=8, num_chains=2, dtype="float64",
)  # fmt: skip


@pytest.fixture(scope="module")
def problem():
    return sites(SIZES, seed=5)


def record_private(patch):
    """Every private number that the agents hold at the end of a move or a step, as they have it."""
    kept, moved, end = [], Moving.moved, AgentStep.end

    def moving(self, *arguments):
        found = moved(self, *arguments)
        kept.append(np.asarray(found[0].replica.private).ravel())
        return found

    def stepping(self, *arguments):
        state = end(self, *arguments)
        positions = np.asarray(each(self.plan.gossip.position)(state))
        kept.append(positions[..., self.parameters.num_shared :].ravel())
        return state

    patch.setattr(Moving, "moved", moving)
    patch.setattr(AgentStep, "end", stepping)
    return kept


class Captured:
    """A network that ran, what was said in it, and what should not have been."""

    def __init__(self, plan, problem, place, patch, **options):
        private = record_private(patch)
        self.runs, said = sampled_in_memory(plan, problem, place / "network", **options)
        self.words = words_of(said)
        drawn = [run.draws["effect"].to_numpy().ravel() for run in (cs.Run(run.path) for run in self.runs)]
        self.private = np.concatenate([*private, *drawn]).astype(np.float64)
        self.rows = np.concatenate([np.asarray(shard, np.float64) for shard in problem.shards])
        assert len(self.private) > 40


@pytest.mark.slow(reason="a network of three nodes in unison, each of which compiles its programs")
def test_in_unison():
    """In a process of its own: a program that waits for a sum holds one of XLA's threads, so there must be enough."""
    inner = Path(__file__).with_name("unison_in_memory.py")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-n", "0", str(inner)],
        cwd=inner.parents[3], env={**os.environ, "NPROC": "16"}, capture_output=True, text=True, check=False,
        timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:]


@pytest.mark.slow(reason="a network of three nodes that warm up")
def test_nodes_of_kinetic_say_nothing_private(problem, tmp_path, monkeypatch):
    """In windows, in sums, and while they sample; in the model's coordinates and in whitened ones."""
    found = Captured(KINETIC, problem, tmp_path, monkeypatch)
    assert len(found_in(found.words, found.private)) == 0
    assert len(found_in(found.words, found.rows)) == 0


@pytest.mark.slow(reason="one more network of three nodes")
def test_a_step_that_sends_private_numbers_is_found(problem, tmp_path, monkeypatch):
    message = AgentStep.message

    def leaky(self, state, prepared=None):
        first, *others = message(self, state, prepared)
        private = np.asarray(each(self.plan.gossip.position)(state))[:, 0, self.parameters.num_shared :]
        return private.astype(first.dtype), *others

    monkeypatch.setattr(AgentStep, "message", leaky)
    found = Captured(FEW, problem, tmp_path, monkeypatch)
    assert len(found_in(found.words, found.private)) > 0
