import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from consilience.models import mixture


def test_log_likelihood_is_that_of_two_normals():
    x = np.linspace(-6, 7, 50)
    for theta_1, theta_2 in ((0.0, 1.0), (-2.0, 3.0), (1.0, 0.0)):
        found = mixture.log_likelihood({"theta_1": theta_1, "theta_2": theta_2}, jnp.asarray(x))
        scale = np.sqrt(mixture.NOISE_VARIANCE)
        exact = np.log(0.5 * stats.norm.pdf(x, theta_1, scale) + 0.5 * stats.norm.pdf(x, theta_1 + theta_2, scale))
        constant = np.asarray(found) - exact
        np.testing.assert_allclose(constant, constant[0], atol=1e-5)


def test_likelihood_is_symmetric_between_its_modes():
    x = jnp.linspace(-3, 3, 20)
    here = mixture.log_likelihood({"theta_1": 0.2, "theta_2": 0.9}, x)
    there = mixture.log_likelihood({"theta_1": 1.1, "theta_2": -0.9}, x)
    np.testing.assert_allclose(here, there, atol=1e-6)


def test_gradient_stays_finite_far_away():
    far = {"theta_1": jnp.float32(1e4), "theta_2": jnp.float32(-1e5)}
    gradient = jax.grad(lambda p: mixture.log_likelihood(p, jnp.ones(1)).sum())(far)
    assert all(np.isfinite(value) for value in gradient.values())


def test_initial_values_are_drawn_from_the_prior():
    drawn = jax.vmap(mixture.init)(jax.random.split(jax.random.key(0), 5000))
    for name, variance in zip(("theta_1", "theta_2"), mixture.VARIANCES, strict=True):
        assert stats.kstest(np.asarray(drawn[name]) / np.sqrt(variance), "norm").pvalue > 1e-4
