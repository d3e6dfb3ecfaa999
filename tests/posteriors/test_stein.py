"""Stein's identities at draws that NumPyro's own NUTS made of all rows together, without this package's problems.

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


def pooled_draws(posterior):
    """By site, `(chain, draw, …)`: of NumPyro's NUTS, given all rows."""
    sampler = MCMC(
        NUTS(posterior.recipe.model(posterior.data), target_accept_prob=0.9), num_warmup=700, num_samples=DRAWS,
        num_chains=CHAINS, chain_method="vectorized", progress_bar=False,
    )  # fmt: skip
    sampler.run(jax.random.key(3), **posterior.rows)
    return sampler.get_samples(group_by_chain=True)


def rejects_identities(problem, parameters, draws):
    """Whether draws `(chain, draw, …)` by site contradict Stein's identities for a problem's summed potential."""
    energy = summed_energy(problem, parameters)
    sites = {name: draws[name].reshape(-1, *draws[name].shape[2:]) for name in parameters.names}

    def slopes(values):
        free = parameters.ravel(values)
        return free, jax.grad(lambda w: energy(parameters.unravel(w)))(free)

    free, slope = (np.asarray(one) for one in jax.jit(lambda some: jax.lax.map(slopes, some, batch_size=500))(sites))
    root = np.linalg.cholesky(np.cov(free.T))
    free, slope = (one.reshape(CHAINS, DRAWS, -1) for one in (np.linalg.solve(root, free.T).T, slope @ root))
    columns = np.concatenate([slope, (free - free.mean((0, 1))) * slope], -1)
    wanted = np.repeat([0.0, 1.0], slope.shape[-1])
    score = np.abs(columns.mean((0, 1)) - wanted) / mean_error(columns)
    return not score.max() <= stats.norm.isf(FALSE_ALARM / 10 / (2 * len(score)))


@pytest.mark.slow(reason="NUTS on all rows, 6,000 draws of each of two posteriors")
@pytest.mark.parametrize("name", [SCHOOLS, HARES])
def test_draws_of_all_rows_agree_with_reference_and_problem_and_not_with_wrong_priors(name, load):
    with jax.enable_x64(True):
        posterior = load(name)
        problem, parameters = posterior.problem(), pooled_parameters(posterior)
        draws = pooled_draws(posterior)
        found = posterior.measured(draws, "random")
        effective = effective_draws(found)
        assert effective.min() > 1_000
        reference, flat = posterior.reference, found.reshape(-1, found.shape[-1])
        squares = (found - flat.mean(0)) ** 2
        assert not contradicts(
            reference, flat.mean(0), flat.std(0), mean_error(found), mean_error(squares) / (2 * flat.std(0))
        )
        assert not rejects_identities(problem, parameters, draws)
        for times in (0, 2):
            wrong = replace(problem, log_prior=lambda values, times=times: times * problem.log_prior(values))
            assert rejects_identities(wrong, parameters, draws)
        for_each = replace(problem, network_size=1)
        assert rejects_identities(for_each, parameters, draws)
