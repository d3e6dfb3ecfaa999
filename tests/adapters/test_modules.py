"""Functions with weights, Flax and Equinox modules as problems."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import consilience as cs
from consilience.errors import ProblemError
from consilience.kernel.parameters import Parameters

RNG = np.random.default_rng(0)
SHARDS = [(RNG.normal(size=(size, 3)).astype(np.float32), RNG.integers(0, 2, size)) for size in (5, 8)]


def require_same_outputs(problem, names, expected):
    """Named weights, finite densities, and outputs that are the module's own; predictions take them as they are."""
    parameters = Parameters.of(problem, jnp.float32)
    assert set(parameters.names) == names
    weights, (inputs, labels) = problem.init(jax.random.key(0)), problem.shards[0]
    probabilities = problem.outcomes.expected(weights, inputs)["target"]
    np.testing.assert_allclose(probabilities, jax.nn.softmax(expected), rtol=1e-5)
    each = problem.log_likelihood(weights, (inputs, labels))
    np.testing.assert_allclose(each, np.log(jax.nn.softmax(expected))[np.arange(len(labels)), labels], rtol=1e-4)
    np.testing.assert_array_equal(problem.outcomes.observed((inputs, labels))["target"], labels)


def test_linen_modules():
    linen = pytest.importorskip("flax.linen")
    module = linen.Sequential([linen.Dense(4), linen.tanh, linen.Dense(2)])
    variables = module.init(jax.random.key(1), SHARDS[0][0])
    problem = cs.from_flax(module, shards=SHARDS, variables=variables)
    names = {f"layers_{layer}.{part}" for layer in (0, 2) for part in ("kernel", "bias")}
    require_same_outputs(problem, names, module.apply(variables, SHARDS[0][0]))
    for layer, reason in ((linen.Dropout(0.5, deterministic=False), "random"), (linen.BatchNorm(False), "own state")):
        with pytest.raises(ProblemError, match=reason):
            cs.from_flax(linen.Sequential([layer, linen.Dense(2)]), shards=SHARDS)


def test_nnx_modules():
    nnx = pytest.importorskip("flax.nnx")
    module = nnx.Sequential(nnx.Linear(3, 4, rngs=nnx.Rngs(0)), jnp.tanh, nnx.Linear(4, 2, rngs=nnx.Rngs(1)))
    names = {f"layers.{layer}.{part}" for layer in (0, 2) for part in ("kernel", "bias")}
    require_same_outputs(cs.from_flax(module, shards=SHARDS), names, module(SHARDS[0][0]))
    linear = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
    for layer, reason in (
        (nnx.Dropout(0.5, rngs=nnx.Rngs(0)), "random"),
        (nnx.BatchNorm(2, rngs=nnx.Rngs(0)), "state"),
    ):
        module = nnx.Sequential(linear, layer)
        with pytest.raises(ProblemError, match=reason):
            cs.from_flax(module, shards=SHARDS)
        module.eval()
        assert cs.from_flax(module, shards=SHARDS).num_agents == 2


def test_equinox_modules():
    eqx = pytest.importorskip("equinox")
    module = eqx.nn.MLP(3, 2, 4, 1, key=jax.random.key(0))
    names = {f"layers.{layer}.{part}" for layer in (0, 1) for part in ("weight", "bias")}
    require_same_outputs(cs.from_equinox(module, shards=SHARDS), names, jax.vmap(module)(SHARDS[0][0]))
    dropping = eqx.nn.Sequential([module, eqx.nn.Dropout(0.5)])
    with pytest.raises(ProblemError, match="dropout in training mode"):
        cs.from_equinox(dropping, shards=SHARDS)
    assert cs.from_equinox(eqx.nn.inference_mode(dropping), shards=SHARDS).num_agents == 2
    with pytest.raises(ProblemError, match="state that changes"):
        cs.from_equinox(eqx.nn.Sequential([eqx.nn.BatchNorm(3, "rows", mode="ema"), module]), shards=SHARDS)


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"likelihood": "poisson"}, "choose categorical or gaussian"),
        ({"prior_scale": 0.0}, "positive standard deviation"),
        ({"parameters": {"w": jnp.arange(3)}}, "must be floating-point"),
        ({"shards": [(np.ones((2, 3)), np.ones(2))]}, "expected class numbers"),
        ({"shards": [np.ones((2, 3))]}, r"the pair \(inputs, targets\)"),
        ({"likelihood": "gaussian", "shards": [(np.ones((2, 3)), np.ones(2))]}, "give both the same shape"),
        ({"parameters": {"w": jnp.ones((4, 2))}}, "cannot be called"),
    ],
)
def test_what_does_not_fit_is_refused(changes, part):
    given = {"parameters": {"w": jnp.ones((3, 2))}, "shards": SHARDS} | changes
    with pytest.raises(ProblemError, match=part):
        cs.from_apply(lambda weights, x: x @ weights["w"], **given)
