"""The exact path of a Gaussian network, without sampling: where the average is, how far the agents are apart.

`GaussianNetwork` has the recursion for mean and covariance of all agents together; this runs it compiled, and keeps
what the theorems speak about at the steps that are asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from consilience.theory.gaussian import GaussianNetwork, Moments


class ExactPath(NamedTuple):
    """What is known exactly about a Gaussian network at some steps."""

    steps: np.ndarray
    """`(times,)` after how many steps."""
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
    places = np.arange(int(recorded[-1]), dtype=float)
    with jax.enable_x64(True):
        (_, _, largest), (apart, centre, average) = jax.tree.map(
            np.asarray,
            _follow(
                jnp.asarray(network.precisions),
                jnp.asarray(network.linear),
                jnp.asarray(network.graph.laplacian.toarray()),
                (jnp.asarray(start.mean), jnp.asarray(start.covariance), jnp.float64(0.0)),
                jnp.asarray(np.stack([np.append(0, recorded[:-1]), recorded], -1)),
                _values(sampler.step_size, places),
                _values(sampler.consensus, places),
                jnp.asarray((places + 1) ** sampler.step_size.exponent),
                sampler.temperature,
            ),
        )
    divergence = gaussian_divergence(Moments(centre, average), network.posterior)
    return ExactPath(recorded, apart, centre, average, divergence, float(largest))


@jax.jit
def _follow(
    blocks: jax.Array, linear: jax.Array, laplacian: jax.Array, start: Any, ends: jax.Array,
    step_sizes: jax.Array, pulls: jax.Array, growth: jax.Array, temperature: float,
) -> Any:  # fmt: skip
    n, d = linear.shape
    mixing, hessian = jnp.kron(laplacian, jnp.eye(d)), jax.scipy.linalg.block_diag(*blocks)

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
        apart = ((mean - centre) ** 2).sum() + jnp.einsum("iaia->", covariance) - n * jnp.trace(average)
        return carry, (apart, centre, average)

    return jax.lax.scan(stretch, start, ends)


def _values(schedule: Any, places: np.ndarray) -> jax.Array:
    return jnp.broadcast_to(jnp.asarray(schedule(places)), places.shape)


def gaussian_divergence(law: Moments, reference: Moments) -> np.ndarray:
    """`KL(N(m, Σ) ‖ N(m*, Σ*))` in nats, for moments with any leading axes; infinite where `Σ` is singular.

    >>> float(gaussian_divergence(Moments(np.ones(1), np.eye(1)), Moments(np.zeros(1), np.eye(1))))
    0.5
    """
    root = np.linalg.inv(np.linalg.cholesky(reference.covariance))
    ratio = np.linalg.eigvalsh(root @ law.covariance @ root.T)
    shift = (law.mean - reference.mean) @ root.T
    with np.errstate(divide="ignore"):
        spread = np.where(ratio > 0, ratio - 1 - np.log(np.maximum(ratio, 0.0)), np.inf)
    return 0.5 * (spread.sum(-1) + (shift**2).sum(-1))
