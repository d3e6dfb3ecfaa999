"""Densities and outcomes of every family, against SciPy and statsmodels."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import statsmodels.api as sm
from scipy import stats

from consilience.studies import Study
from tests.statistical import rejects_mean
from tests.studies.patients import COLUMNS, rows, split, study, write

FAMILIES = {
    "gaussian": study("cost ~ age + stage + treatment", "gaussian"),
    "student-t": study("cost ~ age + stage + treatment", "student-t"),
    "bernoulli": study("died ~ age + stage + treatment"),
    "binomial": Study(
        formula="recovered ~ age + stage + treatment", family="binomial", trials="trials",
        codebook={"columns": {**COLUMNS, "recovered": {"kind": "number"}}},
    ),
    "poisson": study("visits ~ age + stage + treatment", "poisson", exposure="years"),
    "negative-binomial": study("visits ~ age + stage + treatment", "negative-binomial", exposure="years"),
}  # fmt: skip
OWN = {"sigma": 9.0, "freedom": 5.0, "alpha": 2.0}


def problem_of(regression, columns, place, sites=1):
    files = [write(place / f"{number}.csv", site) for number, site in enumerate(split(columns, sites))]
    return regression.problem(files)


def parameters_of(regression):
    """Somewhere that is plausible; on the outcome's scale where the link is the identity."""
    scale = 20 if regression.family_of.link == "identity" else 1
    coefficients = scale * np.array([-0.2, 0.5, 0.1, 0.8, -0.6])
    coefficients[0] += 100 * (scale == 20)
    return {"coefficients": coefficients, **{name: OWN[name] for name in regression.family_of.extra}}


def reference(name, p, shard):
    """The log-likelihood of all rows by another program."""
    x, y, w = np.asarray(shard["x"]), np.asarray(shard["y"]), p["coefficients"]
    if name == "gaussian":
        return stats.norm.logpdf(y, x @ w, p["sigma"]).sum()
    if name == "student-t":
        return stats.t.logpdf(y, p["freedom"], x @ w, p["sigma"]).sum()
    if name == "bernoulli":
        return sm.Logit(y, x).loglike(w)
    if name == "binomial":
        both = np.stack([y, shard["trials"] - y], 1)
        return sm.GLM(both, x, family=sm.families.Binomial()).loglike(w)
    if name == "poisson":
        return sm.Poisson(y, x, offset=shard["offset"]).loglike(w)
    mean = np.exp(x @ w + shard["offset"])
    return stats.nbinom.logpmf(y, p["alpha"], p["alpha"] / (p["alpha"] + mean)).sum()


@pytest.mark.parametrize("name", FAMILIES)
def test_log_likelihoods_are_those_of_other_programs(name, tmp_path):
    regression = FAMILIES[name]
    problem, p = problem_of(regression, rows(300), tmp_path), parameters_of(regression)
    with jax.enable_x64(True):
        shard = jax.tree.map(jnp.asarray, problem.shards[0])
        found = problem.log_likelihood(p, shard)
        assert found.shape == (300,)
        assert float(found.sum()) == pytest.approx(reference(name, p, problem.shards[0]), rel=1e-10)
        other = {**p, "coefficients": p["coefficients"] * 1.01}
        assert float(problem.log_likelihood(other, shard).sum()) != pytest.approx(
            reference(name, p, problem.shards[0]), rel=1e-10
        )


@pytest.mark.parametrize("name", FAMILIES)
def test_simulated_outcomes_have_the_mean_that_is_expected(name, tmp_path):
    """Standardised by the family's own variance, so that Student's heavy tails are the worst case."""
    regression = FAMILIES[name]
    problem, p = problem_of(regression, rows(6), tmp_path), parameters_of(regression)
    outcome = regression.parsed.outcome
    shard = {place: values for place, values in problem.shards[0].items() if place != "y"}  # rows may lack it
    with jax.enable_x64(True):
        mean = np.asarray(problem.outcomes.expected(p, shard)[outcome])
        draw = jax.jit(jax.vmap(lambda key: problem.outcomes.simulate(key, p, shard)[outcome]))
        draws = np.asarray(draw(jax.random.split(jax.random.key(3), 20_000)))
    assert not rejects_mean(draws, mean)
    assert rejects_mean(draws, mean * 1.02 + 0.02)
    kind = problem.outcomes.kinds[outcome]
    assert kind == {"gaussian": "number", "student-t": "number", "bernoulli": "binary"}.get(name, "count")
    if kind != "number":
        assert (draws == np.round(draws)).all()
        assert draws.min() >= 0
    np.testing.assert_array_equal(problem.outcomes.observed(problem.shards[0])[outcome], problem.shards[0]["y"])


def test_effects_of_a_site_move_its_rows_only(tmp_path):
    problem = problem_of(study("died ~ age + (1 + age | site)"), rows(30), tmp_path, sites=2)
    p = {
        "coefficients": jnp.array([0.1, 0.2]),
        "site_sd": jnp.array([2.0, 0.5]),
        "site_effect": jnp.array([1.0, -1.0]),
    }
    shard = problem.shards[0]
    plain = problem.outcomes.expected({**p, "site_effect": jnp.zeros(2)}, shard)["died"]
    moved = problem.outcomes.expected(p, shard)["died"]
    logit = np.log(moved / (1 - moved)) - np.log(plain / (1 - plain))
    np.testing.assert_allclose(logit, 2.0 - 0.5 * shard["x"][:, 1], atol=1e-4)
    np.testing.assert_allclose(problem.derived(p)["site_difference"], [2.0, -0.5])
    assert problem.labels["site_difference"] == ("Intercept", "age")


def separated(place):
    """All who are older than 60 died and nobody else: the likelihood has no maximum."""
    age = np.r_[np.linspace(30, 59, 30), np.linspace(61, 90, 30)].round(1)[::-1]
    columns = {"age": age, "died": np.where(age > 60, "yes", "no")}
    return problem_of(study("died ~ age"), columns, place, 3)


def test_a_weak_prior_holds_the_mode_of_what_separates(tmp_path):
    from scipy.optimize import minimize

    problem = separated(tmp_path)
    with jax.enable_x64(True):
        pooled = {key: np.concatenate([shard[key] for shard in problem.shards]) for key in problem.shards[0]}

        def mode(prior):
            def loss(w):
                p = {"coefficients": w}
                return -problem.log_likelihood(p, pooled).sum() - prior * problem.log_prior(p)

            found = minimize(jax.jit(jax.value_and_grad(loss)), np.zeros(2), jac=True, options={"maxiter": 500})
            return found.x[1]

        assert 1 < mode(1.0) < 5 * study("died ~ age").all_priors["age"].sd
        assert mode(1e-9) > 20 * mode(1.0)
