"""What problems from NumPyro models say about outcomes: means, draws, and which columns rows may lack."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from scipy import stats

import consilience as cs
from consilience.errors import InputError
from tests.adapters.numpyro_zoo import MODELS, NAMES, RNG, hierarchical, normal, rows, shards_of
from tests.statistical import FALSE_ALARM, rejects_mean

KINDS = {
    "linear": {"y": "number"},
    "logistic": {"label": "binary"},
    "poisson": {"count": "count"},
    "structured": {"y": "number", "x": "number"},
    "masked and scaled": {"y": "number"},
    "nested plates": {"answers": "binary"},
    "classes": {"level": "class", "kind": "class"},
    "two parts": {"count": "count"},
    "reparametrised": {"time": "number"},
}


@pytest.mark.parametrize("name", NAMES)
def test_outcomes_are_those_of_the_observed_sites(name):
    """With and without the outcome among the rows: the same means, draws of the same shapes; and the outcome."""
    shards = shards_of(name)
    problem = cs.from_numpyro(MODELS[name][0], shards, check=False)
    outcomes, own = problem.outcomes, shards[1]
    assert outcomes.kinds == KINDS[name]
    assert outcomes.draw_private is None
    parameters = problem.init(jax.random.key(0))
    without = {column: values for column, values in own.items() if column not in outcomes.kinds or column == "x"}
    known, unknown = (jax.jit(outcomes.expected)(parameters, some) for some in (own, without))
    drawn = jax.jit(outcomes.simulate)(jax.random.key(1), parameters, without)
    observed = outcomes.observed(own)
    for outcome, kind in outcomes.kinds.items():
        np.testing.assert_array_equal(known[outcome], unknown[outcome])
        np.testing.assert_allclose(observed[outcome], own[outcome], rtol=1e-6)
        assert drawn[outcome].shape == own[outcome].shape
        assert known[outcome].shape == own[outcome].shape + ((3,) if kind == "class" else ())
        assert np.isfinite(known[outcome]).all()
        if kind == "class":
            np.testing.assert_allclose(known[outcome].sum(-1), 1, rtol=1e-5)
        if kind != "number":
            assert np.issubdtype(drawn[outcome].dtype, np.integer)


def simulated(outcomes, parameters, some, count=4000):
    keys = jax.random.split(jax.random.key(5), count)
    return jax.jit(jax.vmap(lambda key: outcomes.simulate(key, parameters, some)))(keys)


@pytest.mark.parametrize("name", ["linear", "poisson", "nested plates"])
def test_draws_have_the_expected_mean(name):
    """4,000 draws for each of nine rows; a correct mean is rejected at a rate of 1e-6, one off by 0.2 sd surely."""
    shards = shards_of(name)
    outcomes = cs.from_numpyro(MODELS[name][0], shards, check=False).outcomes
    parameters = {
        "linear": {"slope": jnp.array([1.0, -0.5]), "scale": jnp.array(0.7)},
        "poisson": {"rate": jnp.array(1.5), "share": jnp.array(0.4)},
        "nested plates": {"difficulty": jnp.array([[0.5], [-0.2], [1.0]])},
    }[name]
    outcome = next(iter(outcomes.kinds))
    drawn = np.asarray(simulated(outcomes, parameters, shards[1])[outcome], float).reshape(4000, -1)
    mean = np.asarray(outcomes.expected(parameters, shards[1])[outcome], float).reshape(-1)
    assert not rejects_mean(drawn, mean)
    assert rejects_mean(drawn, mean + 0.2 * drawn.std(0))


def test_class_probabilities_are_the_frequencies_of_draws():
    """By chi-square for each of nine rows, with a rate of false alarms of 1e-6 in all; shifted classes are found."""
    shards = shards_of("classes")
    outcomes = cs.from_numpyro(MODELS["classes"][0], shards, check=False).outcomes
    parameters = {"cuts": jnp.array([-1.0, 1.0]), "slope": jnp.array(0.5), "logits": jnp.eye(2, 3)}
    drawn = simulated(outcomes, parameters, shards[1])
    for outcome, probabilities in outcomes.expected(parameters, shards[1]).items():
        counts = np.stack([(np.asarray(drawn[outcome]) == one).sum(0) for one in range(3)], -1)

        def smallest(probabilities, counts=counts):
            expected = 4000 * np.asarray(probabilities, float)
            return stats.chi2.sf(((counts - expected) ** 2 / expected).sum(-1), 2).min()

        assert smallest(probabilities) > FALSE_ALARM / 9
        assert smallest(np.roll(probabilities, 1, -1)) < FALSE_ALARM / 9


def test_private_effects_of_a_new_site_are_drawn_given_the_shared():
    """1,000 draws of two wards' effects; their law is rejected at a rate of 1e-6, one with another mean is."""
    problem = cs.from_numpyro(hierarchical, [rows(4, y=normal)], private=("ward",), check=False)
    parameters = {"mean": jnp.array(3.0), "spread": jnp.array(0.5), "ward": jnp.zeros(2)}
    keys = jax.random.split(jax.random.key(2), 1000)
    drawn = jax.jit(jax.vmap(lambda key: problem.outcomes.draw_private(key, parameters)))(keys)
    assert (np.asarray(drawn["mean"]) == 3.0).all()
    assert not rejects_mean(np.asarray(drawn["ward"]), np.full(2, 3.0))
    assert rejects_mean(np.asarray(drawn["ward"]), np.zeros(2))
    assert stats.kstest(np.asarray(drawn["ward"]).ravel(), stats.norm(3.0, 0.5).cdf).pvalue > FALSE_ALARM


