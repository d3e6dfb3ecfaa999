"""The constants of a problem that the theorems need, each with a label: exact, a bound, or an estimate.

- Gaussian problems: everything exactly.
- Problems with a `Curvature` of their own (logistic regression with a normal prior): `L_i` and `L̄` as bounds, and
  `ρ_U` from below by the strong convexity of `U` (Bakry and Émery).
- All others: `L_i` and `L̄` are the largest curvatures found over a region, `ρ_U` is the smallest one where the
  potential curves upwards all over the region, otherwise the spectral gap of the Langevin diffusion (two parameters,
  on a grid) or the inverse of the largest posterior variance. The last two are never below the true `ρ_U`.

The region is made of starts of the agents, the modes that a descent from them finds, and normal draws around those.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np

from consilience.errors import ProblemError
from consilience.theory.gaussian import GaussianNetwork
from consilience.theory.grid import GridPosterior
from consilience.theory.potentials import Potentials

Kind = Literal["exact", "bound", "estimate"]
_DRAWS_AROUND_A_MODE = 12
_FLAT = 1e-9  # of the largest curvature, below which one counts as 0
_DENSE = 128
MOST_PARAMETERS = 2000
_WIDEST = 12


class Quantity(NamedTuple):
    """A number (or several), how sure it is, and where it comes from."""

    value: Any
    kind: Kind
    how: str


@dataclass(frozen=True)
class Constants:
    """The constants of a problem.

    Attributes:
        local_smoothness: `(n,)`: `L_i`, Lipschitz constants of the agents' gradients (Assumption 1).
        total_smoothness: `L̄`, Lipschitz constant of `∇U` (S3).
        coupling: `C_ζ` with `‖ζ‖² ≤ C_ζ ‖w̃‖²`. The paper takes `L²` (S126), which can be too small.
        log_sobolev: `ρ_U` (24).
        second_moment: `c_1 = E‖w − w*‖²` under the posterior.
        centre: `w*`, a stationary point of `U`.
    """

    local_smoothness: Quantity
    total_smoothness: Quantity
    coupling: Quantity
    log_sobolev: Quantity
    second_moment: Quantity
    centre: np.ndarray

    @property
    def smoothness(self) -> Quantity:
        """`L = max_i L_i` (S5)."""
        each = self.local_smoothness
        return Quantity(float(np.max(each.value)), each.kind, each.how)


def gaussian_constants(network: GaussianNetwork) -> Constants:
    """The constants of a Gaussian network, exactly."""
    spectrum = np.linalg.eigvalsh(network.precisions.sum(0))
    if spectrum[0] <= 0:
        raise ProblemError(
            "the potentials of all agents together are flat or fall in some direction, so there is no posterior: "
            "use a proper prior"
        )
    local = np.abs(np.linalg.eigvalsh(network.precisions)).max(1)
    n, total = len(local), network.precisions.sum(0)
    apart = (network.precisions @ network.precisions).sum(0) - total @ total / n
    posterior = network.posterior
    return Constants(
        Quantity(local, "exact", "largest eigenvalues of the agents' precisions"),
        Quantity(float(spectrum[-1]), "exact", "largest eigenvalue of the posterior's precision"),
        Quantity(max(0.0, float(np.linalg.eigvalsh(apart)[-1])), "exact", "largest eigenvalue of ΣH_i² − (ΣH_i)²/n"),
        Quantity(float(spectrum[0]), "exact", "smallest eigenvalue of the posterior's precision"),
        Quantity(float(np.trace(posterior.covariance)), "exact", "trace of the posterior's covariance"),
        posterior.mean,
    )


def problem_constants(potentials: Potentials, draws: np.ndarray | None = None) -> Constants:
    """The constants of a problem that is not Gaussian: bounds where it brings its own, estimates otherwise.

    Args:
        potentials: the agents' potentials.
        draws: `(count, size)` draws from about the posterior, if there are some; they widen the region, and give
            the spread of a posterior that is not log-concave.
    """
    if potentials.size > MOST_PARAMETERS:
        raise ProblemError(
            f"the constants are found for at most {MOST_PARAMETERS:,} parameters, this problem has "
            f"{potentials.size:,}; `consilience check` looks at its curvature alone"
        )
    modes = potentials.modes
    known = potentials.problem.curvature
    if known is not None:
        local = Quantity(np.asarray(known.smoothness, float), "bound", known.how)
        total = Quantity(float(known.total_smoothness), "bound", known.how)
    if known is not None and known.convexity > 0:
        sobolev = Quantity(float(known.convexity), "bound", "U is strongly convex by its prior")
        moment = Quantity(potentials.size / known.convexity, "bound", "d_w/ρ_U, as U is strongly convex")
        return Constants(local, total, _coupling(local), sobolev, moment, modes[0])
    points = _region(potentials, draws)
    lowest, highest, each = _curvatures(potentials, points)
    how = f"largest curvature at {len(points)} points"
    if known is None:
        local, total = Quantity(each, "estimate", how), Quantity(highest, "estimate", how)
    sobolev, moment = _spread(potentials, lowest, highest, draws)
    return Constants(local, total, _coupling(local), sobolev, moment, modes[0])


def require_curved(potentials: Potentials) -> None:
    """Check that the posterior is curved in every direction at its mode, as a normal approximation there must be."""
    curvatures = np.linalg.eigvalsh(potentials.hessians(potentials.modes[0]).sum(0))
    if curvatures[0] > _FLAT * np.abs(curvatures).max():
        return
    raise ProblemError(
        f"at its mode the posterior is flat in some direction (curvatures from {curvatures[0]:.3g} to "
        f"{curvatures[-1]:.3g}), so the theorems, which need U to be smooth and curved, say nothing about it. It may "
        "be log-concave all the same: a Laplace prior has no curvature, and its gradient jumps at 0. Ask about the "
        "problem with a normal prior, or ask `consilience check` whether the plan is stable"
    )


def _coupling(local: Quantity) -> Quantity:
    """`Σ_i L_i²`, by Cauchy and Schwarz."""
    return Quantity(float((np.asarray(local.value) ** 2).sum()), local.kind, "Σ L_i², by Cauchy and Schwarz")


def _region(potentials: Potentials, draws: np.ndarray | None) -> np.ndarray:
    rng = np.random.default_rng(0)
    points = [*potentials.modes, *potentials.some_starts]
    if potentials.size <= _DENSE:
        for mode in potentials.modes:
            precision = potentials.hessians(mode).sum(0)
            values, vectors = np.linalg.eigh(precision)
            scale = vectors / np.sqrt(np.maximum(values, 1e-6 * np.abs(values).max()))
            points += list(mode + rng.normal(size=(_DRAWS_AROUND_A_MODE, potentials.size)) @ scale.T)
    if draws is not None:
        points += list(draws[np.linspace(0, len(draws) - 1, min(len(draws), 24)).astype(int)])
    return np.stack(points)


def _curvatures(potentials: Potentials, points: np.ndarray) -> tuple[float, float, np.ndarray]:
    """The smallest and largest curvature of `U`, and each agent's largest in absolute value, over some points."""
    if potentials.size <= _DENSE:
        hessians = [potentials.hessians(point) for point in points]
        totals = np.array([np.linalg.eigvalsh(hessian.sum(0)) for hessian in hessians])
        each = np.array([np.abs(np.linalg.eigvalsh(hessian)).max(1) for hessian in hessians])
        return float(totals.min()), float(np.abs(totals).max()), each.max(0)
    ends = np.array([[_end(potentials, point, None, which) for which in ("SA", "LA")] for point in points])
    agents = range(potentials.num_agents)
    each = np.array([[abs(_end(potentials, point, i, "LM")) for i in agents] for point in points])
    return float(ends.min()), float(np.abs(ends).max()), each.max(0)


