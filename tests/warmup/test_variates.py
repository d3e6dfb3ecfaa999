"""How much noise minibatches have: against all batches there are, and how far a control variate lowers it."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import consilience as cs
from consilience.errors import DivergedError
from consilience.kernel.gradients import network_gradients
from consilience.kernel.parameters import Parameters
from consilience.kernel.variates import corrected
from consilience.kernel.whitening import Dense, identity
from consilience.warmup.derivatives import LocalPotentials
from consilience.warmup.network import Network
from consilience.warmup.newton import newton
from consilience.warmup.variates import BatchGradients, Noise, largest_noise
from consilience.warmup.windows import Window, require_bounded

ROWS, BATCH = 6, 2


def logistic(sizes, seed=0, num_features=3):
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=num_features)
    shards = []
    for size in sizes:
        features = rng.normal(size=(size, num_features)) + rng.normal(size=num_features) / 2
        shards.append((features, (rng.uniform(size=size) < 1 / (1 + np.exp(-features @ weights))).astype(int)))
    return cs.models.logistic_regression(shards)


def plan(num_agents, batches="replacement", batch_size=BATCH):
    graph = cs.graphs.path(num_agents)
    return cs.Plan(graph=graph, sampler=cs.kinetic(), num_draws=10, batch_size=batch_size, batches=batches)


@pytest.mark.parametrize("batches", ["replacement", "shuffled"])
def test_the_noise_is_that_of_all_batches(batches):
    """Every batch of two of six rows, in coordinates that are turned and stretched."""
    problem, rng = logistic([ROWS] * 2), np.random.default_rng(3)
    size = Parameters.of(problem, np.float32).size
    whitening = Dense(np.zeros(size), rng.normal(size=(size, size)), *identity(size, 2, 0)[2:])
    made = BatchGradients(problem, plan(2, batches))
    anchor, place = made.anchor(np.tile(rng.normal(size=size), (2, 1))), rng.normal(size=(1, 2, size))
    found = made.noise(anchor, whitening, place)
    with jax.enable_x64(True):
        gradients = jax.jit(network_gradients(problem, Parameters.of(problem, jnp.float64)), static_argnums=4)
        data, scale = problem.stacked_shards(jnp.float64), jnp.full(2, ROWS / BATCH)
        every = itertools.product(range(ROWS), repeat=2) if batches == "replacement" else (
            itertools.permutations(range(ROWS), 2)
        )  # fmt: skip
        chosen = np.array(list(every))  # each batch is a chain
        used = jax.tree.map(lambda leaf: jnp.moveaxis(leaf[:, chosen], 1, 0), data)
        where = jnp.broadcast_to(jnp.asarray(place[0]), (len(chosen), 2, size))
        for fixed, expected in ((None, found.plain), (anchor, found.anchored)):
            estimates = corrected(lambda w: gradients(w, used, None, scale, True), fixed)(where)
            variance = np.asarray(whitening.pulled_back(estimates)).var(0)
            np.testing.assert_allclose(variance, expected, rtol=1e-9)
    assert found.plain.min() > 0


def test_rows_that_are_rare_are_not_missed():
    """Two of an agent's 3,001 rows have a feature that no other row has: all noise of its weight is theirs."""
    rng, size = np.random.default_rng(2), 3001
    features = np.stack([np.ones(size), np.isin(np.arange(size), (700, 2222))], 1).astype(float)
    problem = cs.models.logistic_regression(
        [(features, rng.integers(0, 2, size)), (features[:7], rng.integers(0, 2, 7))]
    )
    place = np.tile(rng.normal(size=2), (1, 2, 1))
    found = BatchGradients(problem, plan(2)).noise(None, identity(2, 2, 0), place).plain
    for agent, (own, labels) in enumerate(map(np.asarray, shard) for shard in problem.shards):
        by_row = own * (labels - 1 / (1 + np.exp(-own @ place[0, agent])))[:, None]
        expected = len(own) ** 2 / BATCH * by_row.var(0)
        np.testing.assert_allclose(found[agent], expected, rtol=1e-9, atol=1e-12, err_msg="each row counts once")
    assert found[0, 1] > 100
    assert found[1, 1] < 1e-9  # the agent without such a row


def near_the_mode(anchored_at_mode):
    """`σ²` without and with a control variate at draws of the normal approximation, batches of 10."""
    problem = logistic([60, 200, 90])
    network = Network(np.arange(3), 3, lambda values: values.sum(0))
    potentials = LocalPotentials(problem)
    size = potentials.size
    found = newton(potentials, network, np.zeros((3, size)), size)
    whitening = Dense(found.positions[0], found.root, found.positions[:, size:], found.own_root, found.shear)
    draws = np.random.default_rng(0).normal(size=(12, 1, size))
    places = np.broadcast_to(np.asarray(whitening.position(draws)), (12, 3, size))
    made = BatchGradients(problem, plan(3, batch_size=10))
    anchor = made.anchor(found.positions if anchored_at_mode else found.positions + 3.0)
    return largest_noise(network, made.noise(anchor, whitening, places), size)


def test_a_control_variate_near_the_mode_removes_most_noise():
    plain, left = near_the_mode(True)
    assert plain > 10
    assert left < plain / 30
    _, far = near_the_mode(False)
    assert far > plain / 30  # the control: an anchor far away


def test_noise_of_shared_parameters_adds_up_and_that_of_private_ones_does_not():
    network = Network(np.arange(3), 3, lambda values: values.sum(0))
    own = np.array([[1.0, 2.0, 5.0], [1.0, 2.0, 4.0], [1.0, 2.0, 3.0]])
    np.testing.assert_allclose(largest_noise(network, Noise(own, own / 10), 2), [6.0, 0.6])
    np.testing.assert_allclose(largest_noise(network, Noise(2 * own, own * [1, 1, 2]), 2), [12.0, 10.0])
    with pytest.raises(DivergedError, match="not finite"):
        largest_noise(network, Noise(own, own * np.nan), 2)


def window(largest):
    return Window(np.zeros(2), np.diag([1.0, largest]))


@pytest.mark.parametrize(
    ("before", "largest"), [([1e6], 2e4), ([1.0, 50.0, 50.0], 50.0), ([1.0], np.nan)], ids=["one", "slowly", "nan"]
)
def test_a_window_that_runs_off_is_refused(before, largest):
    draws = Window(np.zeros(2), np.array([1.0, largest]))
    with pytest.raises(DivergedError, match=r"runs off.*take more rows"):
        require_bounded(draws, np.array(before), "take more rows")


@pytest.mark.parametrize(("before", "largest"), [([], 1e8), ([1e6, 3.0], 20.0), ([0.01, 2.0, 1.0], 2.0)])
def test_a_window_that_finds_its_scale_is_not(before, largest):
    require_bounded(window(largest), np.array(before), "")
