"""R-hat and effective draws of one quantity, of draws `(chains, draws)`, as ArviZ computes them.

Written out because every run needs them, and to load ArviZ, which brings SciPy's statistics and Matplotlib along, was
a fifth of a short run. Tests hold every number against ArviZ's. All after Vehtari et al. (2021): each chain is split
in halves, and draws are replaced by normal scores of their ranks, so that heavy tails do no harm.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

_STILL = np.finfo(float).resolution  # a range below it is no movement


def split_rhat(draws: np.ndarray) -> float:
    """R-hat of halves of chains: the larger of that of ranks, and that of the ranks of distances from the median."""
    halves = split(draws)
    bulk, folded = (_rhat(normal_scores(values)) for values in (halves, np.abs(halves - np.median(halves))))
    return max(bulk, folded)


def effective_bulk(draws: np.ndarray) -> float:
    """Effective draws of the ranks."""
    return effective(normal_scores(split(draws)))


def effective_tail(draws: np.ndarray) -> float:
    """Effective draws for the quantiles at 5 % and 95 %, the fewer of them."""
    below = (split(draws <= _quantile(draws, share)) for share in (0.05, 0.95))
    return min(effective(one.astype(float)) for one in below)


def effective_mean(draws: np.ndarray) -> float:
    """Effective draws for the mean, without ranks."""
    return effective(split(draws))


def split(draws: np.ndarray) -> np.ndarray:
    """Both halves of every chain, `(2 chains, draws // 2)`; the middle one of an odd number is left out."""
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, -half:]])


def normal_scores(draws: np.ndarray) -> np.ndarray:
    """`Φ^{−1}((rank − 3/8)/(S + 1/4))` of all `S` draws together; equal ones have their average rank.

    >>> normal_scores(np.array([[1.0, 5.0], [2.0, 2.0]])).round(2).tolist()
    [[-1.05, 1.05], [0.0, 0.0]]
    """
    flat = draws.ravel()
    order = np.argsort(flat, kind="stable")
    ordered = flat[order]
    is_first = np.append(True, ordered[1:] != ordered[:-1])
    ends = np.append(np.flatnonzero(is_first), flat.size)
    which = np.empty(flat.size, int)
    which[order] = np.cumsum(is_first) - 1
    ranks = 0.5 * (ends[which + 1] + ends[which] + 1)
    return ndtri((ranks - 3 / 8) / (flat.size + 1 / 4)).reshape(draws.shape)


def effective(draws: np.ndarray) -> float:
    """`S/τ` with `τ = −1 + 2 Σ_t ρ_t` over Geyer's initial monotone sequence of pairs of autocorrelations."""
    chains, length = draws.shape
    if np.ptp(draws) < _STILL:
        return float(draws.size)
    spectrum = np.abs(np.fft.rfft(draws - draws.mean(1, keepdims=True), 1 << (2 * length - 1).bit_length())) ** 2
    covariances = np.fft.irfft(spectrum.mean(0))[:length] / length
    within = covariances[0] * length / (length - 1)
    variance = covariances[0] + (draws.mean(1).var(ddof=1) if chains > 1 else 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        rho = 1 - (within - covariances) / variance
    rho[0] = 1.0
    if np.isnan(rho[1]):
        return np.nan
    pairs = rho[: length // 2 * 2].reshape(-1, 2).sum(1)
    is_last = ~(pairs > 0) | (2 * np.arange(len(pairs)) + 1 >= length - 3)
    last = int(np.argmax(is_last))
    rest = rho[2 * last] if rho[2 * last] > 0 or pairs[last] >= 0 else 0.0
    tau = -1 + 2 * np.minimum.accumulate(pairs[:last]).sum() + rest
    return float(draws.size / max(tau, 1 / np.log10(draws.size)))


def _rhat(draws: np.ndarray) -> float:
    """`sqrt((B/W + N − 1)/N)` of sequences `(sequences, N)`."""
    length = draws.shape[1]
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = length * draws.mean(1).var(ddof=1) / draws.var(1, ddof=1).mean()
    return float(np.sqrt((ratio + length - 1) / length))


def _quantile(draws: np.ndarray, share: float) -> float:
    """The quantile by linear interpolation, rounded as SciPy's `mquantiles` rounds it: draws are compared with it."""
    ordered = np.sort(draws, axis=None)
    place = ordered.size * share + (1 - share)
    below = int(np.clip(np.floor(place), 1, ordered.size - 1))
    part = np.clip(place - below, 0, 1)
    return float((1 - part) * ordered[below - 1] + part * ordered[below])
