"""Corrected samplers at nodes: the draws and the warm-up of `simulate`, the same bits after a kill."""

import jax.numpy as jnp
import numpy as np
import pytest

import consilience as cs
from consilience.deployment.merging import network_draws
from tests.engines.peers.running import assert_same_draws, sample_by_peers
from tests.engines.peers.test_kills import killed_at_random
from tests.engines.peers.test_network import ring_of_three, sensors
from tests.engines.peers.virtual import KilledError, Laboratory
from tests.hierarchical import ragged

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


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The draws of a network that warms up, and its runs."""
    with pytest.MonkeyPatch.context() as patch:
        lab = Laboratory(TUNED, tmp_path_factory.mktemp("quiet") / "network", ring_of_three(), patch)
        try:
            return together(lab)
        finally:
            lab.clock.abandon()


def together(lab):
    """The draws of a network that is let to its end, and its runs."""
    lab.start_all()
    return finished(lab)


def finished(lab):
    runs = lab.runs(range(3))
    return network_draws([run.path for run in runs]), runs


@pytest.mark.parametrize(
    "sampler",
    [
        cs.kinetic(0.1, 3, whitening="none"),
        pytest.param(
            cs.langevin(0.01, 2, noise="common", whitening="none"),
            marks=pytest.mark.slow(reason="one more network"),
        ),
    ],
    ids=lambda sampler: sampler.kind,
)
def test_with_given_numbers_draws_are_those_of_simulate(sampler, laboratory, tmp_path):
    plan = given(sampler)
    found, _ = together(laboratory(plan, ring_of_three()))
    assert_same_draws(found, cs.sample(ring_of_three(), plan, tmp_path / "whole"), tolerance=1e-9)


@pytest.mark.slow(reason="a warm-up in unison and one by sums, to compile and to make")
def test_the_warm_up_over_sums_is_that_of_simulate(undisturbed, tmp_path):
    found, runs = undisturbed
    whole = cs.sample(ring_of_three(), TUNED, tmp_path / "whole")
    tunings = [run.status["adaptation"] for run in runs]
    assert tunings[0] == tunings[1] == tunings[2]
    expected = whole.summary["adaptation"]
    for name in ("step_size", "curvature", "excess", "centre", "scales", "condition"):
        np.testing.assert_allclose(tunings[0][name], expected[name], rtol=1e-6)
    for name in ("exchanges", "settled", "rounds", "sums", "gradients"):
        assert tunings[0][name] == expected[name]
    assert_same_draws(found, whole, tolerance=1e-6)


def test_kills_change_no_bit(undisturbed, laboratory):
    """The root in a window, then all at once while they sample: each resumes from a checkpoint of its own."""
    expected, runs = undisturbed
    windows = runs[0].status["adaptation"]["windows"]
    second = int(windows[0]["steps"] * windows[0]["exchanges"] + 5)  # an exchange in the second window
    sampling = int(sum(one["steps"] * one["exchanges"] for one in windows) + 60)
    lab = laboratory(TUNED, ring_of_three(), checkpoint_seconds=1e-6)
    lab.kill[1] = second
    lab.start_all()
    assert isinstance(lab.until_ended(1), KilledError)
    lab.kill = dict.fromkeys(range(3), sampling)
    lab.start(1)
    for agent in range(3):
        assert isinstance(lab.until_ended(agent), KilledError)
    lab.kill.clear()
    lab.start_all()
    found, runs = finished(lab)
    assert [run.status["restarts"] for run in runs] == [1, 2, 1]
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)


@pytest.mark.slow(reason="one more network that warms up")
def test_a_window_that_diverges_at_one_agent_is_repeated_by_all(laboratory, tmp_path, monkeypatch):
    """A step size far too large, that a check would refuse: agents say finite numbers until the window ends, then all
    halve it, as one."""
    monkeypatch.setattr("consilience.runs.life._warn_or_refuse", lambda stepper: None)
    plan = TUNED.replace(sampler=cs.kinetic(3.0), num_warmup=600, num_draws=4)
    _, runs = together(laboratory(plan, ring_of_three()))
    whole = cs.sample(ring_of_three(), plan, tmp_path / "whole")
    found = [run.status["adaptation"]["windows"][0]["step_size"] for run in runs]
    assert found == [whole.summary["adaptation"]["windows"][0]["step_size"]] * 3
    assert found[0] < 3.0


def wide():
    """303 parameters of different scales: sums in several parts, no Hessian."""
    scales = 10 ** np.linspace(-1, 1, 303)
    return cs.Problem(
        log_likelihood=lambda w, x: -0.5 * (((x - w) / scales) ** 2).sum(-1),
        log_prior=lambda w: -0.5 * ((w / scales) ** 2).sum(),
        init=lambda key: jnp.zeros(303),
        shards=list(np.random.default_rng(0).normal(size=(2, 2, 303)) * scales),
    )


OTHERS = {
    "private, different in number": (lambda: ragged((2, 3, 2)), cs.graphs.path(3), {}),
    "two agents, unmasked": (lambda: sensors((4, 9)), cs.graphs.path(2), {}),
    "flooded, common noise": (
        ring_of_three, cs.graphs.ring(3), {"summation": "flood", "sampler": cs.langevin(noise="common")}
    ),
    "minibatches": (ring_of_three, cs.graphs.path(3), {"batch_size": 3, "dtype": "float64"}),
    "many parameters": (wide, cs.graphs.path(2), {}),
}  # fmt: skip


@pytest.mark.slow(reason="five networks that warm up")
@pytest.mark.parametrize("name", OTHERS)
def test_other_warm_ups_are_those_of_simulate(name, laboratory, tmp_path):
    make, graph, changes = OTHERS[name]
    plan = cs.Plan(**{
        "graph": graph, "sampler": cs.kinetic(), "num_warmup": 200, "num_draws": 8, "num_chains": 2,
        "store_every": 4, **changes,
    })  # fmt: skip
    lab = laboratory(plan, make())
    lab.start_all()
    runs = lab.runs(range(graph.num_agents))
    whole = cs.sample(make(), plan, tmp_path / "whole")
    assert_same_draws(network_draws([run.path for run in runs]), whole, tolerance=1e-6)
    expected = whole.summary["adaptation"]["exchanges"]
    assert {run.status["adaptation"]["exchanges"] for run in runs} == {expected}


def silos():
    return sensors((4, 9, 6, 12))


@pytest.mark.slow(reason="two networks of processes, of which nodes are killed in the warm-up and while they sample")
def test_real_processes_of_which_some_are_killed(tmp_path):
    """Over TLS, masked, as users have them; no bit of the draws changes, and they agree with `simulate`."""
    plan = cs.Plan(
        problem="tests.engines.peers.test_corrected:silos", graph=cs.graphs.star(4), sampler=cs.kinetic(),
        num_warmup=900, num_draws=3000, num_chains=2,
    )  # fmt: skip
    quiet, _ = sample_by_peers(plan, tmp_path / "quiet", silos())
    options = {"allow": ("tests.engines.peers.test_corrected",), "checkpoint_seconds": 0.2}
    found, restarts = killed_at_random(plan, tmp_path / "network", waves=(2, 1, 2), until=0.3, **options)
    assert sum(restarts) == 5
    for name, values in quiet.items():
        np.testing.assert_array_equal(found[name], values)
    assert_same_draws(found, cs.sample(silos(), plan, tmp_path / "whole"), tolerance=1e-6)
