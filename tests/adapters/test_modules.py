"""Functions with weights, Flax and Equinox modules as problems."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import consilience as cs
from consilience.errors import InputError, ProblemError
from consilience.kernel.parameters import Parameters
from tests.statistical import rejects_covariance

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
        ({"shards": [(np.array([["a", "b", "c"]] * 2), np.array([0, 1]))]}, "categories into 0, 1, 2"),
        ({"shards": []}, "at least one shard"),
    ],
)
def test_what_does_not_fit_is_refused(changes, part):
    given = {"parameters": {"w": jnp.ones((3, 2))}, "shards": SHARDS} | changes
    with pytest.raises(ProblemError, match=part):
        cs.from_apply(lambda weights, x: x @ weights["w"], **given)


def test_statistics_of_a_batch_are_refused():
    def centred(weights, x):
        return (x - x.mean(0)) @ weights["w"]

    with pytest.raises(ProblemError, match="changes with the other rows"):
        cs.from_apply(centred, {"w": jnp.ones((3, 2))}, shards=SHARDS)


def test_stored_averages_of_a_linen_module_stay_as_they_are():
    linen = pytest.importorskip("flax.linen")
    module = linen.Sequential([linen.BatchNorm(True), linen.Dense(2)])
    problem = cs.from_flax(module, shards=SHARDS)
    assert set(Parameters.of(problem, jnp.float32).names) == {
        f"layers_{layer}.{part}"
        for layer, parts in ((0, ("scale", "bias")), (1, ("kernel", "bias")))
        for part in parts
    }


def test_targets_are_drawn_about_their_mean():
    """2,000 draws for each of five rows; a correct mean is rejected at a rate of 1e-6, and that of other noise is."""
    shards = [(x, x.sum(1)) for x, _ in SHARDS]
    problem = cs.from_apply(
        lambda w, x: x @ w["w"], {"w": jnp.ones(3)}, shards=shards, likelihood="gaussian", noise=0.3
    )
    assert problem.outcomes.kinds == {"target": "number"}
    keys, inputs = jax.random.split(jax.random.key(0), 2000), shards[0][0]
    drawn = jax.vmap(lambda key: problem.outcomes.simulate(key, {"w": jnp.ones(3)}, (inputs,))["target"])(keys)
    mean = np.asarray(problem.outcomes.expected({"w": jnp.ones(3)}, inputs)["target"])
    assert not rejects_covariance(np.asarray(drawn), mean, 0.09 * np.eye(5))
    assert rejects_covariance(np.asarray(drawn), mean, 0.12 * np.eye(5))
    with pytest.raises(InputError, match="hold no targets"):
        problem.outcomes.observed(inputs)


def test_the_log_likelihood_of_numbers_is_that_of_the_normal_law():
    """Up to a constant, and with the prior's scale."""
    shards = [(x, x.sum(1)) for x, _ in SHARDS]
    options = {"likelihood": "gaussian", "noise": 0.5, "prior_scale": 2.0}
    problem = cs.from_apply(lambda w, x: x @ w["w"], {"w": jnp.zeros(3)}, shards=shards, **options)
    one, other = ({"w": jnp.array(values)} for values in ([0.5, 1.0, -1.0], [0.0, 0.0, 0.0]))
    inputs, targets = shards[0]
    expected = stats.norm.logpdf(targets, inputs @ one["w"], 0.5) - stats.norm.logpdf(targets, 0, 0.5)
    found = problem.log_likelihood(one, shards[0]) - problem.log_likelihood(other, shards[0])
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    np.testing.assert_allclose(problem.log_prior(one) - problem.log_prior(other), -2.25 / 8, rtol=1e-5)
