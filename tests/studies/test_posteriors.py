"""Posteriors of studies, by sites in unison: against statsmodels, and against NumPyro on the pooled rows."""

import jax
import numpy as np
import pytest
import statsmodels.api as sm
from scipy import stats

import consilience as cs
from tests.studies.patients import book, rows, study
from tests.studies.test_models import FAMILIES, problem_of, separated

OPTIMISED = True


def posterior(problem, tmp_path, sampler=None, **entries):
    """Draws `(chains, draws, coefficients)` of a problem's coefficients by sites in unison."""
    entries = {"num_warmup": 300, "num_draws": 500, **entries}
    plan = cs.Plan(graph=cs.graphs.ring(problem.num_agents), sampler=sampler or cs.nuts(), **entries)
    run = cs.sample(problem, plan, tmp_path / "run")
    assert max(row["rhat"] for row in run.summary["posterior"]) < 1.02
    return run.draws["coefficients"].to_numpy()


@pytest.mark.slow(reason="a posterior")
def test_a_weak_prior_holds_the_posterior_of_what_separates(tmp_path):
    draws = posterior(separated(tmp_path), tmp_path)[..., 1]
    prior_sd = study("died ~ age").all_priors["age"].sd
    assert 1 < draws.mean() < 5 * prior_sd
    assert draws.std() < 2 * prior_sd


@pytest.mark.slow(reason="six posteriors")
@pytest.mark.parametrize("name", FAMILIES)
def test_posterior_means_are_near_the_maximum_of_the_likelihood(name, tmp_path):
    """With 3,000 rows weak priors hardly count: within 0.25 posterior sd for every coefficient.

    With at least 800 effective draws the Monte Carlo error is below 0.036 sd, so that 0.25 are seven of them.
    """
    regression, columns = FAMILIES[name], rows(3000, 7)
    problem = problem_of(regression, columns, tmp_path, sites=3)
    draws = posterior(problem, tmp_path)
    pooled = {key: np.concatenate([shard[key] for shard in problem.shards]) for key in problem.shards[0]}
    x, y = pooled["x"], pooled["y"]
    if name in ("gaussian", "student-t"):
        fitted = sm.OLS(y, x).fit().params if name == "gaussian" else _student_fit(x, y)
    elif name == "bernoulli":
        fitted = sm.Logit(y, x).fit(disp=0).params
    elif name == "binomial":
        both = np.stack([y, pooled["trials"] - y], 1)
        fitted = sm.GLM(both, x, family=sm.families.Binomial()).fit().params
    else:
        kind = sm.Poisson if name == "poisson" else sm.NegativeBinomial
        fitted = kind(y, x, offset=pooled["offset"]).fit(disp=0, maxiter=200).params[: x.shape[1]]
    apart = np.abs(draws.mean((0, 1)) - fitted) / draws.std((0, 1))
    assert apart.max() < 0.25
    assert (np.abs(draws.mean((0, 1)) - 1.05 * fitted) / draws.std((0, 1))).max() > 0.25


def _student_fit(x, y):
    """The maximum of the likelihood over coefficients, scale and degrees of freedom."""
    from scipy.optimize import minimize

    def loss(p):
        return -stats.t.logpdf(y, np.exp(p[-1]), x @ p[:-2], np.exp(p[-2])).sum()

    start = np.r_[sm.OLS(y, x).fit().params, np.log(10), np.log(5)]
    return minimize(loss, start, method="BFGS").x[:-2]


@pytest.mark.slow(reason="NUTS by NumPyro on the pooled rows, and HMC of six sites")
def test_site_effects_have_the_posterior_of_pooled_numpyro(tmp_path):
    """Of a logistic regression with a slope and an intercept of each of six sites."""
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import MCMC, NUTS

    regression = study("died ~ age + treatment + (1 | site)", codebook=book())
    columns = rows(900, 11)
    site = np.arange(900) % 6
    order = np.argsort(site, kind="stable")
    rng = np.random.default_rng(5)
    shift = np.array([-1.0, -0.4, 0.0, 0.3, 0.6, 1.2])[site]
    chance = 1 / (1 + np.exp(-(shift + 0.5 * (columns["age"] - 60) / 10 - 0.6 * (columns["treatment"] == "new"))))
    columns["died"] = np.where(rng.random(900) < chance, "yes", "no")
    problem = problem_of(regression, {name: values[order] for name, values in columns.items()}, tmp_path, sites=6)
    draws = posterior(problem, tmp_path, cs.hmc(target_acceptance=0.95), num_warmup=600, num_draws=1500)
    known = regression.all_priors
    x, y = (np.concatenate([shard[key] for shard in problem.shards]) for key in ("x", "y"))
    member = np.repeat(np.arange(6), 150)

    def model():
        w = numpyro.sample(
            "w", dist.Normal(0, np.array([known[one].sd for one in regression.coefficients])).to_event(1)
        )
        sd = numpyro.sample("sd", dist.HalfNormal(known["site_sd[Intercept]"].sd))
        effect = numpyro.sample("effect", dist.Normal(0, 1).expand([6]).to_event(1))
        numpyro.sample("y", dist.Bernoulli(logits=x @ w + sd * effect[member]), obs=y)

    with jax.enable_x64(True):
        sampler = MCMC(
            NUTS(model, target_accept_prob=0.95), num_warmup=800, num_samples=1500, num_chains=4,
            chain_method="sequential", progress_bar=False,
        )  # fmt: skip
        sampler.run(jax.random.key(0))
        pooled = np.asarray(sampler.get_samples()["w"])
    apart = np.abs(draws.mean((0, 1)) - pooled.mean(0)) / pooled.std(0)
    assert apart.max() < 0.3
    assert np.abs(draws.std((0, 1)) / pooled.std(0) - 1).max() < 0.25
