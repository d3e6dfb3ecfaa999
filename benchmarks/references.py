"""Means and variances of posteriors without a Markov chain."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from consilience import Problem

_POINTS = 2**15
_FREEDOM, _WIDER = 8, 1.1
_LEAST_EFFECTIVE = 0.2


class Reference(NamedTuple):
    """Of the pooled posterior."""

    mean: np.ndarray
    variance: np.ndarray
    error: float
    """The standard error of a mean, in posterior deviations; that of a variance is about 1.4 times as much."""


def weighted(problem: Problem) -> Reference:
    """By importance weights of Sobol's points, turned into a wide Student law around the mode."""
    from scipy.optimize import minimize
    from scipy.stats import chi2, norm, qmc

    with jax.enable_x64(True):
        energy = _energy(problem)
        size = len(problem.init(jax.random.key(0)))
        slope, curvature = jax.jit(jax.grad(energy)), jax.jit(jax.hessian(energy))
        mode = minimize(jax.jit(energy), np.zeros(size), jac=slope, method="BFGS").x
        root = np.linalg.cholesky(np.linalg.inv(np.asarray(curvature(mode))))
        uniform = qmc.Sobol(size + 1, seed=0).random(_POINTS).clip(1e-12, 1 - 1e-12)
        away = norm.ppf(uniform[:, :-1]) * np.sqrt(_FREEDOM / chi2.ppf(uniform[:, -1:], _FREEDOM))
        points = mode + _WIDER * away @ root.T
        energies = np.asarray(jax.lax.map(jax.jit(energy), jnp.asarray(points), batch_size=256))
    heights = 0.5 * (_FREEDOM + size) * np.log1p((away**2).sum(1) / _FREEDOM) - energies
    weights = np.exp(heights - heights.max())
    weights /= weights.sum()
    effective = 1 / (weights**2).sum()
    if effective < _LEAST_EFFECTIVE * _POINTS:
        raise ValueError(f"only {effective:.0f} of {_POINTS} points count: this posterior needs another reference")
    mean = weights @ points
    return Reference(mean, weights @ (points - mean) ** 2, effective**-0.5)


def _energy(problem: Problem) -> Any:
    """The potential of all agents' rows together."""
    rows = jax.tree.map(lambda *parts: jnp.concatenate([jnp.asarray(part) for part in parts]), *problem.shards)
    return lambda w: -problem.log_likelihood(w, rows).sum() - problem.log_prior(w)


def funnel_reference(successes: np.ndarray, trials: np.ndarray) -> Reference:
    """The funnel's by quadrature: given mean and log-spread, the groups' logits are independent."""
    means, spreads = np.linspace(-5, 5, 241), np.linspace(-6, 4, 321)
    nodes, heights = np.polynomial.hermite_e.hermegauss(80)
    place = means[:, None, None] + np.exp(spreads)[None, :, None] * nodes  # (means, spreads, nodes)
    log_weight = np.broadcast_to(-(means[:, None] ** 2) / 8 - spreads**2 / 2, place.shape[:2]).copy()
    moments = []
    for won, played in zip(successes, trials, strict=True):
        likelihood = won * place - played * np.logaddexp(0, place)
        top = likelihood.max(-1)
        mass = np.exp(likelihood - top[..., None]) * heights
        log_weight += top + np.log(mass.sum(-1))
        moments.append([(mass * place**power).sum(-1) / mass.sum(-1) for power in (1, 2)])
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    grid = np.broadcast_arrays(means[:, None], spreads)
    first = np.array([(weight * one).sum() for one in (*grid, *(pair[0] for pair in moments))])
    second = np.array([(weight * one).sum() for one in (*(one**2 for one in grid), *(pair[1] for pair in moments))])
    return Reference(first, second - first**2, 1e-3)
