"""A long reference run, NUTS on the rows of all agents together, against which draws of a network are measured.

It samples in coordinates `u` with `w = m + S u`, in which the posterior is about standard normal. That changes no
draw's law, and makes trajectories short.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from consilience import graphs
from consilience.diagnostics.convergence import effective_draws
from consilience.engines.simulate import simulation
from consilience.models import logistic_regression
from consilience.plans import Plan
from consilience.problems import Problem
from consilience.samplers import nuts
from consilience.warmup.derivatives import LocalPotentials
from consilience.warmup.network import Network
from consilience.warmup.newton import newton

_WARMUP, _CHAINS = 300, 4


class Reference(NamedTuple):
    """Moments of a posterior from a long exact run."""

    mean: np.ndarray
    variance: np.ndarray
    effective: np.ndarray
    """`(size,)` effective draws behind the mean."""


class PosteriorError(NamedTuple):
    """How far draws are from a reference, averaged over parameters and agents."""

    mean: float
    """Of a mean, in posterior standard deviations."""
    variance: float
    """Of a variance, as a share."""


def pooled_logistic(features: np.ndarray, labels: np.ndarray) -> Problem:
    """Logistic regression with the Laplace prior of one agent; rows that are the same are one that counts for all."""
    rows, times = np.unique(np.column_stack([features, labels]).astype(float), axis=0, return_counts=True)
    inputs, outcomes = rows[:, :-1], rows[:, -1]
    model = logistic_regression([(inputs[:1], outcomes[:1])], "laplace")
    return Problem(
        log_likelihood=lambda w, shard: shard[2] * model.log_likelihood(w, shard[:2]),
        log_prior=model.log_prior,
        init=lambda key: jnp.zeros(inputs.shape[1]),
        shards=[(inputs, outcomes, times.astype(float))],
    )


def pooled_reference(problem: Problem, num_draws: int, seed: int = 0) -> Reference:
    """The posterior of a problem with a single agent, who has all rows, and whose parameters are one vector."""
    with jax.enable_x64(True):
        potentials, network = LocalPotentials(problem), Network(np.arange(1), 1, lambda values: values.sum(0))
        size = potentials.size
        found = newton(potentials, network, np.zeros((1, size)), size)
        mean, root = jnp.asarray(found.positions[0]), jnp.asarray(found.root)
        whitened = Problem(
            log_likelihood=lambda u, rows: problem.log_likelihood(mean + root @ u, rows),
            log_prior=lambda u: problem.log_prior(mean + root @ u),
            init=lambda key: 0.5 * jax.random.normal(key, (size,)),
            shards=problem.shards,
        )
        plan = Plan(
            graph=graphs.ring(1), sampler=nuts(mass="diagonal"), num_warmup=_WARMUP, num_draws=num_draws,
            num_chains=_CHAINS, seed=seed,
        )  # fmt: skip
        stepper = simulation(whitened, plan)
        state, step, parts = stepper.initial_state(), 0, []
        while step < plan.num_steps:
            state, segment = stepper.advance(state, step, min(stepper.max_steps, plan.num_steps - step))
            parts.append(np.asarray(segment.draws))
            step = segment.last_step
        u = np.concatenate(parts).reshape(-1, _CHAINS, size)
    draws = np.asarray(mean) + u @ np.asarray(root).T
    own = draws.transpose(1, 0, 2)
    return Reference(own.mean((0, 1)), own.var((0, 1)), effective_draws(own))


def posterior_error(draws: np.ndarray, known: Reference, weights: np.ndarray | None = None) -> PosteriorError:
    """Of draws `(chains, agents, draws, size)` of one posterior, each agent's by itself."""
    share = np.ones(draws.shape[2]) if weights is None else np.asarray(weights, float)
    share = share / share.sum() / len(draws)
    mean = np.einsum("cadk,d->ak", draws, share)
    square = np.einsum("cadk,d->ak", (draws - mean[None, :, None]) ** 2, share)
    return PosteriorError(
        float((np.abs(mean - known.mean) / np.sqrt(known.variance)).mean()),
        float(np.abs(square / known.variance - 1).mean()),
    )
