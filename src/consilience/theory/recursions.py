"""Both theorems' bounds in their tight versions: the inequalities of the proofs before they are loosened, evaluated.

They hold for any stable schedules, have no singularities, and lie far below the closed forms.

**Agreement.** As the noise is independent of the past and centred, with `c_k = max_j |1 − β_k λ_j|`,

    E‖w̃_{k+1}‖² = E‖(W_k ⊗ I) w̃_k − α_k n g̃_k‖² + 2 α_k T n(n−1) d_w
                 ≤ (c_k E‖w̃_k‖²^½ + α_k n (n μ_g (k+1)^{δ_2})^½)² + 2 α_k T n(n−1) d_w.

The proof of Theorem 1 splits the square twice (S71, S78) and bounds products of contractions by integrals.

**Divergence.** Inside a step of length `α` the average moves by `−s(∇U + ζ) + √2 B_s`. With the log-Sobolev
inequality, Minkowski's and Jensen's, and `m_k = E‖w̄_k − w*‖²`, `Z_k² = C_ζ E‖w̃_k‖²`,

    F_{k+1} ≤ e^{−ρ_U α} F_k + (α/2) (L̄ (α² (L̄ m_k^½ + Z_k)²/3 + α d_w)^½ + Z_k)²,     m_k^½ ≤ c_1^½ + (2 F_k/ρ_U)^½.

The proof's inequality (S153) is this one with every square of a sum split, the last factor doubled, and `m_k`
replaced by one constant `C_w̄` for all steps.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from consilience.graphs import Graph
from consilience.kernel.quickly import compiled_quickly
from consilience.theory.divergence_bound import TheoremInputs
from consilience.theory.magnitudes import Magnitude


def consensus_recursion(
    graph: Graph,
    sampler: Any,
    dimension: int,
    gradient_disagreement: float,
    initial_error: float,
    num_steps: int,
) -> np.ndarray:
    """The tight bound on `E‖w̃_k‖²` for `k = 0 … num_steps`, for any stable schedules.

    Args:
        graph: who talks to whom.
        sampler: a `DULA`, for its schedules and temperature.
        dimension: `d_w`, the number of parameters.
        gradient_disagreement: `μ_g` of Assumption 3.
        initial_error: `E‖w̃_0‖²`.
        num_steps: how many steps.
    """
    n = graph.num_agents
    if n == 1:
        return np.zeros(num_steps + 1)
    k = np.arange(num_steps, dtype=float)
    alpha, beta = np.broadcast_to(sampler.step_size(k), k.shape), np.broadcast_to(sampler.consensus(k), k.shape)
    slowest, fastest = graph.algebraic_connectivity, graph.largest_eigenvalue
    contraction = np.maximum(np.abs(1 - beta * slowest), np.abs(1 - beta * fastest))
    push = alpha * n * np.sqrt(n * gradient_disagreement * (k + 1) ** sampler.step_size.exponent)
    noise = 2 * alpha * sampler.temperature * n * (n - 1) * dimension
    with jax.enable_x64(True):
        errors = np.asarray(_apart(jnp.float64(initial_error), contraction, push, noise))
    return np.concatenate([[initial_error], errors])


@partial(compiled_quickly, same_bits=True)
def _apart(start: jax.Array, contraction: jax.Array, push: jax.Array, noise: jax.Array) -> jax.Array:
    def step(error: jax.Array, given: Any) -> tuple[jax.Array, jax.Array]:
        shrink, pushed, added = given
        error = (shrink * jnp.sqrt(error) + pushed) ** 2 + added
        return error, error

    return jax.lax.scan(step, start, (contraction, push, noise))[1]


def divergence_recursion(inputs: TheoremInputs, sampler: Any, dimension: int, consensus_errors: Any) -> Magnitude:
    """The tight bound on `KL(p_k ‖ p*)` for `k = 0 … len(consensus_errors) − 1`, for any schedules.

    Args:
        inputs: constants of the posterior and the start.
        sampler: a `DULA`, for its step sizes.
        dimension: `d_w`, the number of parameters.
        consensus_errors: `E‖w̃_k‖²` or bounds on it, from `consensus_recursion`.
    """
    k = np.arange(len(consensus_errors) - 1, dtype=float)
    step_sizes = np.broadcast_to(sampler.step_size(k), k.shape)
    with jax.enable_x64(True):
        logs = _log_divergence(inputs, dimension, step_sizes, np.sqrt(inputs.coupling * consensus_errors[:-1]))
        with np.errstate(divide="ignore"):
            return Magnitude(np.concatenate([[np.log(inputs.initial_divergence)], np.asarray(logs)]))


@partial(compiled_quickly, same_bits=True)
def _log_divergence(t: TheoremInputs, dimension: int, step_sizes: jax.Array, couplings: jax.Array) -> jax.Array:
    """The logarithms of the bound, in which nothing overflows even where the bound is a hopeless one."""

    def step(carry: Any, given: Any) -> Any:
        log_divergence, log_root = carry  # of F_k and of m_k^½
        alpha, coupling = given
        log_unit = -jnp.maximum(log_divergence, 0.0) / 2  # everything in units in which F_k is at most 1
        coupling = coupling * jnp.exp(log_unit)
        drift = t.total_smoothness * jnp.exp(log_root + log_unit) + coupling
        moved = jnp.sqrt(alpha**2 * drift**2 / 3 + alpha * dimension * jnp.exp(2 * log_unit))
        push = alpha / 2 * (t.total_smoothness * moved + coupling) ** 2
        kept = jnp.exp(log_divergence + 2 * log_unit - t.log_sobolev * alpha)
        log_next = jnp.log(kept + push) - 2 * log_unit
        spread = (jnp.log(2 / t.log_sobolev) + log_next) / 2
        return (log_next, jnp.logaddexp(jnp.log(t.second_moment) / 2, spread)), log_next

    start = (jnp.log(t.initial_divergence), jnp.log(t.initial_moment) / 2)
    return jax.lax.scan(step, start, (step_sizes, couplings))[1]