def _end(potentials: Potentials, point: np.ndarray, agent: int | None, which: str) -> float:
    """One end of the spectrum of `∇²U` or of one `∇²U_i`, by Lanczos iteration on Hessian-vector products."""
    from scipy.sparse.linalg import LinearOperator, eigsh

    def times(v: np.ndarray) -> np.ndarray:
        products = potentials.hessian_times(point, v.ravel())
        return products.sum(0) if agent is None else products[agent]

    operator = LinearOperator((potentials.size,) * 2, matvec=times, dtype=float)
    start = np.random.default_rng(0).normal(size=potentials.size)
    return float(eigsh(operator, k=1, which=which, return_eigenvectors=False, v0=start, tol=1e-3)[0])


def _spread(
    potentials: Potentials, lowest: float, highest: float, draws: np.ndarray | None
) -> tuple[Quantity, Quantity]:
    """`ρ_U` and `c_1`."""
    size, centre = potentials.size, potentials.modes[0]
    convex = lowest > 0 and len(potentials.modes) == 1
    if size == 2:
        grid = posterior_grid(potentials)
        moment = float(np.trace(grid.covariance) + ((grid.mean - centre) ** 2).sum())
        if convex:
            return _convex(lowest), Quantity(moment, "estimate", "posterior on a grid")
        gap = grid.spectral_gap()
        return (
            Quantity(gap, "estimate", "spectral gap on a grid, never below ρ_U"),
            Quantity(moment, "estimate", "posterior on a grid"),
        )
    if convex:
        return _convex(lowest), Quantity(size / lowest, "estimate", "d_w/ρ_U, if U is as convex everywhere")
    if draws is None or len(draws) < 2 * size:
        what = "not log-concave" if lowest < -_FLAT * highest else "flat in some direction"
        raise ProblemError(
            f"the posterior is {what} somewhere and has {size} parameters, not 2 that fit on a grid: give at least "
            f"{2 * size} draws from it to estimate its spread"
        )
    covariance = np.atleast_2d(np.cov(draws.T))
    moment = float(((draws - centre) ** 2).sum(1).mean())
    return (
        Quantity(1 / float(np.linalg.eigvalsh(covariance)[-1]), "estimate", "1/largest variance, never below ρ_U"),
        Quantity(moment, "estimate", f"{len(draws)} draws"),
    )


def _convex(lowest: float) -> Quantity:
    return Quantity(lowest, "estimate", "smallest curvature of U over the region, all positive")


@lru_cache(maxsize=4)
def posterior_grid(potentials: Potentials) -> GridPosterior:
    """The posterior of a problem with two parameters on a grid around its modes, as wide as it needs to be."""
    modes = potentials.modes
    variance = np.abs(np.diag(np.linalg.pinv(potentials.hessians(modes[0]).sum(0))))
    low, high, width = modes.min(0), modes.max(0), 5 * np.sqrt(variance)
    for _ in range(_WIDEST):
        try:
            ranges = [(float(low[i] - width[i]), float(high[i] + width[i])) for i in range(2)]
            return GridPosterior.of(potentials.problem, ranges[0], ranges[1], cells=200)
        except ProblemError:
            width = 1.5 * width
    raise ProblemError("the posterior does not fit on a grid: its tails are too heavy")
