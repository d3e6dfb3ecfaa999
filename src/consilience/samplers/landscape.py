"""What is known about a problem's potentials when step sizes are chosen for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Landscape:
    """Curvatures of the agents' potentials `U_i` and of their sum `U`.

    Attributes:
        smoothness: `L`, the largest curvature of any agent's potential.
        total_smoothness: `L̄`, the largest curvature of `U`.
        known: where they come from, in a few words.
        relaxation: `1/ρ_U`, the Langevin time in which the posterior forgets; `None` if it is not known.
        gradients: `(n, d)` gradients `∇U_i` at the posterior's centre, if they are known.
        hessian: `(n d, n d)` block-diagonal matrix of the Hessians `∇²U_i` there, if they are known.
    """

    smoothness: float
    total_smoothness: float
    known: str
    relaxation: float | None = None
    gradients: np.ndarray | None = None
    hessian: np.ndarray | None = None
