"""Corrected samplers at nodes: the draws and the warm-up of `simulate`, the same bits after a kill."""

import numpy as np
import pytest

import consilience as cs
from consilience.deployment.merging import network_draws
from tests.engines.peers.running import assert_same_draws
from tests.engines.peers.test_network import ring_of_three
from tests.engines.peers.virtual import KilledError

OPTIMISED = True



def given(sampler):
    return cs.Plan(
        problem="tests.engines.peers.test_network:ring_of_three", graph=cs.graphs.path(3), sampler=sampler,
        num_steps=25, num_chains=2, dtype="float64",
    )  # fmt: skip


TUNED = cs.Plan(
    problem="tests.engines.peers.test_network:ring_of_three", graph=cs.graphs.path(3), sampler=cs.kinetic(),
    num_warmup=200, num_draws=12, num_chains=2, seed=3,
)  # fmt: skip


def together(lab):
    """The draws of a network that is let to its end, and its runs."""
    lab.start_all()
    return finished(lab)


def finished(lab):
    runs = lab.runs(range(3))
    return network_draws([run.path for run in runs]), runs


@pytest.mark.parametrize(
    "sampler",
    [cs.kinetic(0.1, 3, whitening="none"), cs.langevin(0.01, 2, noise="common", whitening="none")],
    ids=lambda sampler: sampler.kind,
)
def test_with_given_numbers_draws_are_those_of_simulate(sampler, laboratory, tmp_path):
    plan = given(sampler)
    found, _ = together(laboratory(plan, ring_of_three()))
    assert_same_draws(found, cs.sample(ring_of_three(), plan, tmp_path / "whole"), tolerance=1e-9)


def test_the_warm_up_over_sums_is_that_of_simulate(laboratory, tmp_path):
    found, runs = together(laboratory(TUNED, ring_of_three()))
    whole = cs.sample(ring_of_three(), TUNED, tmp_path / "whole")
    tunings = [run.status["adaptation"] for run in runs]
    assert tunings[0] == tunings[1] == tunings[2]
    expected = whole.summary["adaptation"]
    for name in ("step_size", "curvature", "excess", "centre", "scales", "condition"):
        np.testing.assert_allclose(tunings[0][name], expected[name], rtol=1e-6)
    for name in ("exchanges", "settled", "rounds", "sums", "gradients"):
        assert tunings[0][name] == expected[name]
    assert_same_draws(found, whole, tolerance=1e-6)
