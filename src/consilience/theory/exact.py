"""The exact path of a Gaussian network, without sampling: where the average is, how far the agents are apart.

`GaussianNetwork` has the recursion for mean and covariance of all agents together; this runs it compiled, and keeps
what the theorems speak about at the steps that are asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from consilience.kernel.quickly import compiled_quickly
from consilience.theory.gaussian import GaussianNetwork, Moments


class ExactPath(NamedTuple):
    """What is known exactly about a Gaussian network at some steps."""

    steps: np.ndarray
    """`(times,)` after how many steps; fewer than asked for if an unstable network diverged."""
    consensus_error: np.ndarray
    """`(times,)`: `E‖w̃_k‖²`."""
    mean: np.ndarray
    """`(times, d)` mean of the average `w̄_k`."""
    covariance: np.ndarray
    """`(times, d, d)` covariance of the average `w̄_k`."""
    divergence: np.ndarray
    """`(times,)`: `KL(p_k ‖ p*)`; infinite before the first step if the agents start at fixed points."""
    gradient_disagreement: float
    """The smallest `μ_g` of Assumption 3 that holds up to the last step, `E‖g̃_k‖² ≤ n μ_g (k+1)^δ_2`."""


def exact_path(
    network: GaussianNetwork, sampler: Any, start: Moments, steps: Sequence[int] | np.ndarray
) -> ExactPath:
    """Follow a Gaussian network through the given steps, an increasing sequence of numbers `k ≥ 0`.

    Args:
        network: the agents' Gaussian posteriors and their graph.
        sampler: a `DULA`, for its schedules and temperature.
        start: the moments of the initial positions.
        steps: after how many steps to look.
    """
    recorded = np.asarray(steps, int)
    places = np.arange(max(1, int(recorded[-1])), dtype=float)
    mixing = np.kron(network.graph.laplacian.toarray(), np.eye(network.linear.shape[1]))
    with jax.enable_x64(True):
        apart, centre, average, largest = jax.tree.map(
            np.asarray,
            _follow(
                network.precisions,
                network.linear,
                mixing,
                network.hessian,
                (start.mean, start.covariance, np.float64(0.0)),
                np.stack([np.append(0, recorded[:-1]), recorded], -1),
                _values(sampler.step_size, places),
                _values(sampler.consensus, places),
                (places + 1) ** sampler.step_size.exponent,
                sampler.temperature,
            ),
        )
    finite = np.isfinite(apart) & np.isfinite(average).all((1, 2)) & np.isfinite(largest)
    known = len(finite) if finite.all() else max(1, int(np.argmin(finite)))  # an unstable network leaves the floats
    law = Moments(centre[:known], average[:known])
    divergence = gaussian_divergence(law, network.posterior)
    return ExactPath(recorded[:known], apart[:known], *law, divergence, float(largest[known - 1]))


@partial(compiled_quickly, same_bits=True)
def _follow(
    blocks: Any, linear: Any, mixing: Any, hessian: Any, start: Any, ends: Any,
    step_sizes: Any, pulls: Any, growth: Any, temperature: float,
) -> Any:  # fmt: skip
    n, d = linear.shape

    def disagreement(mean: jax.Array, covariance: jax.Array) -> jax.Array:
        """`E‖g̃‖²`."""
        gradient = jnp.einsum("iab,ib->ia", blocks, mean.reshape(n, d)) - linear
        spread = jnp.einsum("iab,ibjc,jdc->iajd", blocks, covariance.reshape(n, d, n, d), blocks)
        total = jnp.einsum("iaia->", spread) - jnp.einsum("iaja->", spread) / n
        return ((gradient - gradient.mean(0)) ** 2).sum() + total

    def step(k: Any, carry: Any) -> Any:
        mean, covariance, largest = carry
        here = disagreement(mean, covariance) / (n * growth[k])
        drift = n * step_sizes[k]
        transition = jnp.eye(n * d) - pulls[k] * mixing - drift * hessian
        mean = transition @ mean + drift * linear.ravel()
        covariance = transition @ covariance @ transition.T + 2 * temperature * drift * jnp.eye(n * d)
        return mean, covariance, jnp.maximum(largest, here)

    def stretch(carry: Any, between: Any) -> Any:
        carry = jax.lax.fori_loop(between[0], between[1], step, carry)
        mean, covariance = carry[0].reshape(n, d), carry[1].reshape(n, d, n, d)
        centre, average = mean.mean(0), covariance.mean((0, 2))
        centred = covariance - covariance.mean(0) - covariance.mean(2)[:, :, None] + average[:, None]
        apart = ((mean - centre) ** 2).sum() + jnp.einsum("iaia->", centred)
        return carry, (jnp.maximum(apart, 0.0), centre, average, carry[2])

    return jax.lax.scan(stretch, start, ends)[1]


def _values(schedule: Any, places: np.ndarray) -> np.ndarray:
    return np.broadcast_to(schedule(places), places.shape)


def gaussian_divergence(law: Moments, reference: Moments) -> np.ndarray:
    """`KL(N(m, Σ) ‖ N(m*, Σ*))` in nats, for moments with any leading axes; infinite where `Σ` is singular.

    >>> float(gaussian_divergence(Moments(np.ones(1), np.eye(1)), Moments(np.zeros(1), np.eye(1))))
    0.5
    """
    root = np.linalg.inv(np.linalg.cholesky(reference.covariance))
    ratio = np.linalg.eigvalsh(root @ law.covariance @ root.T)
    shift = (law.mean - reference.mean) @ root.T
    singular = ratio < 1e-13 * ratio.max(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        spread = np.where(singular, np.inf, ratio - 1 - np.log(np.where(singular, 1.0, ratio)))
    return 0.5 * (spread.sum(-1) + (shift**2).sum(-1))
