"""Consensus Monte Carlo (Scott, Blocker, Bonassi, Chipman, George and McCulloch, 2016).

The `t`-th draws of all agents are averaged, weighted by the precisions of the agents' draws:

    w_t = (Σ_i W_i)⁻¹ Σ_i W_i w_{i,t},      W_i = (covariance of agent i's draws)⁻¹

Exact if all subposteriors are normal.
"""

from __future__ import annotations

import numpy as np

from consilience.baselines.gaussians import fitted, product


def consensus_monte_carlo(draws: np.ndarray) -> np.ndarray:
    """Draws of the product, `(chains, draws, d)`, from draws of each agent's subposterior.

    Args:
        draws: `(agents, chains, draws, d)`.

    >>> import numpy as np
    >>> alone = np.random.default_rng(0).normal(size=(4, 1, 1000, 1))
    >>> bool(abs(consensus_monte_carlo(alone).std() - 0.5) < 0.05)
    True
    """
    parts = [fitted(own) for own in draws]
    root = product(parts).root
    pulled = sum(own @ part.precision for own, part in zip(draws, parts, strict=True))
    return pulled @ root @ root.T
