"""A problem made from a NumPyro model has the density that NumPyro itself gives it on the pooled rows."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.infer import initialization
from numpyro.infer.util import log_density, potential_energy

import consilience as cs
from consilience.kernel.parameters import Parameters, potential

RNG = np.random.default_rng(3)
SIZES = (4, 9, 1)


def linear(x, y):
    slope = numpyro.sample("slope", dist.Normal(0, 2).expand([2]).to_event(1))
    scale = numpyro.sample("scale", dist.HalfNormal(3))
    numpyro.deterministic("precision", scale**-2)
    numpyro.deterministic("mean_y", y.mean())
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(numpyro.deterministic("line", x @ slope), scale), obs=y)


def logistic(x, label):
    slope = numpyro.sample("slope", dist.StudentT(3, 0, 1).expand([2]))
    numpyro.sample("label", dist.Bernoulli(logits=x @ slope), obs=label)


def poisson(x, count):
    rate = numpyro.sample("rate", dist.Gamma(2.0, 0.5))
    share = numpyro.sample("share", dist.Uniform(0.1, 0.7))
    numpyro.factor("weak", -0.1 * rate)
    with numpyro.plate("rows", len(count)):
        numpyro.sample("count", dist.Poisson(rate * jnp.exp(share * x[:, 0])), obs=count)


def hierarchical(x, y):
    mean, spread = numpyro.sample("mean", dist.Normal(0, 5)), numpyro.sample("spread", dist.HalfCauchy(1))
    with numpyro.plate("wards", 2):
        ward = numpyro.sample("ward", dist.Normal(mean, spread))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(ward[(x[:, 0] > 0).astype(int)], 1.5), obs=y)


def structured(x, y):
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.array([1.0, 2.0, 3.0])))
    base = dist.Normal(0, 2).expand([3]).to_event(1)
    cuts = numpyro.sample("cuts", dist.TransformedDistribution(base, dist.transforms.OrderedTransform()))
    factor = numpyro.sample("factor", dist.LKJCholesky(2, 1.5))
    numpyro.sample("matrix", dist.LKJ(2, 2.0))
    with numpyro.plate("rows", len(y)):
        parts = dist.Normal(cuts, 1.0)
        numpyro.sample("y", dist.MixtureSameFamily(dist.Categorical(weights), parts), obs=y)
        numpyro.sample("x", dist.MultivariateNormal(jnp.zeros(2), scale_tril=factor), obs=x)


def masked(x, y):
    slope = numpyro.sample("slope", dist.Laplace(0, 1))
    with numpyro.plate("rows", len(y)), handlers.mask(mask=y > -0.5), handlers.scale(scale=0.3):
        numpyro.sample("y", dist.Normal(slope * x[:, 0], 1), obs=y)
    numpyro.factor("extra", -0.1 * (slope - x[:, 1]) ** 2)


def rows(size, **columns):
    return {"x": RNG.normal(size=(size, 2)), **{name: draw(size) for name, draw in columns.items()}}


def normal(size):
    return RNG.normal(size=size)


MODELS = {
    "linear": (linear, {"y": normal}, ()),
    "logistic": (logistic, {"label": lambda size: RNG.integers(0, 2, size)}, ()),
    "poisson": (poisson, {"count": lambda size: RNG.poisson(2, size)}, ()),
    "structured": (structured, {"y": normal}, ()),
    "masked and scaled": (masked, {"y": normal}, ()),
}


@pytest.mark.parametrize(("model", "columns", "private"), MODELS.values(), ids=MODELS)
def test_density_is_that_of_numpyro_on_pooled_rows(model, columns, private):
    with jax.enable_x64(True):
        shards = [rows(size, **columns) for size in SIZES]
        problem = cs.from_numpyro(model, shards, private=private)
        pooled = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *shards)
        for seed in (1, 2):
            w, tree, total = somewhere(problem, shards, seed)
            free = unconstrained(model, pooled, tree)
            expected = potential_energy(model, (), pooled, free)
            np.testing.assert_allclose(total, expected, rtol=1e-10)
            local = sum(problem.log_likelihood(tree, shard).sum() for shard in shards) + problem.log_prior(tree)
            np.testing.assert_allclose(local, log_density(model, (), pooled, tree)[0], rtol=1e-10)


def test_private_sites_count_in_full_at_their_agent():
    """Three agents with effects of their own: the sum of NumPyro's densities, but for the shared prior, once."""
    with jax.enable_x64(True):
        shards = [rows(size, y=normal) for size in SIZES]
        problem = cs.from_numpyro(hierarchical, shards, private=("ward",))
        assert problem.private == ("ward",)
        assert problem.constraints == {"spread": "positive"}
        for shard in shards:
            one = {"mean": jnp.array(0.4), "spread": jnp.array(0.8), "ward": jnp.array([0.3, -1.2])}
            found = problem.log_likelihood(one, shard).sum() + problem.log_private(one) + problem.log_prior(one)
            np.testing.assert_allclose(found, log_density(hierarchical, (), shard, one)[0], rtol=1e-10)
            prior = dist.Normal(0, 5).log_prob(0.4) + dist.HalfCauchy(1).log_prob(0.8)
            np.testing.assert_allclose(problem.log_prior(one), prior, rtol=1e-10)


def somewhere(problem, shards, seed):
    """A place, its parameters, and the sum of all agents' potentials there."""
    parameters = Parameters.of(problem, jnp.float64)
    w = 0.7 * jax.random.normal(jax.random.key(seed), (parameters.size,))
    total = sum(potential(problem, parameters, w, shard, None, 1.0) for shard in shards)
    return w, parameters.unravel(w), total


def unconstrained(model, pooled, tree):
    found = handlers.trace(handlers.substitute(handlers.seed(model, 0), tree)).get_trace(**pooled)
    return {name: dist.biject_to(found[name]["fn"].support).inv(value) for name, value in tree.items()}


def test_deterministic_values_without_rows_are_derived():
    problem = cs.from_numpyro(linear, [rows(size, y=normal) for size in SIZES])
    found = problem.derived({"slope": jnp.zeros(2), "scale": jnp.array(2.0)})
    assert {name: float(value) for name, value in found.items()} == {"precision": 0.25}


def test_shards_may_be_tuples_and_sites_reparametrised():
    def model(x, y):
        mean = numpyro.sample("mean", dist.Normal(0, 1))
        effect = numpyro.sample("effect", dist.Normal(mean, 2.0))
        numpyro.sample("y", dist.Normal(effect * x, 1), obs=y)

    apart = handlers.reparam(model, config={"effect": numpyro.infer.reparam.LocScaleReparam(0)})
    problem = cs.from_numpyro(apart, [(normal(4), normal(4))])
    found = problem.derived({"mean": jnp.array(1.0), "effect_decentered": jnp.array(0.5)})
    assert float(found["effect"]) == 2.0


def test_what_is_used_of_numpyro_is_there():
    """Handlers, the entries of a site and the initial values are NumPyro's own affair: a change is seen here."""
    for name in ("block", "seed", "substitute", "trace", "mask", "scale"):
        assert callable(getattr(handlers, name))
    assert callable(initialization.init_to_median)
    assert callable(initialization.init_to_uniform)
    found = handlers.trace(handlers.seed(linear, 0)).get_trace(np.ones((2, 2)), np.ones(2))
    assert {"type", "name", "fn", "value", "is_observed", "intermediates", "scale"} <= set(found["slope"])
    assert found["rows"]["args"] == (2, None)
    assert {site["type"] for site in found.values()} == {"sample", "deterministic", "plate"}
    assert numpyro.distributions.constraints.independent(dist.constraints.real, 1).base_constraint
