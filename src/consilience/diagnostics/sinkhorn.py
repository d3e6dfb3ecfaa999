"""The Sinkhorn distance between two sets of draws, as the paper measures it (Cuturi, 2013).

It is the transport cost `⟨P, C⟩` of the entropy-regularised optimal plan `P` between the two sets, with Euclidean
cost `C` and regularisation `λ = 0.1`, by OTT. Two sets of draws from the very same distribution do not score 0:
the regularisation blurs the plan, and finite sets differ. Always show that floor beside a result.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np

from consilience.errors import InputError
from consilience.kernel.quickly import compiled_quickly

REGULARISATION = 0.1
_MOST_ITERATIONS = 10_000


def sinkhorn_distance(first: np.ndarray, second: np.ndarray, regularisation: float = REGULARISATION) -> float:
    """The Sinkhorn distance between draws `(m, size)` and `(n, size)`, equally weighted."""
    return sinkhorn_distances([first], second, regularisation)[0]


def sinkhorn_distances(
    several: Sequence[np.ndarray], reference: np.ndarray, regularisation: float = REGULARISATION
) -> list[float]:
    """The Sinkhorn distance of each of several sets of draws to one, on as many cores as there are."""
    first, *others = several
    found = [_distance(first, reference, regularisation)]  # alone: it compiles
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        return found + list(threads.map(lambda one: _distance(one, reference, regularisation), others))


def _distance(first: np.ndarray, second: np.ndarray, regularisation: float) -> float:
    """As products with a matrix, or where that leaves the range of numbers, as far points do, in logarithms."""
    first, second = (np.asarray(draws, np.float32).reshape(len(draws), -1) for draws in (first, second))
    import jax

    for in_logarithms in (False, True):
        with jax.enable_x64(False):  # as in the thread that compiles, so in the others
            cost, converged = _solver(in_logarithms)(first, second, regularisation)
        if bool(converged):
            return float(cost)
    raise InputError(
        f"the Sinkhorn iteration did not converge with regularisation {regularisation:g}: use a larger one, or "
        "rescale the parameters"
    )


@cache
def _solver(in_logarithms: bool) -> Any:
    """The compiled solver; in logarithms an iteration takes twice the time."""
    import jax
    from ott.geometry import costs, pointcloud
    from ott.solvers import linear
    from ott.solvers.linear.acceleration import Momentum

    def solve(first: jax.Array, second: jax.Array, regularisation: float) -> Any:
        geometry = pointcloud.PointCloud(first, second, cost_fn=costs.Euclidean(), epsilon=regularisation)
        output = linear.solve(
            geometry,
            max_iterations=_MOST_ITERATIONS,
            threshold=1e-3,  # of the marginals; the distance itself is then right to four digits
            lse_mode=in_logarithms,
            momentum=Momentum(value=1.5),  # type: ignore[call-arg]  # over-relaxation: a third of the iterations
        )
        return output.primal_cost, output.converged

    return jax.jit(solve) if in_logarithms else compiled_quickly(solve, same_bits=True)
