"""Gradients of the classifiers against finite differences and independent implementations."""

import os
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import consilience as cs
from consilience.datasets import load
from consilience.errors import ProblemError
from consilience.kernel.gradients import local_gradient, network_gradients
from consilience.kernel.parameters import Parameters, potential
from tests.datasets.test_loaders import BESIDE, require_here

OPTIMISED = True
RNG = np.random.default_rng(0)


def images(count):
    """Images with a constant background, so that pooling meets many ties."""
    made = np.zeros((count, 32, 32), np.float32)
    made[:, 10:22, 12:20] = RNG.random((count, 12, 8))
    return made


PROBLEMS = {
    "logistic, normal prior": cs.models.logistic_regression([(RNG.normal(size=(9, 4)), RNG.integers(0, 2, 9))] * 2),
    "logistic, Laplace prior": cs.models.logistic_regression(
        [(RNG.normal(size=(9, 4)), RNG.integers(0, 2, 9))] * 2, "laplace", 0.7
    ),
    "mlp": cs.models.classifier(cs.models.mlp(6, [5, 4], 3), [(RNG.normal(size=(9, 6)), RNG.integers(0, 3, 9))] * 2),
    "LeNet-5": cs.models.classifier(cs.models.lenet5(), [(images(6), RNG.integers(0, 10, 6))] * 2),
}


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=[pytest.mark.slow(reason="compiles LeNet-5")] * (name == "LeNet-5")) for name in PROBLEMS
])  # fmt: skip
def test_gradients_agree_with_finite_differences(name):
    problem = PROBLEMS[name]
    with jax.enable_x64(True):
        parameters = Parameters.of(problem, jnp.float64)
        rows = jax.tree.map(
            lambda leaf: jnp.asarray(leaf, jnp.float64 if leaf.dtype.kind == "f" else None), problem.shards[0]
        )
        w = ravel_pytree(jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), problem.init(jax.random.key(1))))[
            0
        ]
        w = w + 0.05 * jax.random.normal(jax.random.key(2), w.shape, jnp.float64)
        gradient = jax.jit(local_gradient(problem, parameters))(w, rows, None, 1.0)
        value = jax.jit(lambda at: potential(problem, parameters, at, rows, None, 1.0))
        for seed in range(4):
            direction = jax.random.normal(jax.random.key(10 + seed), w.shape, jnp.float64)
            ahead, behind = (value(w + e * direction) for e in (1e-6, -1e-6))
            assert float(gradient @ direction) == pytest.approx(float(ahead - behind) / 2e-6, rel=1e-5, abs=1e-6)


