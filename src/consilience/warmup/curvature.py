"""How curved the potentials are in whitened coordinates: `Λ` of their sum, and `ℓ` of the agent that has most of it.

    Λ = 0.9-quantile over draws of λ_max(Σ_i Sᵀ∇²U_i S)
    ℓ = 0.9-quantile over draws of n max_i ‖Sᵀ∇²U_i S‖, over Λ, at least 1

`Λ` sets the step size, `ℓ` how well agents must mix. With private parameters the Hessian of the whole network is an
arrow: a block of the shared ones, and one of each agent's. Above a `μ` that is larger than the private blocks'
largest eigenvalue, the largest of the whole is at most that of

    Σ_i M_i,     M_i = H_ww + H_wz (μ I − H_zz)⁻¹ H_zw,

or `μ`, whichever is larger; `M_i` takes the place of `Sᵀ∇²U_i S` then.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from consilience.errors import DivergedError
from consilience.kernel.whitening import Dense
from consilience.warmup.derivatives import LocalPotentials
from consilience.warmup.network import Network

_QUANTILE = 0.9
_LEAST_CURVATURE = 1e-3
_ABOVE_PRIVATE = 1.25  # μ, in largest eigenvalues of private blocks


class Curvature(NamedTuple):
    """What decides step size and exchanges."""

    largest: float
    """`Λ`"""
    excess: float
    """`ℓ`"""


def curvature(potentials: LocalPotentials, network: Network, whitening: Dense, places: np.ndarray) -> Curvature:
    """`Λ` and `ℓ` at positions `(draws, agents here, d + p)`, of which shared parts are the same at all agents."""
    d = len(whitening.mean)
    hessians = np.stack([_whitened(potentials.at(place).hessians, whitening) for place in places])
    shared = hessians[..., :d, :d]  # (draws, agents, d, d)
    beyond = 0.0
    if hessians.shape[-1] > d:
        beyond = _ABOVE_PRIVATE * _largest_private(network, hessians[..., d:, d:])
        apart = beyond * np.eye(hessians.shape[-1] - d) - hessians[..., d:, d:]
        across = hessians[..., :d, d:]
        shared = shared + across @ np.linalg.solve(apart, across.swapaxes(-1, -2))
    norms = np.abs(_eigenvalues(shared)).max(-1)  # (draws, agents)
    found = network.summed(shared.swapaxes(0, 1), network.largest(norms.T))
    if found is None:
        raise DivergedError("curvatures are not finite where the warm-up has been: check the model for overflow")
    total, by_agent = found
    largest = max(float(np.quantile(np.linalg.eigvalsh(total)[:, -1], _QUANTILE)), beyond, _LEAST_CURVATURE)
    most = float(np.quantile(network.num_agents * by_agent.max(0), _QUANTILE))
    return Curvature(largest, max(1.0, most / largest))


def _largest_private(network: Network, blocks: np.ndarray) -> float:
    """The largest eigenvalue of any agent's private block at any draw, 1 at least."""
    own = _eigenvalues(blocks)[..., -1].max(0)
    found = network.summed(network.largest(own[:, None]))
    if found is None:
        raise DivergedError("curvatures are not finite where the warm-up has been: check the model for overflow")
    return max(1.0, float(found[0].max()))


def _eigenvalues(matrices: np.ndarray) -> np.ndarray:
    """In ascending order; no numbers of a matrix with an entry that is none, as the agent must say so to all."""
    usable = np.isfinite(matrices).all((-2, -1), keepdims=True)
    found = np.linalg.eigvalsh(np.where(usable, matrices, 0.0))
    return np.where(usable[..., 0], found, np.nan)


def _whitened(hessians: np.ndarray, whitening: Dense) -> np.ndarray:
    """`TᵀH T` of each agent, with `T` the matrix of its change of coordinates."""
    d, (agents, p) = len(whitening.mean), whitening.own_mean.shape
    change = np.zeros((agents, d + p, d + p))
    change[:, :d, :d] = whitening.root
    change[:, d:, :d] = whitening.shear @ whitening.root
    change[:, d:, d:] = whitening.own_root
    with np.errstate(invalid="ignore"):  # of a model that overflows
        return np.asarray(change.swapaxes(1, 2) @ hessians @ change)
