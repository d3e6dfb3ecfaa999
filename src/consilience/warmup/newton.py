"""Where the warm-up begins: damped Newton on sums of values, gradients and Hessians over the agents.

Hessians are scaled to a unit diagonal, and their eigenvalues' magnitudes are kept above 1e-6 of the largest. In
directions in which they are below 1e-3 of it, how the potential rises counts (`widths.py`) where that is more.
Private parameters are eliminated by their agent: what is summed is the Schur complement

    H = Σ_i (H_ww − H_wz H_zz⁻¹ H_zw),      g = Σ_i (g_w − H_wz H_zz⁻¹ g_z).

Steps are limited to a radius, at first that of the bulk, which grows while the expansion holds. It stops when `gᵀ
H⁻¹ g` is below the number of parameters: inside the posterior's bulk. The mode itself may lie far from it, as in
hierarchical models.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from consilience.errors import ProblemError
from consilience.warmup.derivatives import Derivatives, LocalPotentials
from consilience.warmup.network import Network
from consilience.warmup.widths import widths

Widths = Callable[[np.ndarray, float], np.ndarray]
"""From directions `(d, count)` and the largest width to the widths in them."""

_LEAST_EIGENVALUE, _LOW_EIGENVALUE = 1e-6, 1e-3
_MOST_ITERATIONS, _MOST_TRIALS = 60, 25
_ENOUGH, _GOOD = 0.1, 0.75  # of the decrease that the second-order expansion promises


class Laplace(NamedTuple):
    """A normal approximation of the posterior."""

    positions: np.ndarray
    """`(agents here, d + p)` where it is centred."""
    root: np.ndarray
    """`(d, d)` `S` with `S Sᵀ = H⁻¹`."""
    own_root: np.ndarray
    """`(agents here, p, p)` the same of private parameters, given the shared ones."""
    shear: np.ndarray
    """`(agents here, p, d)` `−H_zz⁻¹ H_zw`."""
    iterations: int


class Eliminated(NamedTuple):
    """An agent's derivatives with its private parameters eliminated; arrays over the agents here."""

    value: np.ndarray
    decrement: np.ndarray
    """`g_zᵀ H_zz⁻¹ g_z`"""
    gradient: np.ndarray
    hessian: np.ndarray
    own_step: np.ndarray
    """`−H_zz⁻¹ g_z`, to which `shear · δw` is added."""
    shear: np.ndarray
    own_root: np.ndarray


class Factors(NamedTuple):
    """`H⁻¹ = root rootᵀ` of a matrix whose eigenvalues' magnitudes are kept from 0."""

    root: np.ndarray

    def solve(self, vector: np.ndarray) -> np.ndarray:
        """`H⁻¹ x`."""
        return self.root @ (self.root.T @ vector)


def factors(hessian: np.ndarray, widths_in: Widths | None = None) -> Factors:
    """The symmetric root of the inverse in coordinates in which the diagonal is 1.

    `widths_in` says how wide directions are about which the Hessian says little.

    >>> factors(np.diag([4.0, 1e12])).root.round(9).tolist()
    [[0.5, 0.0], [0.0, 1e-06]]
    """
    if not len(hessian):
        return Factors(np.zeros((0, 0)))
    diagonal = np.abs(np.diag(hessian))
    diagonal = np.where(diagonal > 0, diagonal, max(diagonal.max(), 1.0) * _LEAST_EIGENVALUE)
    scale = 1 / np.sqrt(diagonal)
    values, vectors = np.linalg.eigh(scale[:, None] * hessian * scale)
    largest = max(np.abs(values).max(), _LEAST_EIGENVALUE)
    values = np.maximum(np.abs(values), _LEAST_EIGENVALUE * largest)
    low = values < _LOW_EIGENVALUE * largest
    if widths_in is not None and low.any():
        found = widths_in(scale[:, None] * vectors[:, low], (_LEAST_EIGENVALUE * largest) ** -0.5)
        values[low] = np.maximum(values[low], found**-2)
    return Factors(scale[:, None] * (vectors / np.sqrt(values)) @ vectors.T)


