"""What cannot be shared out by rows is refused, by the name of the site and with what to do."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan

import consilience as cs
from consilience.errors import ProblemError

SHARDS = [
    {"x": np.array([0.3, -1.0, 2.0, 0.7]), "y": np.array([1.0, 0.2, -0.4, 2.0])},
    {"x": np.ones(1), "y": np.ones(1)},
]


def slope():
    return numpyro.sample("slope", dist.Normal(0, 1))


def random_walk(x, y):
    numpyro.sample("walk", dist.GaussianRandomWalk(jnp.exp(slope()), num_steps=len(y)), obs=y)


def autoregression(x, y):
    numpyro.sample("next", dist.Normal(slope() * y[:-1], 1), obs=y[1:])


def padded_autoregression(x, y):
    numpyro.sample("next", dist.Normal(slope() * jnp.concatenate([jnp.zeros(1), y[:-1]]), 1), obs=y)


def gaussian_process(x, y):
    kernel = jnp.exp(slope() - (x[:, None] - x) ** 2) + jnp.eye(len(x))
    numpyro.sample("curve", dist.MultivariateNormal(0, kernel), obs=y)


def latent_process(x, y):
    kernel = jnp.exp(-((x[:, None] - x) ** 2)) + jnp.eye(len(x))
    numpyro.sample("y", dist.Normal(numpyro.sample("curve", dist.MultivariateNormal(0, kernel)), 1), obs=y)


def centred(x, y):
    numpyro.sample("centred", dist.Normal(slope() * (x - x.mean()), 1), obs=y)


def empirical_prior(x, y):
    numpyro.sample("y", dist.Normal(numpyro.sample("mean", dist.Normal(y.mean(), 1)), 1), obs=y)


def range_from_data(x, y):
    numpyro.sample("y", dist.Normal(numpyro.sample("top", dist.Uniform(-10, 10 + x.sum())), 1), obs=y)


def range_from_parameter(x, y):
    high = numpyro.sample("high", dist.HalfNormal(1))
    numpyro.sample("y", dist.Normal(numpyro.sample("below", dist.Uniform(0, high)), 1), obs=y)


def summed_factor(x, y):
    numpyro.sample("y", dist.Normal(slope(), 1), obs=y)
    numpyro.factor("total", -((x - y) ** 2).sum())


def only_a_summed_factor(x, y):
    numpyro.factor("total", -((y - slope() * x) ** 2).sum())


def latent_of_each_row(x, y):
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(numpyro.sample("effect", dist.Normal(0, 1)), 1), obs=y)


def discrete(x, y):
    numpyro.sample("y", dist.Normal(numpyro.sample("class", dist.Bernoulli(0.5)), 1), obs=y)


def subsampled(x, y):
    mean = slope()
    with numpyro.plate("rows", len(y), subsample_size=2) as chosen:
        numpyro.sample("y", dist.Normal(mean, 1), obs=y[chosen])


def one_event(x, y):
    numpyro.sample("all", dist.Normal(slope() * x, 1).to_event(1), obs=y)


def loop(x, y):
    mean = slope()
    for place in range(len(y)):
        numpyro.sample(f"y_{place}", dist.Normal(mean, 1), obs=y[place])


def with_param(x, y):
    numpyro.sample("y", dist.Normal(numpyro.param("fitted", 0.5), 1), obs=y)


def column_against_row(x, y):
    numpyro.sample("pairs", dist.Normal(slope() * x[:, None], 1), obs=y)


def fixed_plate(x, y):
    mean = slope()
    with numpyro.plate("patients", 4):
        numpyro.sample("y", dist.Normal(mean * x, 1), obs=y)


def looks_at_values(x, y):
    mean = slope()
    numpyro.sample("y", dist.Normal(mean if x.max() > 0 else 0.0, 1), obs=y)


def missing_outcomes(x, y):
    numpyro.sample("y", dist.Normal(slope() * x, 1), obs=y, obs_mask=x > 0)


def scanned_series(x, y):
    def move(before, now):
        state = numpyro.sample("state", dist.Normal(before, 1))
        numpyro.sample("y", dist.Normal(state, 1), obs=now)
        return state, None

    scan(move, slope(), y)


def scanned_autoregression(x, y):
    coefficient = slope()

    def move(before, now):
        numpyro.sample("y", dist.Normal(coefficient * before, 1), obs=now)
        return now, None

    scan(move, jnp.zeros(()), y)


def random_state(x, y):
    noise = jax.random.normal(numpyro.prng_key())
    numpyro.sample("y", dist.Normal(slope() + noise, 1), obs=y)


OWN_ROWS = np.linspace(0, 1, 4)


def closes_over_rows(x, y):
    numpyro.sample("y", dist.Normal(slope() * OWN_ROWS, 1), obs=y)


def sphere(x, y):
    numpyro.sample("place", dist.ProjectedNormal(jnp.ones(2)))
    numpyro.sample("y", dist.Normal(slope(), 1), obs=y)


def prior_of_the_number_of_rows(x, y):
    numpyro.sample("y", dist.Normal(numpyro.sample("mean", dist.Normal(0, 1 / len(y))), 1), obs=y)


def same_places(x, y):
    mean = numpyro.sample("a", dist.Normal(0, 1)) + numpyro.sample("a/b", dist.Normal(0, 1))
    numpyro.sample("y", dist.Normal(mean, 1), obs=y)


REFUSED = {
    random_walk: ("'walk'", "whole series"),
    autoregression: ("'next'", "whole series"),
    padded_autoregression: ("'next'", "changes with the other rows"),
    gaussian_process: ("'curve'", "product over rows"),
    latent_process: ("'curve'", "one value for each row"),
    centred: ("'centred'", "beforehand"),
    empirical_prior: ("'mean'", "agree on in advance"),
    range_from_data: ("'top'", "fixed range"),
    range_from_parameter: ("'below'", "fixed range"),
    summed_factor: ("'total'", "one value for each row"),
    only_a_summed_factor: ("no observed site", "do not sum"),
    latent_of_each_row: ("'effect'", "integrate it out"),
    discrete: ("'class'", "MixtureSameFamily"),
    subsampled: ("'rows'", "leave out subsample_size"),
    one_event: ("'all'", "numpyro.plate"),
    loop: ("'y_", "numpyro.plate"),
    with_param: ("'fitted'", "sample site"),
    column_against_row: ("'pairs'", "give both the same"),
    fixed_plate: ("'patients'", "len(y)"),
    looks_at_values: ("'slope'", "functools.partial"),
    missing_outcomes: ("'y_unobserved'", "handlers.mask"),
    scanned_series: ("'state'", "whole group or series"),
    scanned_autoregression: ("'y'", "whole series"),
    random_state: ("'y'", "must be a sample site"),
    closes_over_rows: ("after site 'y'", "close over none"),
    sphere: ("'place'", "reparam"),
    prior_of_the_number_of_rows: ("'mean'", "agree on in advance"),
    same_places: ("'a' and 'a/b'", "something else"),
}


@pytest.mark.parametrize(("model", "parts"), REFUSED.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_models_that_are_no_product_over_rows_are_refused(model, parts):
    with pytest.raises(ProblemError) as refused:
        cs.from_numpyro(model, SHARDS)
    assert [part for part in parts if part not in str(refused.value)] == [], str(refused.value)


def good(x, y):
    numpyro.sample("y", dist.Normal(slope() * x, 1), obs=y)


@pytest.mark.parametrize(
    ("shards", "private", "part"),
    [
        (SHARDS, ("ward",), "it has slope"),
        (SHARDS, "slope", "tuple of names"),
        ([], (), "at least one shard"),
        ([{"x": np.ones(3)}], (), "missing 1 required positional argument"),
        ([{"x": np.ones(3), "y": np.ones(3), "groups": 2}], (), "'groups', .* functools.partial"),
        ([{"x": np.array(["low", "high"]), "y": np.ones(2)}], (), "categories into 0, 1, 2"),
        ([{"x": np.ones(3), "y": np.ones(2)}], (), "2 and 3 rows"),
    ],
)
def test_what_does_not_fit_the_model_is_refused(shards, private, part):
    assert cs.from_numpyro(good, SHARDS).num_agents == 2
    with pytest.raises(ProblemError, match=part):
        cs.from_numpyro(good, shards, private=private)


def test_a_shared_site_may_not_depend_on_a_private_one():
    def model(x, y):
        own = numpyro.sample("own", dist.Normal(0, 1))
        shared = numpyro.sample("shared", dist.Normal(own, 1))
        numpyro.sample("y", dist.Normal(shared + own * x, 1), obs=y)

    assert cs.from_numpyro(model, SHARDS, check=False).private == ()
    with pytest.raises(ProblemError, match="'shared', which all agents share, depends on the private own"):
        cs.from_numpyro(model, SHARDS, private=("own",))


def test_checks_see_through_agents_with_a_single_row():
    """Rows are made up then, or a mean over rows would look like the row itself."""
    one = [{"x": np.array([0.3]), "y": np.array([1.0])}]
    assert cs.from_numpyro(good, one).num_agents == 1
    with pytest.raises(ProblemError, match="'centred'"):
        cs.from_numpyro(centred, one)


def test_what_numbers_show_may_be_left_unchecked():
    assert cs.from_numpyro(centred, SHARDS, check=False).num_agents == 2
