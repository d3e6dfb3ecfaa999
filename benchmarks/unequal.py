"""Regressions over agents that have little in common, and posteriors with a narrow neck: what gossip is measured on.

Agents have between 3 and 400 rows, and each sees only some features well. The answers are known without sampling:
`reference` has them by closed form, by quadrature, or from weighted points of a low-discrepancy sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from benchmarks.references import Reference, funnel_reference, weighted
from consilience import Problem
from consilience.models import linear_regression, logistic_regression
from consilience.theory.gaussian import GaussianNetwork

_NOISE = 0.7
_GROUPS = 8

Shards = list[tuple[np.ndarray, np.ndarray]]


class Case(NamedTuple):
    """A problem, and where its posterior lies."""

    problem: Problem
    reference: Callable[[], Reference]


def linear(num_agents: int, size: int = 6, seed: int = 0) -> Case:
    """Each agent sees two of the weights, with 3 to 200 rows."""
    rng = np.random.default_rng(seed)
    truth, shards = rng.normal(size=size), []
    for agent, rows in enumerate(_sizes(rng, num_agents, 3, 200)):
        features = np.zeros((rows, size))
        features[:, [agent % size, (agent + 2) % size]] = rng.normal(size=(rows, 2)) * (1 + agent % 3)
        shards.append((features, features @ truth + _NOISE * rng.normal(size=rows)))
    problem = linear_regression(shards, _NOISE**2, 9.0)

    def exact() -> Reference:
        from consilience import graphs

        posterior = GaussianNetwork.of(problem, graphs.path(num_agents)).posterior
        return Reference(posterior.mean, np.diag(posterior.covariance), 0.0)

    return Case(problem, exact)


def logistic(num_agents: int, size: int = 5, seed: int = 1) -> Case:
    """5 to 400 rows of features whose scales differ from agent to agent by a factor of 40."""
    rng = np.random.default_rng(seed)
    truth, shards = rng.normal(size=size), []
    for rows in _sizes(rng, num_agents, 5, 400):
        features = rng.normal(size=(rows, size)) * np.where(rng.random(size) < 0.4, 2.0, 0.05)
        features = features + 0.5 * rng.normal(size=size)
        features[:, 0] = 1
        shards.append((features, 1.0 * (rng.random(rows) < 1 / (1 + np.exp(-features @ truth)))))
    problem = logistic_regression(shards, scale=3.0)
    return Case(problem, lambda: weighted(problem))


def poisson(num_agents: int, size: int = 5, seed: int = 2) -> Case:
    """5 to 400 rows of counts."""
    rng = np.random.default_rng(seed)
    truth, shards = 0.4 * rng.normal(size=size), []
    for rows in _sizes(rng, num_agents, 5, 400):
        scale = np.where(rng.random(size) < 0.4, 1.0, 0.1) * (0.4 + rng.random())
        features = rng.normal(size=(rows, size)) * scale + 0.3 * rng.normal(size=size)
        features[:, 0] = 1
        shards.append((features, 1.0 * rng.poisson(np.exp(np.clip(features @ truth, -10, 4)))))

    def log_likelihood(w: jax.Array, rows: Any) -> jax.Array:
        features, counts = rows
        return counts * (features @ w) - jnp.exp(features @ w) - gammaln(counts + 1)

    return _weighted(log_likelihood, lambda w: -(w @ w) / 8, size, shards)


def student(num_agents: int, size: int = 4, seed: int = 3) -> Case:
    """Errors of Student's law with 4 degrees of freedom; their log-scale is the last parameter."""
    rng = np.random.default_rng(seed)
    truth, shards = rng.normal(size=size), []
    for rows in _sizes(rng, num_agents, 5, 300):
        features = rng.normal(size=(rows, size)) * np.where(rng.random(size) < 0.4, 3.0, 0.1)
        features[:, 0] = 1
        shards.append((features, features @ truth + _NOISE * rng.standard_t(4, size=rows)))

    def log_likelihood(w: jax.Array, rows: Any) -> jax.Array:
        features, targets = rows
        error = (targets - features @ w[:-1]) * jnp.exp(-w[-1])
        return -2.5 * jnp.log1p(error**2 / 4) - w[-1]

    return _weighted(log_likelihood, lambda w: -(w[:-1] @ w[:-1]) / 18 - w[-1] ** 2 / 2, size + 1, shards)


def funnel(num_agents: int, seed: int = 4) -> Case:
    """Eight groups with a logit each around a common mean; mean and log-spread come first, and make it a funnel."""
    rng = np.random.default_rng(seed)
    logits, shards = 0.3 + 0.8 * rng.normal(size=_GROUPS), []
    for agent in range(num_agents):
        groups = [g for g in range(_GROUPS) if g % num_agents == agent or rng.random() < 0.15] or [agent % _GROUPS]
        rows = np.repeat(groups, rng.integers(4, 40, len(groups)))
        shards.append((np.eye(_GROUPS)[rows], 1.0 * (rng.random(len(rows)) < 1 / (1 + np.exp(-logits[rows])))))

    def log_likelihood(w: jax.Array, rows: Any) -> jax.Array:
        groups, outcomes = rows
        logit = groups @ w[2:]
        return outcomes * logit - jnp.logaddexp(0.0, logit)

    def log_prior(w: jax.Array) -> jax.Array:
        away = (w[2:] - w[0]) * jnp.exp(-w[1])
        return -(w[0] ** 2) / 8 - w[1] ** 2 / 2 - away @ away / 2 - _GROUPS * w[1]

    problem = Problem(log_likelihood, log_prior, lambda key: jnp.zeros(_GROUPS + 2), shards)
    successes = sum(outcomes @ groups for groups, outcomes in shards)
    trials = sum(groups.sum(0) for groups, _ in shards)
    return Case(problem, lambda: funnel_reference(np.asarray(successes), np.asarray(trials)))


CASES: dict[str, Callable[[int], Case]] = {
    "linear": linear,
    "logistic": logistic,
    "poisson": poisson,
    "student": student,
    "funnel": funnel,
}


def _weighted(log_likelihood: Any, log_prior: Any, size: int, shards: Shards) -> Case:
    problem = Problem(log_likelihood, log_prior, lambda key: jnp.zeros(size), shards)
    return Case(problem, lambda: weighted(problem))


def _sizes(rng: np.random.Generator, count: int, least: int, most: int) -> Sequence[int]:
    """Numbers of rows, evenly spread over orders of magnitude, in random order."""
    sizes = np.exp(np.linspace(np.log(least), np.log(most), count)).round().astype(int)
    rng.shuffle(sizes)
    return sizes.tolist()
