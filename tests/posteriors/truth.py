"""Moments of a posterior from its energy alone, without a sampler, and whether they contradict its reference.

Given the scales `t` (logarithms of standard deviations), the other parameters `x` of most of these models are normal:
the energy is quadratic in `x`, and its derivatives at any point give mean, covariance and what is left for `t`,

    p(t) ∝ exp(−U(x₀, t) + gᵀH⁻¹g/2) |H|^{−1/2},   E(x | t) = x₀ − H⁻¹g,   Cov(x | t) = H⁻¹.

What is left is a sum over a grid of `t`; the trapezoidal rule is exact to rounding where steps are about one standard
deviation of a smooth density. Others are weighted draws from a Student t about the mode.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from scipy import stats

FALSE_ALARM = 1e-6


def quantities_of(posterior, values):
    """The reference's parameters, one vector."""
    known = posterior.recipe.quantities(values)
    return jnp.concatenate([jnp.ravel(known[one["name"]]) for one in posterior.content["parameters"]])


def moments_given_scales(posterior, energy, normal, grids):
    """Means and standard deviations of the reference's parameters.

    Args:
        posterior: whose.
        energy: `values -> U` on the unconstrained scale.
        normal: a place for the parameters that are normal given the scales.
        grids: by name of a scale, equidistant values of its logarithm.
    """
    start, unravel = ravel_pytree(normal)

    def values_at(x, scales):
        return {**unravel(x), **{name: jnp.exp(scales[place]) for place, name in enumerate(grids)}}

    def at(scales):
        gradient, curvature = (
            derivative(lambda x: energy(values_at(x, scales)))(start) for derivative in (jax.grad, jax.hessian)
        )
        unit = 1 / jnp.sqrt(jnp.diag(curvature))  # columns may be of any size
        root = jnp.linalg.cholesky(curvature * unit[:, None] * unit)
        solve = lambda right: unit[:, None] * jax.scipy.linalg.cho_solve((root, True), unit[:, None] * right)  # noqa: E731
        step = solve(gradient[:, None])[:, 0]
        weight = -energy(values_at(start, scales)) + gradient @ step / 2 - jnp.log(jnp.diag(root) / unit).sum()
        outer = jax.jacobian(lambda x: quantities_of(posterior, values_at(x, scales)))(start)
        mean = quantities_of(posterior, values_at(start - step, scales))
        return weight, mean, (outer * solve(outer.T).T).sum(1)

    places = np.stack(np.meshgrid(*grids.values(), indexing="ij"), -1).reshape(-1, len(grids))
    logs, means, variances = (np.asarray(one) for one in jax.jit(lambda some: jax.lax.map(at, some))(places))
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    mean = weights @ means
    return mean, np.sqrt(weights @ (variances + (means - mean) ** 2))


def weighted_draws(posterior, energy, parameters, start, count, freedom):
    """`(count, size)` draws of the reference's parameters from a Student t about the mode, and weights of sum 1."""
    along = jax.jit(lambda w: energy(parameters.unravel(w)))
    slope, bend = jax.jit(jax.grad(along)), jax.jit(jax.hessian(along))
    mode = np.asarray(start)
    for _ in range(50):
        values, vectors = np.linalg.eigh(np.asarray(bend(mode)))
        step = vectors @ ((vectors.T @ np.asarray(slope(mode))) / np.abs(values))
        length = next(
            2.0**-halvings for halvings in range(30) if along(mode - 2.0**-halvings * step) <= along(mode) + 1e-9
        )
        mode = mode - length * step
        if np.abs(step).max() < 1e-8:
            break
    random = np.random.default_rng(0)
    normal, shrink = random.normal(size=(count, len(mode))), np.sqrt(random.chisquare(freedom, count) / freedom)
    standard = normal / shrink[:, None]
    free = mode + standard @ np.linalg.cholesky(np.linalg.inv(np.asarray(bend(mode)))).T
    proposed = -(freedom + len(mode)) / 2 * np.log1p((standard**2).sum(1) / freedom)
    logs = -np.asarray(jax.jit(lambda some: jax.lax.map(along, some, batch_size=500))(free)) - proposed
    logs[~np.isfinite(logs)] = -np.inf
    weights = np.exp(logs - logs.max())
    found = jax.jit(jax.vmap(lambda w: quantities_of(posterior, parameters.unravel(w))))(free)
    return np.asarray(found), weights / weights.sum()


def moments_of_draws(draws, weights):
    """Means, standard deviations, and the errors of both."""
    mean = weights @ draws
    squares = (draws - mean) ** 2
    sd = np.sqrt(weights @ squares)
    errors = [np.sqrt((weights**2)[None] @ (column - middle) ** 2)[0] for column, middle in (
        (draws, mean), (squares, sd**2)
    )]  # fmt: skip
    return mean, sd, errors[0], errors[1] / (2 * sd)


def contradicts(reference, mean, sd, mean_error=0.0, sd_error=0.0):
    """Whether means or standard deviations are not the reference's, within Monte Carlo errors of both (Bonferroni).

    Parameters without a variance are compared by neither their own nor their mean's.
    """
    off = np.concatenate([mean - reference.mean, sd - reference.sd])
    errors = np.concatenate([np.hypot(reference.mean_error, mean_error), np.hypot(reference.sd_error, sd_error)])
    score = (np.abs(off) / errors)[np.tile(reference.has_sd, 2)]
    return not score.max() <= stats.norm.isf(FALSE_ALARM / (2 * len(score)))
