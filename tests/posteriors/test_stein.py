"""Stein's identities at draws that were made without this package's problems: by NumPyro's own NUTS, or by hand.

On the unconstrained scale, in coordinates `u` in which the draws have unit covariance, if they are from exp(−U),

    E(∂_k U) = 0,    E((u_k − E u_k) ∂_k U) = 1:

`U` is the sum over the agents of a problem, so the identities hold if that is the density of the draws, and not if a
prior counts twice, or not at all. Errors are those of dependent draws; a tenth of the rate of false alarms is allowed
to a normal law, since errors are estimated (`tests/statistical.py`).
"""

from dataclasses import replace

import jax
import numpy as np
import pytest
from numpyro.infer import MCMC, NUTS
from scipy import stats

from consilience.diagnostics.convergence import effective_draws, mean_error
from tests.posteriors.pooled import pooled_parameters, summed_energy
from tests.posteriors.truth import contradicts
from tests.statistical import FALSE_ALARM

OPTIMISED = True
SCHOOLS, HARES = "eight_schools-eight_schools_noncentered", "hudson_lynx_hare-lotka_volterra"
"""Few data, so that their priors are seen."""
CHAINS, DRAWS = 4, 1_500


def schools_by_hand():
    """By site, `(chain, draw, …)`: independent draws of the eight schools, as Rubin made them, one after another.

    The effects given mean and spread are normal, the mean given the spread is normal, and the spread is drawn from a
    grid of its logarithm with steps of 0.001.
    """
    effects, errors = np.array([28, 8, -3, 7, -1, 1, 18, 12.0]), np.array([15, 10, 16, 11, 9, 11, 10, 18.0])
    random, shape, step = np.random.default_rng(0), (CHAINS, DRAWS), 1e-3

    def of_mean(tau):
        """Precision of the mean given the spread, and the mean's mean; the prior is Normal(0, 5)."""
        weights = 1 / (errors**2 + tau[..., None] ** 2)
        precision = weights.sum(-1) + 1 / 25
        return precision, weights @ effects / precision, weights

    grid = np.arange(-12, 9, step)
    precision, middle, weights = of_mean(np.exp(grid))
    logs = (np.log(weights).sum(-1) - np.log(precision) - weights @ effects**2 + precision * middle**2) / 2
    logs += grid - np.log1p(np.exp(2 * grid) / 25)  # the half-Cauchy prior, of a logarithm
    chances = np.exp(logs - logs.max())
    places = random.choice(len(grid), shape, p=chances / chances.sum())
    tau = np.exp(grid[places] + step * (random.random(shape) - 0.5))
    precision, middle, _ = of_mean(tau)
    mu = middle + random.normal(size=shape) / np.sqrt(precision)
    shrunk = 1 / (1 + tau[..., None] ** 2 / errors**2)
    centre = tau[..., None] * (effects - mu[..., None]) / errors**2 * shrunk
    return {"mu": mu, "tau": tau, "z": centre + np.sqrt(shrunk) * random.normal(size=(*shape, len(effects)))}


def pooled_draws(posterior):
    """By site, `(chain, draw, …)`: of NumPyro's NUTS, given all rows."""
    sampler = MCMC(
        NUTS(posterior.recipe.model(posterior.data), target_accept_prob=0.9), num_warmup=700, num_samples=DRAWS,
        num_chains=CHAINS, chain_method="vectorized", progress_bar=False,
    )  # fmt: skip
    sampler.run(jax.random.key(3), **posterior.rows)
    return sampler.get_samples(group_by_chain=True)


def rejects_identities(problem, parameters, draws, prior_counts):
    """Whether draws `(chain, draw, …)` by site contradict Stein's identities for a problem's summed potential.

    A list: for each entry of `prior_counts` as if the prior counted so many times, in which slopes are linear.
    """
    free, slope = _slopes(problem, parameters, draws)
    _, without = _slopes(
        replace(problem, log_prior=lambda values: 0.0 * problem.log_prior(values)), parameters, draws
    )
    return [_rejects(free, without + count * (slope - without)) for count in prior_counts]


def _slopes(problem, parameters, draws):
    """Unconstrained positions `(draws, size)`, and the summed potential's slopes there."""
    energy = summed_energy(problem, parameters)
    sites = {name: draws[name].reshape(-1, *draws[name].shape[2:]) for name in parameters.names}

    def slopes(values):
        free = parameters.ravel(values)
        return free, jax.grad(lambda w: energy(parameters.unravel(w)))(free)

    return map(np.asarray, jax.jit(lambda some: jax.lax.map(slopes, some, batch_size=500))(sites))


def _rejects(free, slope):
    root = np.linalg.cholesky(np.cov(free.T))
    free, slope = (one.reshape(CHAINS, DRAWS, -1) for one in (np.linalg.solve(root, free.T).T, slope @ root))
    columns = np.concatenate([slope, (free - free.mean((0, 1))) * slope], -1)
    wanted = np.repeat([0.0, 1.0], slope.shape[-1])
    score = np.abs(columns.mean((0, 1)) - wanted) / mean_error(columns)
    return not score.max() <= stats.norm.isf(FALSE_ALARM / 10 / (2 * len(score)))


def reference_contradicted_by(posterior, draws):
    found = posterior.measured(draws, "random")
    assert effective_draws(found).min() > 1_000
    flat = found.reshape(-1, found.shape[-1])
    squares = (found - flat.mean(0)) ** 2
    errors = mean_error(found), mean_error(squares) / (2 * flat.std(0))
    return contradicts(posterior.reference, flat.mean(0), flat.std(0), *errors)


def require_identities(posterior, draws):
    """The problem's, and not those of one whose prior is forgotten, counts twice, or counts at each agent."""
    problem, parameters = posterior.problem(), pooled_parameters(posterior)
    assert not reference_contradicted_by(posterior, draws)
    counts = [1, 0, 2, problem.num_agents]
    assert rejects_identities(problem, parameters, draws, counts) == [False, True, True, True]


def test_draws_by_hand_agree_with_reference_and_problem_and_not_with_wrong_priors(load):
    with jax.enable_x64(True):
        require_identities(load(SCHOOLS), schools_by_hand())


@pytest.mark.slow(reason="NUTS on all rows, 6,000 draws, of differential equations")
def test_draws_of_all_rows_agree_with_reference_and_problem_and_not_with_wrong_priors(load):
    with jax.enable_x64(True):
        posterior = load(HARES)
        require_identities(posterior, pooled_draws(posterior))