def joint(x, y):
    """Outcomes in a row: the second sees what the first one is, or would be."""
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    first = numpyro.sample("x", dist.Normal(mean, 0.01), obs=x)
    numpyro.sample("y", dist.Normal(first, 0.01), obs=y)


def test_an_outcome_that_others_depend_on_is_drawn_with_them_and_needed_for_their_mean():
    outcomes = cs.from_numpyro(joint, [{"x": normal(5), "y": normal(5)}], check=False).outcomes
    at = {"mean": jnp.array(7.0)}
    drawn = outcomes.simulate(jax.random.key(0), at, {"y": np.zeros(3)})
    assert np.abs(np.asarray(drawn["y"]) - 7).max() < 1
    assert np.asarray(outcomes.expected(at, {"x": np.array([1.0, 2.0])})["y"]).tolist() == [1.0, 2.0]
    with pytest.raises(InputError, match="rows lack 'x': outcome 'y' needs it, for its mean"):
        outcomes.expected(at, {"y": np.zeros(3)})
    with pytest.raises(InputError, match="rows lack 'y'"):
        outcomes.observed({"x": np.zeros(3)})


def test_rows_may_lack_what_is_not_needed_and_nothing_else():
    outcomes = cs.from_numpyro(MODELS["linear"][0], shards_of("linear"), check=False).outcomes
    at = {"slope": jnp.array([2.0, 0.0]), "scale": jnp.array(1.0)}
    more = {"x": np.eye(2), "site": np.array(["a", "b"]), "y": None}
    assert np.asarray(outcomes.expected(at, more)["y"]).tolist() == [2.0, 0.0]
    for rows_, part in (
        ({"y": np.ones(2)}, "rows lack 'x'"),
        ({"z": np.ones(2)}, "no column that the model takes"),
        (np.ones(2), "expected rows as a dictionary"),
    ):
        with pytest.raises(InputError, match=part):
            outcomes.expected(at, rows_)


def test_rows_as_tuples_may_end_before_the_outcome():
    def model(x, y):
        numpyro.sample("y", dist.Normal(numpyro.sample("slope", dist.Normal(0, 1)) * x, 1), obs=y)

    outcomes = cs.from_numpyro(model, [(normal(3), normal(3))], check=False).outcomes
    for given in ((np.array([2.0]),), (np.array([2.0]), None)):
        assert np.asarray(outcomes.expected({"slope": jnp.array(1.5)}, given)["y"]).tolist() == [3.0]
    with pytest.raises(InputError, match="rows lack 0"):
        outcomes.expected({"slope": jnp.array(1.5)}, (None, np.ones(2)))


def test_an_outcome_without_a_formula_for_its_mean_has_one_from_draws():
    def model(y):
        scale = numpyro.sample("scale", dist.HalfNormal(1))
        twice = dist.TransformedDistribution(dist.Normal(3, scale), dist.transforms.AffineTransform(1, 2))
        numpyro.sample("y", twice, obs=y)

    outcomes = cs.from_numpyro(model, [{"y": normal(4)}], check=False).outcomes
    found = np.asarray(outcomes.expected({"scale": jnp.array(0.1)}, {"y": np.zeros(2)})["y"])
    assert np.abs(found - 7).max() < 0.1  # the error's standard deviation is 0.01


def test_a_model_that_draws_nothing_has_no_outcomes():
    def model(x, y):
        slope = numpyro.sample("slope", dist.Normal(0, 1))
        numpyro.factor("y", -((y - slope * x) ** 2))

    assert cs.from_numpyro(model, [{"x": normal(4), "y": normal(4)}], check=False).outcomes is None


def test_masked_rows_have_outcomes_all_the_same():
    def model(y):
        mean = numpyro.sample("mean", dist.Normal(0, 1))
        with handlers.mask(mask=~jnp.isnan(y)):
            numpyro.sample("y", dist.Normal(mean, 1), obs=y)

    problem = cs.from_numpyro(model, [{"y": np.where(RNG.random(6) < 0.5, np.nan, 1.0)}])
    found = problem.outcomes.simulate(jax.random.key(0), {"mean": jnp.array(0.5)}, {"y": np.full(3, np.nan)})
    assert np.isfinite(found["y"]).all()
    assert len(set(np.asarray(found["y"]).tolist())) == 3
