"""`kinetic`: underdamped Langevin dynamics by BAOAB, corrected for agents whose data differ.

With `G_i = n ∇U_i(u_i)`, `c = e^{−γ h}`, `ξ_i ~ N(0, I)`, and `Q` the mixing by `K` exchanges,

    v_1 = v − s − h G;    z = c v_1 + sqrt((1 − c²) n T) ξ;    y = u + (h/2)(v_1 + z)
    u⁺ = Q y;    v⁺ = Q z;    s⁺ = s + ½ (z − Q z)

from `v = s = 0`. The message is `(y, z)`. `Σ_i s_i = 0` always; without noise agents rest where `Σ_i ∇U_i = 0`, all
at one place, with `s_i = −h G_i`. On a complete graph agents are equal, and for Gaussian posteriors the variance is
exact for every stable step (`h² Λ < 4`).

A neighbour that knows `u_i` reads the gradient without noise from a message: `y − (h/2) z = u + (h/2) v_1`. Who needs
noise on all that is sent takes `langevin`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field

from consilience.samplers.arrays import exponential, square_root, tree_map
from consilience.samplers.base import Defaults, Leaf, Option
from consilience.samplers.coordinates import Coordinates
from consilience.samplers.corrected import Corrected

_STIFFNESS = 0.45  # h sqrt(Λ); 2 is where BAOAB becomes unstable


class State(NamedTuple):
    """Position `u`, momentum `v` and correction `s` of an agent."""

    position: Any
    momentum: Any
    correction: Any


class Coefficients(NamedTuple):
    """The numbers of one step, the same for every agent."""

    step: Any
    """`h`."""
    drift: Any
    """`h n`, the factor of the gradient."""
    kept: Any
    """`c = e^{−γ h}`, the share of the momentum that friction leaves."""
    deviation: Any
    """`sqrt((1 − c²) n T)`, the standard deviation of the noise."""


class Kinetic(Corrected):
    """Corrected kinetic Langevin sampling; make one with `kinetic(...)`."""

    options: ClassVar[Mapping[str, Option]] = {
        **Corrected.options,
        "friction": Option("Friction, of samplers with momentum.", 0.0),
    }
    state_leaves: ClassVar[Any] = State(Leaf.VECTOR, Leaf.VECTOR, Leaf.VECTOR)
    defaults: ClassVar[Defaults] = Defaults(num_warmup=3000, num_chains=8, store_every=4)
    windows: ClassVar[tuple[int, ...]] = (75, 150, 300)
    further_windows: ClassVar[tuple[int, ...]] = (300, 600, 600, 600)

    kind: Literal["kinetic"] = "kinetic"
    friction: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0

    def init(self, position: Any) -> State:
        """At rest, without a correction."""
        nothing = tree_map(lambda u: 0 * u, position)
        return State(position, nothing, nothing)

    def position(self, state: State) -> Any:
        """Without momentum and correction."""
        return state.position

    def coefficients(self, k: Any, n: int) -> Coefficients:
        """Step size, friction and noise scale of `n` agents; the same in every step."""
        step = self._given_step()
        kept = exponential(-self.friction * step)
        deviation = square_root((1 - kept**2) * self._noise_agents(n) * self.temperature)
        return Coefficients(step, n * step, kept, deviation)

    def share(self, state: State, gradient: Any, coefficients: Coefficients, noise: Any) -> tuple[Any, Any]:
        """Position and momentum after gradient and noise, `(y, z)`."""
        step, drift, kept, deviation = coefficients
        pushed = tree_map(lambda v, s, g: v - s - drift * g, state.momentum, state.correction, gradient)
        momentum = tree_map(lambda v, xi: kept * v + deviation * xi, pushed, noise)
        position = tree_map(lambda u, v, z: u + step / 2 * (v + z), state.position, pushed, momentum)
        return position, momentum

    def step(
        self, state: State, gradient: Any, message: Any, mixed: Any, coefficients: Coefficients, noise: Any
    ) -> State:
        """Both are mixed; the correction grows by half of what mixing took from the momentum."""
        return State(mixed[0], mixed[1], self._grown(state, message, mixed))

    def gained(self, taken: Any) -> Any:
        """Half of the momentum."""
        return tree_map(lambda momentum: momentum / 2, taken[1])

    def describe(self, num_steps: int) -> str:
        """With the friction, if numbers are given for the model's own coordinates."""
        told = super().describe(num_steps)
        return told if self.tunes_itself else f"{told}, friction {self.friction:g}"

    def step_for(self, curvature: float) -> float:
        """`h = 0.45/sqrt(Λ)`."""
        return _STIFFNESS / curvature**0.5

    def independent_share(self, step_size: float) -> float:
        """One in `4/h`."""
        return step_size / 4

    def heating(self, step_size: float, noise: float) -> float:
        """`1 + h² σ² coth(γh/2)/(4 − h²)`, which for small steps is `1 + c² h² σ²/(1 − c²)`.

        The gradient's noise enters before friction, and positions move with the momenta before and after it.

        >>> round(kinetic().heating(0.45, 0.21), 3)
        1.051
        """
        if noise == 0:
            return 1.0
        if step_size >= 2:  # where BAOAB becomes unstable
            return float("inf")
        return float(1 + step_size**2 * noise / np.tanh(self.friction * step_size / 2) / (4 - step_size**2))

    def pattern_step(self, q: float, curvature: float, step_size: float) -> np.ndarray:
        """Of `(u, v, s)`."""
        h, c = step_size, np.exp(-self.friction * step_size)
        pushed = np.array([-h * curvature, 1.0, -1.0])
        position, momentum = np.array([1.0, 0.0, 0.0]) + h / 2 * (1 + c) * pushed, c * pushed
        return np.stack([q * position, q * momentum, np.array([0.0, 0.0, 1.0]) + (1 - q) / 2 * momentum])

    def method(self, num_agents: int) -> str:
        """Corrected kinetic Langevin; with one agent BAOAB, and that without noise descent with momentum."""
        if num_agents > 1:
            return "corrected kinetic Langevin"
        return "BAOAB" if self.temperature > 0 else "gradient descent with momentum"


def kinetic(
    step_size: float | None = None,
    exchanges: int | None = None,
    *,
    friction: float = 1.0,
    temperature: float = 1.0,
    noise: Literal["own", "common"] = "own",
    whitening: Literal["found", "none"] | Coordinates | Mapping[str, Any] = "found",
    control_variates: bool = True,
) -> Kinetic:
    """Corrected kinetic Langevin sampling; with nothing said, a warm-up finds all numbers.

    Args:
        step_size: `h`, in whitened coordinates.
        exchanges: `K`, exchanges with neighbours in a step.
        friction: `γ`.
        temperature: `T`, which multiplies the noise variance.
        noise: each agent its own, or one for all.
        whitening: `"none"` takes the model's own coordinates; with step size and exchanges given there is no warm-up.
            Or the coordinates by hand, `{"centre": …, "scale": …}`; the warm-up then keeps to them.
        control_variates: with minibatches, whether their noise at the warm-up's mean is taken out.

    >>> kinetic().tunes_itself, kinetic(0.1, 2, whitening="none").tunes_itself
    (True, False)
    """
    return Kinetic(
        step_size=step_size, exchanges=exchanges, friction=friction, temperature=temperature, noise=noise,
        whitening=whitening, control_variates=control_variates,
    )  # fmt: skip
