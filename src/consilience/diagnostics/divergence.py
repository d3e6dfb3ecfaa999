"""The Kullback–Leibler divergence between two sets of draws, by nearest neighbours.

    KL(p ‖ q) ≈ (d/m) Σ_i log(ν_k(x_i)/ρ_k(x_i)) + log(n/(m − 1)),    x_i ~ p,

where `ρ_k` and `ν_k` are the distances of `x_i` to its k-th neighbour among the other draws of `p` and among the
draws of `q` (Wang, Kulkarni and Verdú, 2009). It needs no density, but draws that are close to independent: thin
a Markov chain first. The estimate scatters around 0 for equal distributions and may be slightly negative; where `p`
has much mass outside the reach of `q`'s draws it is too small, so read large values as "at least".
"""

from __future__ import annotations

import numpy as np

from consilience.errors import InputError


def kl_divergence(draws: np.ndarray, reference: np.ndarray, neighbours: int = 5) -> float:
    """An estimate of `KL(draws ‖ reference)` in nats, for arrays `(m, size)` and `(n, size)`.

    >>> rng = np.random.default_rng(0)
    >>> bool(abs(kl_divergence(rng.normal(size=(4000, 1)), rng.normal(size=(4000, 1)))) < 0.05)
    True
    """
    from scipy.spatial import cKDTree

    draws, reference = (np.asarray(part, float).reshape(len(part), -1) for part in (draws, reference))
    if min(len(draws) - 1, len(reference)) < neighbours:
        raise InputError(f"a KL estimate with {neighbours} neighbours needs more draws than that on both sides")
    within = cKDTree(draws).query(draws, neighbours + 1)[0][:, -1]
    across = cKDTree(reference).query(draws, neighbours)[0]
    across = across[:, -1] if neighbours > 1 else across
    tiny = np.finfo(float).tiny
    ratio = np.log(np.maximum(across, tiny)) - np.log(np.maximum(within, tiny))
    return float(draws.shape[1] * ratio.mean() + np.log(len(reference) / (len(draws) - 1)))
