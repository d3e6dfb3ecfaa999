"""Coordinates in which the posterior is about standard normal: `w = m + S u`, with `m` and `S` known to all agents.

A sampler works on `u`; models, draws and everything a user sees are in `w`. The gradient in `u` is `Sᵀ ∇U_i(m + S
u)`. Private parameters are whitened by their agent alone. In the dense form they also follow the shared ones,

    z_i = m_i + R_i (w − m) + S_i u_i,

which is one more change of the agent's own coordinates: with `R_i = −(∇²_zz U_i)⁻¹ ∇²_zw U_i` what is private and
what is shared are no longer correlated. Dense up to `MOST_DENSE` shared parameters, and as many private ones;
diagonal above.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

_FEW = 8
MOST_DENSE = 300
"""Up to so many shared parameters (and private ones of an agent) whitening is dense."""


class Dense(NamedTuple):
    """Whitening by matrices."""

    mean: Any
    """`(d,)` `m`."""
    root: Any
    """`(d, d)` `S`."""
    own_mean: Any
    """`(agents, p)` `m_i`."""
    own_root: Any
    """`(agents, p, p)` `S_i`."""
    shear: Any
    """`(agents, p, d)` `R_i`."""

    def position(self, u: Any) -> Any:
        """The parameters of all agents, `(…, agents, d + p)`, from their coordinates."""
        d = self.mean.shape[0]
        moved = _times(self.root, u[..., :d])
        if not self.own_mean.shape[-1]:
            return self.mean + moved
        private = (
            self.own_mean
            + jnp.einsum("apd,...ad->...ap", self.shear, moved)
            + jnp.einsum("apq,...aq->...ap", self.own_root, u[..., d:])
        )
        return jnp.concatenate([self.mean + moved, private], -1)

    def pulled_back(self, gradient: Any) -> Any:
        """The gradient in the coordinates `u`, from that in the parameters."""
        d = self.mean.shape[0]
        if not self.own_mean.shape[-1]:
            return _times(self.root.T, gradient)
        shared, private = gradient[..., :d], gradient[..., d:]
        shared = shared + jnp.einsum("apd,...ap->...ad", self.shear, private)
        return jnp.concatenate([shared @ self.root, jnp.einsum("apq,...ap->...aq", self.own_root, private)], -1)

    def coordinates(self, w: np.ndarray) -> np.ndarray:
        """The coordinates of positions `(…, agents, d + p)`, in this process's memory."""
        d = self.mean.shape[0]
        away = w[..., :d] - self.mean
        shared = np.linalg.solve(self.root, away.reshape(-1, d).T).T.reshape(away.shape)
        if not self.own_mean.shape[-1]:
            return shared
        rest = w[..., d:] - self.own_mean - np.einsum("apd,...ad->...ap", self.shear, away)
        return np.concatenate([shared, np.linalg.solve(self.own_root, rest[..., None])[..., 0]], -1)


class Diagonal(NamedTuple):
    """Whitening by scales."""

    mean: Any
    """`(d,)`"""
    scale: Any
    """`(d,)`"""
    own_mean: Any
    """`(agents, p)`"""
    own_scale: Any
    """`(agents, p)`"""

    def _all(self) -> tuple[Any, Any]:
        """Means and scales of every agent's vector."""
        if not self.own_mean.shape[-1]:
            return self.mean, self.scale
        agents = self.own_mean.shape[0]

        def joined(shared: Any, own: Any) -> Any:
            return jnp.concatenate([jnp.broadcast_to(shared, (agents, *shared.shape)), own], -1)

        return joined(self.mean, self.own_mean), joined(self.scale, self.own_scale)

    def position(self, u: Any) -> Any:
        """The parameters of all agents, from their coordinates."""
        mean, scale = self._all()
        return mean + scale * u

    def pulled_back(self, gradient: Any) -> Any:
        """The gradient in the coordinates `u`."""
        return self._all()[1] * gradient

    def coordinates(self, w: np.ndarray) -> np.ndarray:
        """The coordinates of positions, in this process's memory."""
        mean, scale = map(np.asarray, self._all())
        return (w - mean) / scale


Whitening = Dense | Diagonal


def _times(matrix: Any, vectors: Any) -> Any:
    """`M v` for vectors `(…, d)`; of few numbers as a sum, which becomes a part of what is computed before and after.

    A product is a call of its own, which costs more than the rest of a small model's step.
    """
    if matrix.shape[0] > _FEW:
        return vectors @ matrix.T
    return (vectors[..., None, :] * matrix).sum(-1)


def identity(num_shared: int, num_agents: int, num_private: int) -> Whitening:
    """The parameters themselves as coordinates, in the form that suits their number.

    >>> identity(2, 3, 1).position(np.ones((1, 3, 3))).shape
    (1, 3, 3)
    """
    if max(num_shared, num_private) > MOST_DENSE:
        shared, own = np.zeros(num_shared), np.zeros((num_agents, num_private))
        return Diagonal(shared, shared + 1, own, own + 1)
    return Dense(
        np.zeros(num_shared),
        np.eye(num_shared),
        np.zeros((num_agents, num_private)),
        np.broadcast_to(np.eye(num_private), (num_agents, num_private, num_private)).copy(),
        np.zeros((num_agents, num_private, num_shared)),
    )
