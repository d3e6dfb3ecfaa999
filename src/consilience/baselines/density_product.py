"""The density products of Neiswanger, Wang and Xing (2014), from draws of every agent's subposterior.

*Parametric*: each subposterior is taken for the normal distribution with the moments of its draws.

*Semi-parametric*: each subposterior is that normal distribution times a kernel estimate of what it leaves over,

    p_i(w) ≈ N(w; μ_i, Σ_i) · 1/T Σ_t N(w; w_{i,t}, h² I)/N(w_{i,t}; μ_i, Σ_i).

The product over the `n` agents is a mixture of `T^n` normal components, one for each choice `t = (t_1 … t_n)` of a
draw of every agent. With `w̄_t` the chosen draws' mean, `μ` and `Σ` those of the parametric product,

    weight_t ∝ N(w̄_t; μ, Σ + (h²/n) I) ∏_i N(w_{i,t_i}; w̄_t, h² I)/N(w_{i,t_i}; μ_i, Σ_i),
    component_t = N(C (n/h² w̄_t + Σ⁻¹ μ), C),      C = (n/h² I + Σ⁻¹)⁻¹.

Choices are sampled by Metropolis steps that replace one agent's draw at a time, while the bandwidth falls as
`h = k^(−1/(4 + d))` over the sweeps `k`. Parameters have no common unit, and the kernel needs one: coordinates are
those in which the parametric product is standard normal. No subposterior is then narrower than 1 in any direction;
under a wider kernel the weights of its outlying draws would not fall off.
"""

from __future__ import annotations

import numpy as np

from consilience.baselines.gaussians import fitted, product


def parametric_product(draws: np.ndarray, seed: int) -> np.ndarray:
    """Independent draws of the parametric product, `(chains, draws, d)`.

    Args:
        draws: `(agents, chains, draws, d)`.
        seed: decides the draws.
    """
    return product([fitted(own) for own in draws]).draws(draws.shape[1:3], seed)


def semiparametric_product(draws: np.ndarray, seed: int) -> np.ndarray:
    """Draws of the semi-parametric product, `(chains, draws, d)`, one for each later sweep over the agents.

    Args:
        draws: `(agents, chains, draws, d)`.
        seed: decides the draws.
    """
    agents, chains, length, d = draws.shape
    whole = product([fitted(own) for own in draws])
    root = whole.root
    pooled = np.linalg.solve(root, (draws.reshape(agents, -1, d) - whole.mean)[..., None])[..., 0]
    left_over = -np.stack([_log_normal(own) for own in pooled])
    rng = np.random.default_rng(seed)
    chosen = rng.integers(chains * length, size=(chains, agents))
    found = np.empty((chains, length, d))
    for sweep in range(-length, length):  # the first half is forgotten
        bandwidth = (sweep + length + 1) ** (-1 / (4 + d))
        chosen = _swept(chosen, pooled, left_over, bandwidth, rng)
        middle = _taken(pooled, chosen).mean(1)
        variance = 1 / (agents / bandwidth**2 + 1)
        centre = variance * agents / bandwidth**2 * middle
        found[:, sweep] = centre + np.sqrt(variance) * rng.normal(size=(chains, d))
    return whole.mean + found @ root.T


def _swept(
    chosen: np.ndarray, pooled: np.ndarray, left_over: np.ndarray, bandwidth: float, rng: np.random.Generator
) -> np.ndarray:
    """Choices `(chains, agents)` after one Metropolis step for each agent."""
    weight = _log_weight(chosen, pooled, left_over, bandwidth)
    for agent in range(chosen.shape[1]):
        proposed = chosen.copy()
        proposed[:, agent] = rng.integers(pooled.shape[1], size=len(chosen))
        there = _log_weight(proposed, pooled, left_over, bandwidth)
        accepted = np.log(rng.random(len(chosen))) < there - weight
        chosen, weight = np.where(accepted[:, None], proposed, chosen), np.where(accepted, there, weight)
    return chosen


def _log_weight(chosen: np.ndarray, pooled: np.ndarray, left_over: np.ndarray, bandwidth: float) -> np.ndarray:
    """`(chains,)` log-weights of choices, in coordinates in which the parametric product is `N(0, I)`."""
    taken = _taken(pooled, chosen)
    middle, agents = taken.mean(1), taken.shape[1]
    apart = ((taken - middle[:, None]) ** 2).sum((1, 2)) / bandwidth**2
    away = (middle**2).sum(1) / (1 + bandwidth**2 / agents)
    return -(apart + away) / 2 + left_over[np.arange(agents), chosen].sum(1)


def _taken(pooled: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """`(chains, agents, d)` the chosen draws."""
    return pooled[np.arange(len(pooled)), chosen]


def _log_normal(draws: np.ndarray) -> np.ndarray:
    """`(T,)` the log-density of draws under the normal distribution with their moments, up to a constant."""
    own = fitted(draws)
    away = draws - own.mean
    return -np.einsum("ta,ab,tb->t", away, own.precision, away) / 2