def newton(potentials: LocalPotentials, network: Network, start: np.ndarray, num_parameters: int) -> Laplace:
    """A normal approximation inside the posterior's bulk.

    Args:
        potentials: of the agents here.
        network: makes sums.
        start: `(agents here, d + p)`, the shared part the same at all agents.
        num_parameters: of the whole network, private ones of all agents included.
    """
    d = potentials.parameters.num_shared
    here, positions = eliminated(potentials.at(start), d), start
    summed = network.summed(*here[:4])
    if summed is None:
        raise ProblemError(
            "the log-posterior of everybody's data or its slope is not finite where the agents start: let init "
            "return a point at which every agent's rows have a positive likelihood, and of a sensible size"
        )
    iterations, radius = 0, float(num_parameters) ** 0.5
    while True:
        value, own_decrement, gradient, hessian = summed
        inverse = factors(hessian, _widths(potentials, network, positions, here.shear, float(value)))
        step = -inverse.solve(gradient)
        decrement = float(own_decrement) - float(gradient @ step)
        if decrement < num_parameters or iterations == _MOST_ITERATIONS:
            break
        own_step = here.own_step + here.shear @ step
        away = np.concatenate([np.broadcast_to(step, (len(start), d)), own_step], 1)
        found = None
        for _ in range(_MOST_TRIALS):
            length = min(1.0, radius / decrement**0.5)
            there = eliminated(potentials.at(positions + length * away), d)
            found = network.summed(*there[:4])
            promised = (length - length**2 / 2) * decrement
            kept = -np.inf if found is None else float(value - found[0]) / promised
            if kept >= _ENOUGH:
                radius *= 4 if kept > _GOOD and length < 1 else 1
                break
            radius, found = length * decrement**0.5 / 4, None
        if found is None:
            break
        positions, here, summed = positions + length * away, there, found
        iterations += 1
    return Laplace(positions, inverse.root, here.own_root, here.shear, iterations)


def _widths(
    potentials: LocalPotentials, network: Network, positions: np.ndarray, shear: np.ndarray, value: float
) -> Widths:
    """Of directions of the shared parameters, which private ones follow."""

    def found(directions: np.ndarray, widest: float) -> np.ndarray:
        shared = np.broadcast_to(directions.T[:, None], (directions.shape[1], len(positions), len(directions)))
        moves = np.concatenate([shared, np.einsum("apd,dk->kap", shear, directions)], -1)
        return widths(potentials, network, positions, value, moves, widest)

    return found


def eliminated(found: Derivatives, d: int) -> Eliminated:
    """An agent's derivatives with its private parameters, all but the first `d`, eliminated."""
    agents, size = found.gradients.shape
    p = size - d
    if not p:
        nothing = np.zeros(agents)
        return Eliminated(
            found.values, nothing, found.gradients, found.hessians, np.zeros((agents, 0)), np.zeros((agents, 0, d)),
            np.zeros((agents, 0, 0)),
        )  # fmt: skip
    usable = np.isfinite(found.gradients).all(1) & np.isfinite(found.hessians).all((1, 2))
    own = [factors(h[d:, d:] if ok else np.eye(p)).root for h, ok in zip(found.hessians, usable, strict=True)]
    root = np.stack(own)
    inverse = root @ root.swapaxes(1, 2)
    shear = -inverse @ found.hessians[:, d:, :d]
    across = found.hessians[:, :d, d:]
    own_gradient = found.gradients[:, d:]
    step = -(inverse @ own_gradient[..., None])[..., 0]
    return Eliminated(
        found.values,
        -(own_gradient * step).sum(1),
        found.gradients[:, :d] + (across @ step[..., None])[..., 0],
        found.hessians[:, :d, :d] + across @ shear,
        step,
        shear,
        root,
    )
