"""What the agents of a posterior's problem know together is NumPyro's density of all rows, whoever has which."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer.util import log_density

from consilience import posteriors
from tests.posteriors.pooled import site_values, summed_density


def densities_of(posterior, problems):
    """`(places, 1 + problems)`: at two places, NumPyro's density, and the summed one of each problem."""
    model, rows = posterior.recipe.model(posterior.data), posterior.rows
    random, middle = np.random.default_rng(1), site_values(posterior)
    places = {name: value * np.exp(0.05 * random.normal(size=(2, *value.shape))) for name, value in middle.items()}
    if "z" in places:  # which the reference does not know; other numbers for each group
        places["z"] = random.normal(size=places["z"].shape)

    def at(values):
        each = [summed_density(problem, values) for problem in problems]
        return jnp.stack([log_density(model, (), rows, values)[0], *each])

    return np.asarray(jax.jit(jax.vmap(at))(places))


@pytest.mark.parametrize("name", posteriors.names())
def test_densities_of_all_agents_sum_up_to_numpyros_by_both_splits(name, load):
    with jax.enable_x64(True):
        posterior = load(name)
        found = densities_of(posterior, [posterior.problem(), posterior.problem("random", 3, seed=5)])
        np.testing.assert_allclose(found[:, 1:], found[:, :1].repeat(2, 1), rtol=1e-9)


def test_a_prior_that_counts_twice_or_at_each_agent_is_another_density(load):
    """The check above can fail."""
    with jax.enable_x64(True):
        posterior = load("eight_schools-eight_schools_noncentered")
        problem = posterior.problem()
        twice = replace(problem, log_prior=lambda parameters: 2 * problem.log_prior(parameters))
        each = replace(problem, network_size=1)
        found = densities_of(posterior, [problem, twice, each])
        assert (abs(found - found[:, :1]) > 1).tolist() == [[False, False, True, True]] * 2
