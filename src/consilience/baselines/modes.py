"""A one-shot Gaussian product: each agent hands in the mode of its subposterior and the curvature there."""

from __future__ import annotations

import numpy as np

from consilience.baselines.gaussians import Gaussian
from consilience.errors import ProblemError
from consilience.problems import Problem
from consilience.warmup.derivatives import Derivatives, LocalPotentials
from consilience.warmup.newton import factors

_MOST_ITERATIONS, _MOST_HALVINGS = 200, 30
_AT_REST, _NEAR_REST = 1e-10, 1e-4
"""`gᵀ H⁻¹ g`, twice what is left to gain, at which an agent stops, and at which it has arrived."""
_FALL = 1e-4
_LEAST_EIGENVALUE = 1e-10  # of a curvature with unit diagonal


def modes_and_curvatures(problem: Problem, start: np.ndarray) -> list[Gaussian]:
    """For each agent `N(mode, H⁻¹)`, `H` the Hessian of `−log p_i` at the mode, by damped Newton steps.

    Args:
        problem: all of whose parameters are shared.
        start: `(d,)` where all descend from, unconstrained.
    """
    potentials = LocalPotentials(problem)
    positions = np.broadcast_to(start, (problem.num_agents, len(start))).copy()
    here = potentials.at(positions)
    for _ in range(_MOST_ITERATIONS):
        steps, gains = _newton_steps(here)
        moving = gains > _AT_REST
        if not moving.any():
            break
        positions, here = _descended(potentials, positions, here, np.where(moving[:, None], steps, 0.0), gains)
    return [_normal(agent, *own) for agent, own in enumerate(zip(positions, here.hessians, gains, strict=True))]


def _newton_steps(here: Derivatives) -> tuple[np.ndarray, np.ndarray]:
    """Each agent's step, and `gᵀ H⁻¹ g`; an agent whose derivatives are not finite stays where it is."""
    steps, gains = np.zeros_like(here.gradients), np.zeros(len(here.gradients))
    for agent, (gradient, hessian) in enumerate(zip(here.gradients, here.hessians, strict=True)):
        if np.isfinite(gradient).all() and np.isfinite(hessian).all():
            steps[agent] = -factors(hessian).solve(gradient)
            gains[agent] = -gradient @ steps[agent]
    return steps, gains


def _descended(
    potentials: LocalPotentials, positions: np.ndarray, here: Derivatives, steps: np.ndarray, gains: np.ndarray
) -> tuple[np.ndarray, Derivatives]:
    """Positions after steps that are halved until the potential falls; without a fall an agent stays."""
    lengths, rising = np.where(steps.any(1), 1.0, 0.0), steps.any(1)
    for _ in range(_MOST_HALVINGS):
        there = potentials.at(positions + lengths[:, None] * steps)
        falls = there.values <= here.values - _FALL * lengths * gains
        rising = (lengths > 0) & ~(falls & np.isfinite(there.gradients).all(1))
        if not rising.any():
            break
        lengths = np.where(rising, lengths / 2, lengths)
    positions = positions + np.where(rising, 0.0, lengths)[:, None] * steps
    return positions, potentials.at(positions)


def _normal(agent: int, mode: np.ndarray, hessian: np.ndarray, gain: float) -> Gaussian:
    usable = np.isfinite(mode).all() and np.isfinite(hessian).all() and gain <= _NEAR_REST
    scale = np.sqrt(np.maximum(np.diag(hessian), 1e-300)) if usable else np.ones(len(mode))
    if not usable or np.linalg.eigvalsh(hessian / scale[:, None] / scale)[0] <= _LEAST_EIGENVALUE:
        raise ProblemError(
            f"agent {agent} alone has no mode with a positive definite curvature: its own rows do not identify all "
            "parameters; a method over the network does not need that"
        )
    return Gaussian(mode, hessian)
