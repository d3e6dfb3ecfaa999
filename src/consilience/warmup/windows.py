"""The moments of a window's draws, and the coordinates that follow from them.

In the coordinates `u` of the window, with the covariance of `N_e` independent draws' worth,

    cov ← (N_e cov + 5 I)/(N_e + 5),      S ← S chol(cov),      m ← the mean.

Moments of shared parameters are those of all agents' draws, by one sum; an agent knows those of its private
parameters alone, and how they go along with the shared ones.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from consilience.errors import DivergedError
from consilience.kernel.whitening import Dense, Diagonal, Whitening

_PRIOR_DRAWS = 5  # draws that the present scale counts as
NUM_PLACES = 12
"""Draws of a window at which curvature is looked at."""
_EIGENVALUES, _MOST_MOVED = (0.3, 2.5), 1.0
_MOST_GROWTH, _MOST_GROWTH_IN_ALL = 1e4, 1e5  # of a variance, from window to window and since the first


class Moments(NamedTuple):
    """Sums over the draws of a window so far, in its coordinates; arrays over the agents here."""

    num_draws: np.ndarray
    """Draws, of all chains together."""
    first: np.ndarray
    """`(agents, size)` `Σ u`."""
    second: np.ndarray
    """`(agents, size, size)` `Σ u uᵀ`; of the diagonal form `(agents, size)`."""
    places: np.ndarray
    """`(12, agents, size)` parameters of some of the draws, evenly spread."""

    @classmethod
    def none(cls, whitening: Whitening, agents: int, size: int) -> Moments:
        """Before the first draw."""
        square = (agents, size, size) if isinstance(whitening, Dense) else (agents, size)
        places = NUM_PLACES if isinstance(whitening, Dense) else FEW_PLACES
        return cls(
            np.zeros((), np.int64), np.zeros((agents, size)), np.zeros(square), np.zeros((places, agents, size))
        )

    def with_draws(self, draws: np.ndarray, whitening: Whitening, expected: int) -> Moments:
        """After some more draws `(draws, chains, agents, size)` of the `expected` ones of all chains."""
        if not len(draws):
            return self
        first, second, places, count = self.first.copy(), self.second.copy(), self.places.copy(), int(self.num_draws)
        wanted = np.linspace(0, expected - 1, len(places)).astype(int)
        for draw in np.asarray(draws, np.float64):  # one at a time: sums do not depend on where segments are cut
            u = whitening.coordinates(draw)
            first += u.sum(0)
            second += np.einsum("cai,caj->aij", u, u) if isinstance(whitening, Dense) else (u**2).sum(0)
            for number in np.flatnonzero((wanted >= count) & (wanted < count + len(draw))):
                places[number] = draw[wanted[number] - count]
            count += len(draw)
        return Moments(np.array(count, np.int64), first, second, places)


FEW_PLACES = 3
"""The same of models that are too large for dense whitening."""


class Window(NamedTuple):
    """What a window showed of the shared parameters, in its coordinates."""

    mean: np.ndarray
    covariance: np.ndarray
    """Of the diagonal form, variances."""

    @property
    def eigenvalues(self) -> np.ndarray:
        """Of the covariance, in ascending order."""
        return np.sort(self.covariance) if self.covariance.ndim == 1 else np.linalg.eigvalsh(self.covariance)

    @property
    def is_settled(self) -> bool:
        """Whether the coordinates were about right already."""
        values = self.eigenvalues
        within = _EIGENVALUES[0] <= values[0] and values[-1] <= _EIGENVALUES[1]
        return bool(within and np.abs(self.mean).max() <= _MOST_MOVED)


def require_bounded(window: Window, before: np.ndarray, remedy: str) -> None:
    """Refuse a window whose draws run off: the coordinates that follow from them would make the next one worse.

    In a window's own coordinates the draws of the window before had variances of about 1. The first window may find
    any scale. `before` are the largest eigenvalues of those before, and `remedy` is what to do.
    """
    largest = float(window.eigenvalues[-1])
    growth = largest * float(np.prod(np.maximum(before[1:], 1.0)))
    if len(before) and not (largest <= _MOST_GROWTH and growth <= _MOST_GROWTH_IN_ALL):
        raise DivergedError(
            f"the warm-up runs off: the variance of its draws grew {largest:.2g} times in a window, and "
            f"{growth:.2g} times since the first one, where it should settle; {remedy}"
        )


def shrunk(covariance: np.ndarray, effective: float) -> np.ndarray:
    """The covariance with some draws' worth of the present scale added."""
    unit = np.ones_like(covariance) if covariance.ndim == 1 else np.eye(covariance.shape[-1])
    return (effective * covariance + _PRIOR_DRAWS * unit) / (effective + _PRIOR_DRAWS)


def rescaled(whitening: Whitening, window: Window, moments: Moments, effective: float) -> Whitening:
    """The coordinates in which the window's draws would have been about standard normal."""
    if isinstance(whitening, Diagonal):
        return _rescaled_diagonal(whitening, window, moments, effective)
    d, p = len(whitening.mean), whitening.own_mean.shape[1]
    factor = np.linalg.cholesky(shrunk(window.covariance, effective))
    mean, root = whitening.mean + whitening.root @ window.mean, whitening.root @ factor
    if not p:
        return whitening._replace(mean=mean, root=root)
    count = int(moments.num_draws)
    own_mean = moments.first / count
    joint = moments.second / count - own_mean[:, :, None] * own_mean[:, None, :]
    joint = (effective * joint + _PRIOR_DRAWS * np.eye(d + p)) / (effective + _PRIOR_DRAWS)
    along = np.linalg.solve(joint[:, :d, :d], joint[:, :d, d:]).swapaxes(1, 2)  # of z on w, (agents, p, d)
    rest = joint[:, d:, d:] - along @ joint[:, :d, d:]
    centre = own_mean[:, d:] + np.einsum("apd,ad->ap", along, window.mean - own_mean[:, :d])
    moved = np.einsum("apd,d->ap", whitening.shear, whitening.root @ window.mean)
    return Dense(
        mean,
        root,
        whitening.own_mean + moved + np.einsum("apq,aq->ap", whitening.own_root, centre),
        whitening.own_root @ np.linalg.cholesky(rest),
        whitening.shear + whitening.own_root @ along @ np.linalg.inv(whitening.root),
    )


def _rescaled_diagonal(whitening: Diagonal, window: Window, moments: Moments, effective: float) -> Diagonal:
    d, count = len(whitening.mean), int(moments.num_draws)
    own_mean = moments.first[:, d:] / count
    own_variance = moments.second[:, d:] / count - own_mean**2
    return Diagonal(
        whitening.mean + whitening.scale * window.mean,
        whitening.scale * np.sqrt(shrunk(window.covariance, effective)),
        whitening.own_mean + whitening.own_scale * own_mean,
        whitening.own_scale * np.sqrt((effective * own_variance + _PRIOR_DRAWS) / (effective + _PRIOR_DRAWS)),
    )