def reference_lenet(weights, inputs):
    """LeNet-5 by JAX's own convolution and pooling, in the order of the textbook."""
    values = inputs[:, None]
    for name, channels in (("convolution_1", 1), ("convolution_2", 6)):
        kernel = weights[name]["weight"].reshape(-1, channels, 5, 5)
        values = jax.lax.conv_general_dilated(values, kernel, (1, 1), "VALID") + weights[name]["bias"][:, None, None]
        values = jax.lax.reduce_window(jnp.tanh(values), -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    values = values.reshape(len(inputs), -1)
    for name in ("full_1", "full_2"):
        values = jnp.tanh(values @ weights[name]["weight"].T + weights[name]["bias"])
    return values @ weights["full_3"]["weight"].T + weights["full_3"]["bias"]


def in_double_precision(tree):
    """So that rounding never decides which of two nearly equal numbers a pool takes."""
    return jax.tree.map(
        lambda leaf: jnp.asarray(leaf, jnp.float64 if np.asarray(leaf).dtype.kind == "f" else None), tree
    )


@pytest.mark.slow(reason="compiles LeNet-5 twice")
def test_gradients_on_digits_are_those_of_the_textbook_order(monkeypatch):
    """Most of a digit is constant background, so many pools are ties; in the second layer but for rounding."""
    if "CONSILIENCE_DATA" not in os.environ and BESIDE.is_dir():
        monkeypatch.setenv("CONSILIENCE_DATA", str(BESIDE))
    require_here("mnist")
    network, train = cs.models.lenet5(), load("mnist", "train")
    with jax.enable_x64(True):
        weights = in_double_precision(network.init(jax.random.key(3)))
        inputs = jax.image.resize(in_double_precision(train.inputs[:100]), (100, 32, 32), "linear")
        assert share_of_ties(weights, inputs) > 0.3  # without ties the test would say nothing

        def loss(w, logits):
            return -jnp.take_along_axis(jax.nn.log_softmax(logits(w, inputs)), train.labels[:100, None], 1).sum()

        ours, theirs = (
            jax.jit(jax.grad(partial(loss, logits=one)))(weights) for one in (network.logits, reference_lenet)
        )
        for name, expected in theirs.items():
            for part, wanted in expected.items():
                error = jnp.linalg.norm(ours[name][part] - wanted) / jnp.linalg.norm(wanted)
                assert error < 1e-9, (name, part)


def share_of_ties(weights, inputs):
    """The share of the first layer's pools in which all four numbers are equal."""
    kernel = weights["convolution_1"]["weight"].reshape(-1, 1, 5, 5)
    values = jax.lax.conv_general_dilated(inputs[:, None], kernel, (1, 1), "VALID")
    squares = values.reshape(len(inputs), 6, 14, 2, 14, 2)
    return float((squares.max((3, 5)) == squares.min((3, 5))).mean())


@pytest.mark.slow(reason="compiles LeNet-5 twice")
def test_lenet_computes_what_the_textbook_order_computes():
    network, rng = cs.models.lenet5(), np.random.default_rng(1)
    with jax.enable_x64(True):
        weights, inputs = in_double_precision((network.init(jax.random.key(0)), rng.random((7, 32, 32))))
        np.testing.assert_allclose(network.logits(weights, inputs), reference_lenet(weights, inputs), rtol=1e-10)
        cotangent = jnp.asarray(rng.normal(size=(7, 10)))
        ours, theirs = (
            ravel_pytree(jax.jit(jax.grad(lambda w, f=f: (f(w, inputs) * cotangent).sum()))(weights))[0]
            for f in (network.logits, reference_lenet)
        )
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.slow(reason="compiles LeNet-5")
@pytest.mark.parametrize("rows", [260, 5])  # two parts and a remainder; less than one part
def test_gradients_taken_a_few_rows_at_a_time_are_those_of_all_rows(rows):
    rng, network = np.random.default_rng(rows), cs.models.mlp(600, [10], 10)  # large enough to be taken in parts
    problem = cs.models.classifier(network, [(rng.random((rows, 600)), rng.integers(0, 10, rows))] * 2)
    with jax.enable_x64(True):
        parameters = Parameters.of(problem, jnp.float64)
        start = ravel_pytree(in_double_precision(problem.init(jax.random.key(0))))[0]
        given, weights = in_double_precision(problem.shards[0]), jnp.asarray(rng.random(rows))
        whole = jax.jit(jax.grad(lambda w: potential(problem, parameters, w, given, weights, 3.0)))(start)
        parts = jax.jit(local_gradient(problem, parameters))(start, given, weights, 3.0)
        np.testing.assert_allclose(parts, whole, rtol=1e-9, atol=1e-11)
        stacked = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), given)
        both = network_gradients(problem, parameters)(
            jnp.stack([start, start])[None], stacked, jnp.stack([weights, weights]), jnp.array([3.0, 1.0]), False
        )
        np.testing.assert_allclose(both[0, 0], whole, rtol=1e-9, atol=1e-11)


def test_the_laplace_prior_pulls_towards_zero():
    problem = PROBLEMS["logistic, Laplace prior"]
    pull = jax.grad(problem.log_prior)(jnp.array([2.0, -3.0, 0.5, -0.1]))
    np.testing.assert_allclose(pull, -np.array([1, -1, 1, -1]) / 0.7, rtol=1e-6)
    assert problem.curvature is None


def test_priors_of_networks():
    network, shards = cs.models.mlp(4, [3], 2), [(np.zeros((5, 4)), np.zeros(5, int))]
    weights = network.init(jax.random.key(0))
    normal = cs.models.classifier(network, shards, scale=0.5).log_prior
    first = weights["layer_1"]["weight"]
    pull = jax.grad(normal)(weights)["layer_1"]["weight"]
    np.testing.assert_allclose(pull, -first * 4 / 0.25, rtol=1e-5)  # variance 0.5²/fan_in
    for prior in ("uniform", "none"):
        flat = jax.grad(cs.models.classifier(network, shards, prior).log_prior)(weights)
        assert all(not np.any(leaf) for leaf in jax.tree.leaves(flat))


def test_wrong_labels_and_priors_are_refused():
    with pytest.raises(ProblemError, match="agent 1 are not all 0 or 1"):
        cs.models.logistic_regression([(np.ones((2, 1)), np.array([0, 1])), (np.ones((2, 1)), np.array([-1, 1]))])
    with pytest.raises(ProblemError, match="unknown prior"):
        cs.models.logistic_regression([(np.ones((2, 1)), np.array([0, 1]))], "cauchy")
    with pytest.raises(ProblemError, match="unknown prior"):
        cs.models.classifier(cs.models.mlp(1, [], 2), [(np.ones((2, 1)), np.array([0, 1]))], "cauchy")
