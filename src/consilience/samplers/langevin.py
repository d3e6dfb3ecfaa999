"""`langevin`: overdamped Langevin dynamics, corrected for agents whose data differ (the form of NIDS).

With `G_i = n ∇U_i(u_i)`, `ξ_i ~ N(0, I)`, and `Q` the mixing by `K` exchanges,

    z = u − s − α G + sqrt(2 α n T) ξ;    u⁺ = Q z;    s⁺ = s + ½ (z − Q z)

from `s = 0`. The message is `z`, a position after noise: half of what `kinetic` sends, and nothing in it is without
noise. It needs more steps than `kinetic`. `Σ_i s_i = 0` always; without noise agents rest where `Σ_i ∇U_i = 0`, all
at one place, with `s_i = −α G_i`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from consilience.samplers.arrays import square_root, tree_map
from consilience.samplers.base import Defaults, Leaf
from consilience.samplers.coordinates import Coordinates
from consilience.samplers.corrected import Corrected

_STIFFNESS = 0.05  # α Λ: half of it is about how much too wide the draws are


class State(NamedTuple):
    """Position `u` and correction `s` of an agent."""

    position: Any
    correction: Any


class Coefficients(NamedTuple):
    """The numbers of one step, the same for every agent."""

    drift: Any
    """`α n`, the factor of the gradient."""
    deviation: Any
    """`sqrt(2 α n T)`, the standard deviation of the noise."""


class CorrectedLangevin(Corrected):
    """Corrected overdamped Langevin sampling; make one with `langevin(...)`."""

    state_leaves: ClassVar[Any] = State(Leaf.VECTOR, Leaf.VECTOR)
    defaults: ClassVar[Defaults] = Defaults(num_warmup=15_000, num_chains=8, store_every=16)
    windows: ClassVar[tuple[int, ...]] = (400, 800, 1600)
    further_windows: ClassVar[tuple[int, ...]] = (1600, 3000, 3000, 3000)

    kind: Literal["langevin"] = "langevin"

    def init(self, position: Any) -> State:
        """Without a correction."""
        return State(position, tree_map(lambda u: 0 * u, position))

    def position(self, state: State) -> Any:
        """Without the correction."""
        return state.position

    def coefficients(self, k: Any, n: int) -> Coefficients:
        """Step size and noise scale of `n` agents; the same in every step."""
        step = self._given_step()
        return Coefficients(n * step, square_root(2 * step * self._noise_agents(n) * self.temperature))

    def share(self, state: State, gradient: Any, coefficients: Coefficients, noise: Any) -> Any:
        """The position after gradient and noise, `z`."""
        drift, deviation = coefficients
        return tree_map(
            lambda u, s, g, xi: u - s - drift * g + deviation * xi, state.position, state.correction, gradient, noise
        )

    def step(
        self, state: State, gradient: Any, message: Any, mixed: Any, coefficients: Coefficients, noise: Any
    ) -> State:
        """The correction grows by half of what mixing took."""
        return State(mixed, self._grown(state, message, mixed))

    def gained(self, taken: Any) -> Any:
        """Half of it."""
        return tree_map(lambda position: position / 2, taken)

    def step_for(self, curvature: float) -> float:
        """`α = 0.05/Λ`."""
        return _STIFFNESS / curvature

    def independent_share(self, step_size: float) -> float:
        """One in `2/α`."""
        return step_size / 2

    def heating(self, step_size: float, noise: float) -> float:
        """`1 + α σ²/2`."""
        return 1 + step_size * noise / 2

    def pattern_step(self, q: float, curvature: float, step_size: float) -> np.ndarray:
        """Of `(u, s)`."""
        moved = np.array([1 - step_size * curvature, -1.0])
        return np.stack([q * moved, np.array([0.0, 1.0]) + (1 - q) / 2 * moved])

    def method(self, num_agents: int) -> str:
        """Corrected Langevin; with one agent ULA, and that without noise gradient descent."""
        if num_agents > 1:
            return "corrected Langevin"
        return "ULA" if self.temperature > 0 else "gradient descent"


def langevin(
    step_size: float | None = None,
    exchanges: int | None = None,
    *,
    temperature: float = 1.0,
    noise: Literal["own", "common"] = "own",
    whitening: Literal["found", "none"] | Coordinates | Mapping[str, Any] = "found",
    control_variates: bool = True,
) -> CorrectedLangevin:
    """Corrected overdamped Langevin sampling; with nothing said, a warm-up finds all numbers.

    Args:
        step_size: `α`, in whitened coordinates.
        exchanges: `K`, exchanges with neighbours in a step.
        temperature: `T`, which multiplies the noise variance.
        noise: each agent its own, or one for all.
        whitening: `"none"` takes the model's own coordinates; with step size and exchanges given there is no warm-up.
            Or the coordinates by hand, `{"centre": …, "scale": …}`; the warm-up then keeps to them.
        control_variates: with minibatches, whether their noise at the warm-up's mean is taken out.

    >>> langevin(0.01, 2).method(5)
    'corrected Langevin'
    """
    return CorrectedLangevin(
        step_size=step_size, exchanges=exchanges, temperature=temperature, noise=noise, whitening=whitening,
        control_variates=control_variates,
    )  # fmt: skip
