"""The problems have the moments of their references, and wrong ones have not.

References are fixed, but are draws: the right model contradicts one with a probability of 1e-6, over all draws that
might have been made. What is computed here has no chance in it, or its errors are counted.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from consilience import posteriors
from tests.posteriors.pooled import pooled_parameters, site_values, summed_energy
from tests.posteriors.truth import contradicts, moments_given_scales, moments_of_draws, weighted_draws

SCHOOLS, RADON = "eight_schools-eight_schools_noncentered", "radon_mn-radon_variable_intercept_noncentered"
TREND = "kilpisjarvi_mod-kilpisjarvi"
NOT_NORMAL = {
    "GLM_Poisson_Data-GLM_Poisson_model": 8,
    "wells_data-wells_dae_model": 8,
    "low_dim_gauss_mix-low_dim_gauss_mix": 8,
    "hudson_lynx_hare-lotka_volterra": 8,
    "one_comp_mm_elim_abs-one_comp_mm_elim_abs": 3,
}
"""Degrees of freedom of the Student t from which they are drawn."""
QUICK = ("earnings-earn_height", TREND, SCHOOLS)
NORMAL = [name for name in posteriors.names() if name not in (*NOT_NORMAL, *QUICK)]


@pytest.fixture(autouse=True)
def in_double_precision():
    with jax.enable_x64(True):
        yield


def grid_of(posterior, name):
    """Logarithms of a scale, about one standard deviation apart at most; of the schools', wherever it may be."""
    if posterior.name == SCHOOLS:
        return np.linspace(-16, 9, 126)
    reference = posterior.drawn_reference
    place = reference.names.index(name)
    relative = reference.sd[place] / reference.mean[place]
    steps = np.linspace(-6, 6, 15) if posterior.name == RADON else np.linspace(-9, 9, 37)
    return np.log(reference.mean[place]) + relative * steps


def moments_of(posterior, problem):
    energy = summed_energy(problem, pooled_parameters(posterior))
    values = site_values(posterior)
    scales = {SCHOOLS: ("tau",), RADON: ("sigma_alpha", "sigma_y")}.get(posterior.name, ("sigma",))
    normal = {name: value for name, value in values.items() if name not in scales}
    return moments_given_scales(posterior, energy, normal, {name: grid_of(posterior, name) for name in scales})


def require_moments(posterior):
    mean, sd = moments_of(posterior, posterior.problem())
    assert not contradicts(posterior.drawn_reference, mean, sd)
    if posterior.reference.exact:  # which are written with 8 and 6 digits
        np.testing.assert_allclose((mean - posterior.reference.mean) / sd, 0, atol=1e-5)
        np.testing.assert_allclose(sd, posterior.reference.sd, rtol=1e-5)


@pytest.mark.parametrize("name", QUICK)
def test_moments_of_the_problem_are_those_of_the_reference(name, load):
    require_moments(load(name))


@pytest.mark.slow(reason="second derivatives of thirteen models are compiled and evaluated on grids")
@pytest.mark.parametrize("name", NORMAL)
def test_moments_of_the_other_problems_are_those_of_their_references(name, load):
    require_moments(load(name))


@pytest.mark.parametrize("name", [TREND, SCHOOLS])
@pytest.mark.parametrize("times", [0, 2])
def test_a_prior_that_is_forgotten_or_counts_twice_contradicts_the_reference(name, times, load):
    posterior = load(name)
    problem = posterior.problem()
    wrong = replace(problem, log_prior=lambda parameters: times * problem.log_prior(parameters))
    assert contradicts(posterior.drawn_reference, *moments_of(posterior, wrong))


@pytest.mark.slow(
    reason="20,000 weighted draws from each of five posteriors, two of them with differential equations"
)
@pytest.mark.parametrize("name", NOT_NORMAL)
def test_weighted_draws_have_the_moments_of_the_reference(name, load):
    posterior = load(name)
    parameters = pooled_parameters(posterior)
    energy = summed_energy(posterior.problem(), parameters)
    start = parameters.ravel({site: site_values(posterior)[site] for site in parameters.names})
    draws, weights = weighted_draws(posterior, energy, parameters, start, 20_000, NOT_NORMAL[name])
    assert 1 / (weights**2).sum() > 1_500
    assert not contradicts(posterior.drawn_reference, *moments_of_draws(draws, weights))


def test_variances_that_are_called_infinite_are():
    """Along K_m → ∞ with V_m/K_m fixed elimination is linear: the likelihood stays, and the density falls as K_m⁻³.

    On the logarithmic scale that is K_m⁻²; the variance is infinite from K_m⁻³ on, the mean from K_m⁻² on.
    """
    posterior = posteriors.load("one_comp_mm_elim_abs-one_comp_mm_elim_abs")
    energy = summed_energy(posterior.problem(), pooled_parameters(posterior))

    @jax.jit
    @jax.value_and_grad
    def along(others, log_half):
        absorbed, ratio, spread = jnp.exp(others)
        half = jnp.exp(log_half)
        return energy({"k_a": absorbed, "K_m": half, "V_m": ratio * half, "sigma": spread})

    best = [minimize(along, np.log([0.8, 0.2, 0.2]), (float(place),), "BFGS", jac=True).fun for place in (8, 9, 10)]
    np.testing.assert_allclose(np.diff(best), 2, atol=0.01)
