"""A problem made from a NumPyro model has the density that NumPyro itself gives it on the pooled rows."""

from functools import partial

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
from consilience.adapters.numpyro_names import value_of
from consilience.adapters.numpyro_sites import find_sites
from consilience.kernel.parameters import Parameters, potential
from tests.adapters.numpyro_zoo import MODELS, NAMES, RNG, SIZES, hierarchical, linear, normal, rows, shards_of


@pytest.mark.parametrize("name", NAMES)
def test_density_is_that_of_numpyro_on_pooled_rows(name):
    """On the unconstrained scale, so that Jacobians count."""
    model, _ = MODELS[name]
    with jax.enable_x64(True):
        shards = shards_of(name)
        problem, latent = cs.from_numpyro(model, shards), find_sites(model, shards).latent
        pooled = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *shards)
        parameters = Parameters.of(problem, jnp.float64)

        @jax.jit
        def energies(w):
            ours = sum(potential(problem, parameters, w, shard, None, 1.0) for shard in shards)
            values = {name: value_of(parameters.unravel(w), name) for name in latent}
            found = handlers.trace(handlers.substitute(handlers.seed(model, 0), values)).get_trace(**pooled)
            free = {name: dist.biject_to(found[name]["fn"].support).inv(value) for name, value in values.items()}
            return ours, potential_energy(model, (), pooled, free)

        for seed in (1, 2):
            ours, theirs = energies(0.7 * jax.random.normal(jax.random.key(seed), (parameters.size,)))
            np.testing.assert_allclose(ours, theirs, rtol=1e-12)


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
            np.testing.assert_allclose(found, log_density(hierarchical, (), shard, one)[0], rtol=1e-12)
            prior = dist.Normal(0, 5).log_prob(0.4) + dist.HalfCauchy(1).log_prob(0.8)
            np.testing.assert_allclose(problem.log_prior(one), prior, rtol=1e-12)


def test_private_sites_of_one_agent_are_those_of_its_part():
    """A problem that an agent makes with its own rows alone is its part of the one that is made with all."""
    shards = [rows(size, y=normal) for size in SIZES]
    made = partial(cs.from_numpyro, hierarchical, private=("ward",))
    whole, own = made(shards), made([shards[1]])
    part, parameters = whole.of_agent(1), own.init(jax.random.key(3))
    assert part.network_size == 3
    assert own.shard_digests() == part.shard_digests()
    for name in ("log_prior", "log_private"):
        assert getattr(part, name)(parameters) == getattr(own, name)(parameters)
    one, other = (problem.log_likelihood(parameters, problem.shards[0]) for problem in (part, own))
    np.testing.assert_array_equal(one, other)


def test_deterministic_values_without_rows_are_derived():
    problem = cs.from_numpyro(linear, [rows(size, y=normal) for size in SIZES], check=False)
    found = problem.derived({"slope": jnp.zeros(2), "scale": jnp.array(2.0)})
    assert {name: float(value) for name, value in found.items()} == {"precision": 0.25}
    assert problem.name == "linear"


def test_shards_may_be_tuples_and_reparametrised_sites_come_back():
    def model(x, y):
        mean = numpyro.sample("mean", dist.Normal(0, 1))
        effect = numpyro.sample("effect", dist.Normal(mean, 2.0))
        numpyro.sample("y", dist.Normal(effect * x, 1), obs=y)

    apart = handlers.reparam(model, config={"effect": numpyro.infer.reparam.LocScaleReparam(0)})
    problem = cs.from_numpyro(apart, [(normal(4), normal(4))])
    found = problem.derived({"mean": jnp.array(1.0), "effect_decentered": jnp.array(0.5)})
    assert float(found["effect"]) == 2.0
    assert problem.name == "model"


def test_names_of_several_parts_are_places_in_the_parameters():
    problem = cs.from_numpyro(MODELS["two parts"][0], shards_of("two parts"), check=False)
    assert Parameters.of(problem, jnp.float32).names == ("part.angle", "part.scale", "share")
    assert set(problem.constraints) == {"part.angle", "part.scale", "share"}


def test_bounds_keep_double_precision_in_a_run_with_single():
    problem = cs.from_numpyro(MODELS["poisson"][0], shards_of("poisson"), check=False)
    interval = problem.constraints["share"]
    assert (float(interval.lower_bound), float(interval.upper_bound)) == (0.1, 0.7)
    assert Parameters.of(problem, jnp.float32).unravel(jnp.zeros(2))["share"].dtype == jnp.float32


def test_a_model_may_close_over_arrays_in_either_precision():
    """JAX remembers what it has made of an array, and fails if the precision has changed since."""
    centre, group = np.array([0.5, -0.5]), np.array([0, 1, 1])

    def model(x, y):
        slope = numpyro.sample("slope", dist.Normal(centre, 1).to_event(1))
        numpyro.sample("y", dist.Normal(x @ slope[group], 1), obs=y)

    def density(problem):
        place = {"slope": jnp.array([0.1, 0.2])}
        return jax.jit(lambda p: problem.log_prior(p) + problem.log_likelihood(p, problem.shards[0]).sum())(place)

    shards = [{"x": RNG.normal(size=(4, 3)), "y": normal(4)}]
    single = density(cs.from_numpyro(model, shards))
    assert single.dtype == jnp.float32
    jax.clear_caches()
    with jax.enable_x64(True):
        double = density(cs.from_numpyro(model, shards))
    assert double.dtype == jnp.float64
    np.testing.assert_allclose(single, double, rtol=1e-5)


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
    few = dist.Normal(0, 1).expand([2])
    for wrapped in (few.mask(np.array([True, False])), few, few.to_event(1)):
        assert type(wrapped).__name__ in ("MaskedDistribution", "ExpandedDistribution", "Independent")
        assert isinstance(wrapped.base_dist, dist.Distribution)
    assert type(dist.Unit(0.0)).__name__ == "Unit"
