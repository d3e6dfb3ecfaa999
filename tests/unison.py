"""Samplers in unison without a run's directory, and posteriors against which to hold them."""

from typing import Any, NamedTuple

import jax
import numpy as np

from consilience.engines.unison import OneProcess, Replicas


class Sampled(NamedTuple):
    """Draws by name and what was measured, after the warm-up."""

    draws: dict[str, np.ndarray]
    measured: dict[str, np.ndarray]
    """`(chains, moves)` each, of all moves."""
    state: Any


def sampled(replicas):
    """All draws of a plan with a given length."""
    with jax.enable_x64(True):
        state, step, segments = replicas.initial_state(), 0, []
        while step < replicas.plan.num_steps:
            state, segment = replicas.advance(state, step, min(replicas.max_steps, replicas.plan.num_steps - step))
            step = segment.last_step
            segments.append(segment)
        draws = replicas.by_variable(np.concatenate([segment.draws for segment in segments]))
        names = segments[0].metrics
        measured = {name: np.concatenate([segment.metrics[name] for segment in segments]).T for name in names}
        return Sampled(draws, measured, jax.tree.map(np.asarray, state))


def replicas_of(problem, plan, place=None):
    with jax.enable_x64(True):
        return Replicas(problem, plan, place or OneProcess(problem.num_agents), 0)


class Normal(NamedTuple):
    """A normal posterior, and the evidence of its data."""

    mean: np.ndarray
    covariance: np.ndarray
    log_evidence: float


def normal_posterior(features, targets, noise_variances, prior_variances):
    """Of weights with independent normal priors around 0, given `targets ~ N(features · weights, noise)`."""
    noise = np.broadcast_to(noise_variances, targets.shape)
    precision = (features.T / noise) @ features + np.diag(1 / np.asarray(prior_variances))
    covariance = np.linalg.inv(precision)
    slope = features.T @ (targets / noise)
    mean = covariance @ slope
    log_evidence = 0.5 * (
        slope @ mean - (targets**2 / noise).sum() - np.log(noise).sum() - np.log(prior_variances).sum()
        - np.linalg.slogdet(precision)[1]
    )  # fmt: skip
    return Normal(mean, covariance, float(log_evidence))


def mixed_moments(log_weights, means, variances):
    """Mean and variance of a mixture: `(parts,)`, `(parts, size)`, `(parts, size)`."""
    weights = np.exp(log_weights - np.max(log_weights))
    weights /= weights.sum()
    mean = weights @ means
    return mean, weights @ (variances + means**2) - mean**2
