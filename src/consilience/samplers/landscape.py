"""What is known about a problem when step sizes are chosen for it, and how far its potentials pull agents apart."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from consilience.graphs import Graph


@dataclass(frozen=True)
class Landscape:
    """Curvatures of the agents' potentials `U_i` and of their sum `U`, in the model's own coordinates.

    Attributes:
        smoothness: `L`, the largest curvature of any agent's potential.
        total_smoothness: `L̄`, the largest curvature of `U`.
        known: where they come from, in a few words.
        relaxation: `1/ρ_U`, the Langevin time in which the posterior forgets; `None` if it is not known.
        gradients: `(n, d)` gradients `∇U_i` at the posterior's centre, if they are known.
        hessians: `(n, d, d)` Hessians `∇²U_i` there, if they are known.
        deviations: `(d,)` standard deviations of the posterior, if they are known.
        noise: the largest variance of a parameter's gradient from minibatches, added up over the agents.
    """

    smoothness: float
    total_smoothness: float
    known: str
    relaxation: float | None = None
    gradients: np.ndarray | None = None
    hessians: np.ndarray | None = None
    deviations: np.ndarray | None = None
    noise: float = 0.0


def shift(landscape: Landscape, graph: Graph, pull: float) -> float:
    """How far a mean is off at the agent that has it worst, in standard deviations, for a drift of 1.

    Agents rest where the neighbours' pull balances their own gradients, `β (L w)_i = −α n ∇U_i(w_i)`. To first order
    in the drift `α` that is, with `g_i` the gradients at the centre and `H_i` the Hessians there,

        w_i − w* = α (d_i + δ),     d = −(n/β) L⁺ (g − ḡ),     δ = −(Σ_j H_j)⁻¹ Σ_j H_j d_j.

    Without Hessians `δ`, by which the average of the agents is off, is left out.
    """
    gradients, deviations = landscape.gradients, landscape.deviations
    if gradients is None or deviations is None or graph.num_agents == 1:
        return 0.0
    away = -graph.num_agents / pull * _spread_out(graph, gradients - gradients.mean(0))
    if landscape.hessians is not None:
        moved = np.einsum("nab,nb->a", landscape.hessians, away)
        away = away - np.linalg.lstsq(landscape.hessians.sum(0), moved, rcond=None)[0]
    return float((np.abs(away) / deviations).max())


def _spread_out(graph: Graph, values: np.ndarray) -> np.ndarray:
    """`L⁺ x` of values that add up to 0 over the agents, with the first agent held at 0 and the mean taken out."""
    from scipy.sparse.linalg import splu

    found = np.zeros_like(values)
    found[1:] = splu(graph.laplacian[1:, 1:].tocsc()).solve(values[1:])
    return np.asarray(found - found.mean(0))
