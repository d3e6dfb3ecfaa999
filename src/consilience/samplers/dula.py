"""D-ULA, the decentralized unadjusted Langevin algorithm (the paper's equation 8 and Algorithm 1).

    w_i ← w_i − β_k Σ_j a_ij (w_i − w_j) − α_k n ∇U_i(w_i) + sqrt(2 α_k T) v_i,    v_i ~ N(0, n I)

with `T` the temperature: 1 samples the posterior, 0 is (stochastic) gradient descent with consensus. With
`n = 1` it is the centralized ULA. The noise has variance `n`, as the gradient has the factor `n`: then the
average over agents follows ULA on `U = Σ U_i` with unit noise.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from pydantic import Field

from consilience.schedules import ScheduleLike
from consilience.validation import Record


class Coefficients(NamedTuple):
    """The numbers of one step, the same for every agent."""

    drift: jax.Array
    """`α_k n`, the factor of the gradient."""
    pull: jax.Array
    """`β_k`, the factor of the disagreement."""
    deviation: jax.Array
    """`sqrt(2 α_k n T)`, the standard deviation of the noise."""


class DULA(Record):
    """Decentralized unadjusted Langevin algorithm; make one with `dula(...)`."""

    kind: Literal["dula"] = "dula"
    step_size: ScheduleLike
    consensus: ScheduleLike
    temperature: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0

    def init(self, position: Any) -> Any:
        """The state is the position itself."""
        return position

    def share(self, state: Any) -> Any:
        """An agent tells its neighbours where it is."""
        return state

    def coefficients(self, k: Any, n: int) -> Coefficients:
        """Step sizes and noise scale of step `k` of `n` agents."""
        drift = n * self.step_size(k)
        return Coefficients(drift, self.consensus(k), jnp.sqrt(2 * self.temperature * drift))

    def step(self, state: Any, gradient: Any, disagreement: Any, coefficients: Coefficients, noise: Any) -> Any:
        """All right-hand sides belong to step `k`."""
        drift, pull, deviation = coefficients
        return jax.tree.map(
            lambda w, g, d, v: w - pull * d - drift * g + deviation * v, state, gradient, disagreement, noise
        )

    def position(self, state: Any) -> Any:
        """The state is the position itself."""
        return state


def dula(step_size: Any, consensus: Any, temperature: float = 1.0) -> DULA:
    """D-ULA with the given schedules; a plain number stands for a constant schedule.

    Args:
        step_size: `α_k`, a schedule or a number.
        consensus: `β_k`, a schedule or a number.
        temperature: `T`, which multiplies the noise variance.

    >>> dula(step_size=1e-3, consensus=0.3).temperature
    1.0
    """
    return DULA(step_size=step_size, consensus=consensus, temperature=temperature)
