"""Normal approximations of subposteriors, and their product.

N(μ_1, Λ_1⁻¹) ⋯ N(μ_n, Λ_n⁻¹) ∝ N(μ, Λ⁻¹),      Λ = Σ_i Λ_i,      μ = Λ⁻¹ Σ_i Λ_i μ_i
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from consilience.errors import ProblemError


class Gaussian(NamedTuple):
    """A normal distribution on `d` numbers, by its mean and its precision."""

    mean: np.ndarray
    """`(d,)`"""
    precision: np.ndarray
    """`(d, d)`"""

    @property
    def root(self) -> np.ndarray:
        """`(d, d)` `R` with `R Rᵀ` the covariance."""
        return _inverse_root(self.precision)

    def draws(self, shape: tuple[int, ...], seed: int) -> np.ndarray:
        """Independent draws `(*shape, d)`."""
        noise = np.random.default_rng(seed).normal(size=(*shape, len(self.mean)))
        return self.mean + noise @ self.root.T


def fitted(draws: np.ndarray) -> Gaussian:
    """The normal distribution with the mean and covariance of draws `(…, d)`."""
    flat = draws.reshape(-1, draws.shape[-1])
    return Gaussian(flat.mean(0), _inverse(np.atleast_2d(np.cov(flat.T))))


def product(parts: Sequence[Gaussian]) -> Gaussian:
    """The normalised product of normal densities.

    >>> import numpy as np
    >>> left, right = (Gaussian(np.array([mean]), np.array([[precision]])) for mean, precision in ((0, 1), (4, 3)))
    >>> product([left, right]).mean.tolist()
    [3.0]
    """
    precision = np.sum([part.precision for part in parts], 0)
    root = _inverse_root(precision)
    pulled = np.sum([part.precision @ part.mean for part in parts], 0)
    return Gaussian(root @ (root.T @ pulled), precision)


def _inverse(matrix: np.ndarray) -> np.ndarray:
    root = _inverse_root(matrix)
    return root @ root.T


def _inverse_root(matrix: np.ndarray) -> np.ndarray:
    """`R` with `R Rᵀ = matrix⁻¹`, by way of coordinates in which the diagonal is 1: units may differ by 10^6."""
    scale = np.sqrt(np.maximum(np.diag(matrix), np.finfo(float).tiny))
    try:
        lower = np.linalg.cholesky(matrix / scale[:, None] / scale)
    except np.linalg.LinAlgError:
        raise ProblemError(
            "a normal approximation has no positive definite covariance: some direction is not identified by the "
            "agents' own data; a method over the network does not need that"
        ) from None
    return np.linalg.inv(lower).T / scale[:, None]
