"""Theorem 2 in closed form: how far the network average is from the posterior at most.

Equation 27, inside Condition 1 and with `a` small enough, for `F_k = KL(p_k ‖ p*)` of the average `w̄`:

    F_{k+1} ≤ (F_0 + C̄_F1) exp(−ρ_U Σ_{l≤k} α_l) + n^{2−γ} C̄_F2 (k+1)^{−(δ_2−2δ_1)}
              + C̄_F3 exp(−ρ_U a (k+1)^{1−δ_2}/(1−δ_2)).

The paper writes its constants with `C_a` and `n^γ`; as `a = C_a^{1/3}/n^γ` (26), here they contain `a` itself.

Everything is measured from a stationary point `w*` of `U`, as in the paper.

`docs/explanation/paper-edges.md` says what was done about the paper's slips.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from consilience.errors import ConditionError
from consilience.theory.consensus_bound import ConsensusBound
from consilience.theory.magnitudes import Magnitude, largest, sum_from_above

_COUNTED = 10**6


class TheoremInputs(NamedTuple):
    """What Theorem 2 needs to know about a posterior and about where the network starts.

    Attributes:
        smoothness: `L = max_i L_i`, Lipschitz constant of the agents' gradients.
        total_smoothness: `L̄`, Lipschitz constant of `∇U`.
        coupling: `C_ζ` with `‖ζ‖² ≤ C_ζ ‖w̃‖²`. The paper takes `L²`; what always holds is `Σ_i L_i²`.
        log_sobolev: `ρ_U`.
        second_moment: `c_1 = E‖w − w*‖²` under the posterior.
        initial_moment: `E‖w̄_0 − w*‖²`.
        initial_divergence: `F_0 = KL(p_0 ‖ p*)`, which is also `c_2`.
    """

    smoothness: float
    total_smoothness: float
    coupling: float
    log_sobolev: float
    second_moment: float
    initial_moment: float
    initial_divergence: float


def largest_step_scale(inputs: TheoremInputs, num_agents: int, step_exponent: float) -> float:
    """The largest `a` that Theorem 2 allows: `C_a^{1/3}/n^γ` for `γ = 2` (26; it asks for `γ > 2`)."""
    return float(step_constant(inputs, step_exponent)) ** (1 / 3) / num_agents**2


def step_constant(inputs: TheoremInputs, step_exponent: float) -> float:
    """`C_a = ρ_U (3δ_2 − 1)/(25 L⁴ δ_2)` (S230)."""
    return inputs.log_sobolev * (3 * step_exponent - 1) / (25 * inputs.smoothness**4 * step_exponent)


@dataclass(frozen=True)
class DivergenceBound:
    """The closed form of Theorem 2.

    Attributes:
        consensus: Theorem 1's bound for the same network.
        inputs: constants of the posterior and the start.
    """

    consensus: ConsensusBound
    inputs: TheoremInputs

    def __post_init__(self) -> None:
        s, limit = self.consensus.setting, self._scale_limit
        if not s.step_scale < limit:
            raise ConditionError(
                f"γ > 2 in a = C_a^(1/3)/n^γ does not hold: a = {s.step_scale:.4g}, must be below {limit:.4g} "
                f"for {s.num_agents} agents and δ_2 = {s.step_exponent:g}; take a smaller step size"
            )

    @property
    def agent_power(self) -> Magnitude:
        """`n^γ = C_a^{1/3}/a` (26)."""
        s = self.consensus.setting
        return Magnitude.of(step_constant(self.inputs, s.step_exponent)) ** (1 / 3) / s.step_scale

    @property
    def speed_up_exponent(self) -> float:
        """`γ`, which the choice of `a` implies; infinite in effect for a single agent."""
        n = self.consensus.setting.num_agents
        return float(self.agent_power.log) / math.log(n) if n > 1 else math.inf

    @property
    def summed_disturbance(self) -> Magnitude:
        """`d_1 ≥ Σ_k (2α_k³ L̄² C_ζ + C_ζ α_k) E‖w̃_k‖² + 2α_k² L̄² d_w` (S264), from Theorem 1's bound."""
        from scipy.special import gamma, zeta

        s, c = self.consensus.setting, self.consensus
        noise = 2 * s.step_scale**2 * self.inputs.total_smoothness**2 * s.dimension * zeta(2 * s.step_exponent)
        if s.num_agents == 1:
            return Magnitude.of(noise)
        power = 1 - s.consensus_exponent
        early = c.exponential_scale * (c.exponential_rate ** (-1 / power) * gamma(1 / power) / power)
        late = c.polynomial_scale * zeta(2 * s.step_exponent - 2 * s.consensus_exponent)
        return self._coupled_step * (early + late + c.initial_error) + noise

    @property
    def moment_bound(self) -> Magnitude:
        """`C_w̄ = max{E‖w̄_0‖², (2c_1 + 4(c_2 + d_1)/ρ_U)/(1 − 24 n⁴ L⁴ δ_2 a³/(ρ_U(3δ_2−1)))}` (S231)."""
        s, t = self.consensus.setting, self.inputs
        shrunk = 24 * s.num_agents**4 * t.smoothness**4 * s.step_exponent * s.step_scale**3
        room = 1 - shrunk / (t.log_sobolev * (3 * s.step_exponent - 1))
        later = (self.summed_disturbance + t.initial_divergence) * (4 / t.log_sobolev) + 2 * t.second_moment
        return largest(t.initial_moment, later / room)

    @property
    def disturbance_scale(self) -> Magnitude:
        """`C_ξ = a (2a² L̄⁴ C_w̄ + 2a² L̄² C_ζ W_2 + C_ζ W_2 + 2a L̄² d_w)` (S228)."""
        return self._disturbance(self.consensus.polynomial_scale) * self.consensus.setting.step_scale

    @property
    def consensus_scale(self) -> Magnitude:
        """`C̄_W2 = n^{γ−2} W_2` (S220). The list of constants (S232) drops `(1 − b λ_2)^{−½}` from it."""
        c, n = self.consensus, self.consensus.setting.num_agents
        scale = c.polynomial_scale * self.agent_power / n**2
        if not c.as_printed or n == 1:
            return scale
        s = c.setting
        noise, uneven = 2 * s.dimension, s.step_scale * n * c.gradient_disagreement
        return scale * ((noise + uneven) / (noise / math.sqrt(1 - s.contraction) + uneven))

    @property
    def decay_scale(self) -> Magnitude:
        """`C_ρ = 2(δ_2−δ_1)/(ρ_U δ_2) · exp(ρ_U a 2^{1−δ_2}/(1−δ_2))` (S229)."""
        s = self.consensus.setting
        factor = 2 * (s.step_exponent - s.consensus_exponent) / (self.inputs.log_sobolev * s.step_exponent)
        return Magnitude.exp(self._clock_rate * 2 ** (1 - s.step_exponent)) * factor

    @property
    def split(self) -> Magnitude:
        """`k̆ = ⌈(2(δ_2−δ_1)/(ρ_U a))^{1/(1−δ_2)}⌉` (S224)."""
        s = self.consensus.setting
        ratio = 2 * (s.step_exponent - s.consensus_exponent) / (self.inputs.log_sobolev * s.step_scale)
        return _ceiling(Magnitude.of(ratio) ** (1 / (1 - s.step_exponent)))

    @property
    def early_scale(self) -> Magnitude:
        """`C̄_F1 = Σ_{l=0}^{k̆} C_ξ e^{ρ_U a} exp(ρ_U a l^{1−δ_2}/(1−δ_2)) l^{−2(δ_2−δ_1)}` (S224).

        The term `l = 0`, printed with a division by zero, is `C_ξ e^{ρ_U a}`: at the first step `α_0 = a` and the
        disturbance is at most `C_ξ` plus what `C̄_F3` counts.
        """
        s = self.consensus.setting
        fall, power = 2 * (s.step_exponent - s.consensus_exponent), 1 - s.step_exponent

        def log_term(log_place: np.ndarray) -> np.ndarray:
            return self._clock_rate * np.exp(power * log_place) - fall * log_place

        first = Magnitude.exp(self.inputs.log_sobolev * s.step_scale) * self.disturbance_scale
        return first * (sum_from_above(log_term, self.split) + 1)

    @property
    def late_scale(self) -> Magnitude:
        """`C̄_F2 = C_ρ (2a² L̄⁴ C_w̄ n^{γ−2} + 2a² L̄² C_ζ C̄_W2 + C_ζ C̄_W2 + 2a L̄² d_w n^{γ−2})` (S225)."""
        lifted = self.agent_power / self.consensus.setting.num_agents**2
        return self._disturbance(self.consensus_scale / lifted) * lifted * self.decay_scale

    @property
    def place(self) -> int:
        """`l̆`, the first index from which the initial disagreement dies out faster than the average forgets (S227).

        The paper rounds up, which leaves next to nothing of `κ` where `l̆` is large, and nothing where it is whole
        before. Here it is the next whole number, or, where that leaves less than a hundredth of `W_1`, the index from
        which `κ ≥ W_1/2`.
        """
        s, rate = self.consensus.setting, self.consensus.exponential_rate
        ratio, power = self._clock_rate / rate, 1 / (s.step_exponent - s.consensus_exponent)
        place = math.floor(ratio**power) + 1
        enough = 1 - ratio * place ** (-1 / power) > 0.01
        return place if enough else math.ceil((2 * ratio) ** power)

    @property
    def margin(self) -> float:
        """`κ = W_1 − ρ_U a l̆^{δ_1−δ_2}/(1−δ_2)` (S227)."""
        s = self.consensus.setting
        slowed = self._clock_rate * self.place ** (s.consensus_exponent - s.step_exponent)
        return self.consensus.exponential_rate - slowed

    @property
    def transient_scale(self) -> Magnitude:
        """`C̄_F3 = W_3 (2a³ L̄² C_ζ + C_ζ a) e^{ρ_U a (2−δ_2)/(1−δ_2)} (Σ_{l=0}^{l̆} … + κ^{−q} q Γ(q))` (S226).

        The sum is over `exp(ρ_U a l^{1−δ_2}/(1−δ_2) − W_1 l^{1−δ_1})`, and `q = 1/(1−δ_1)`.
        """
        from scipy.special import gamma

        s, c = self.consensus.setting, self.consensus
        if s.num_agents == 1:
            return Magnitude.of(0.0)
        rise, fall = 1 - s.step_exponent, 1 - s.consensus_exponent

        def log_term(log_place: np.ndarray) -> np.ndarray:
            return self._clock_rate * np.exp(rise * log_place) - c.exponential_rate * np.exp(fall * log_place)

        turn = (self._clock_rate * rise / (c.exponential_rate * fall)) ** (1 / (fall - rise))
        q = 1 / fall
        tail = Magnitude.of(self.margin) ** -q * (q * gamma(q))
        growth = Magnitude.exp(self.inputs.log_sobolev * s.step_scale * (2 - s.step_exponent) / rise)
        return (
            c.exponential_scale
            * self._coupled_step
            * growth
            * (sum_from_above(log_term, self.place, turn) + 1 + tail)
        )

    def initial_term(self, steps: Any) -> Magnitude:
        """`(F_0 + C̄_F1) exp(−ρ_U Σ_{l<k} α_l)`, the first term of the bound after `k ≥ 1` steps."""
        return (self.early_scale + self.inputs.initial_divergence) * Magnitude.exp(
            -self.inputs.log_sobolev * self._elapsed(np.asarray(steps))
        )

    def polynomial_term(self, steps: Any) -> Magnitude:
        """`n^{2−γ} C̄_F2 k^{−(δ_2−2δ_1)}`, the second term of the bound after `k ≥ 1` steps."""
        s = self.consensus.setting
        scale = self.late_scale / self.agent_power * s.num_agents**2
        return scale * Magnitude.of(np.asarray(steps, float)) ** -s.rate

    def transient_term(self, steps: Any) -> Magnitude:
        """`C̄_F3 exp(−ρ_U a k^{1−δ_2}/(1−δ_2))`, the third term of the bound after `k ≥ 1` steps."""
        clock = np.asarray(steps, float) ** (1 - self.consensus.setting.step_exponent)
        return self.transient_scale * Magnitude.exp(-self._clock_rate * clock)

    def __call__(self, steps: Any) -> Magnitude:
        """The bound on `KL(p_k ‖ p*)` after `k ≥ 1` steps (27)."""
        return self.initial_term(steps) + self.polynomial_term(steps) + self.transient_term(steps)

    @property
    def _scale_limit(self) -> float:
        s = self.consensus.setting
        limit = largest_step_scale(self.inputs, s.num_agents, s.step_exponent)
        return math.nextafter(limit, math.inf) if s.num_agents == 1 else limit

    @property
    def _coupled_step(self) -> float:
        """`2a³ L̄² C_ζ + C_ζ a`."""
        t, a = self.inputs, self.consensus.setting.step_scale
        return t.coupling * (2 * a**3 * t.total_smoothness**2 + a)

    @property
    def _clock_rate(self) -> float:
        """`ρ_U a/(1−δ_2)`."""
        s = self.consensus.setting
        return self.inputs.log_sobolev * s.step_scale / (1 - s.step_exponent)

    def _disturbance(self, disagreement: Magnitude) -> Magnitude:
        s, t = self.consensus.setting, self.inputs
        a, steep = s.step_scale, t.total_smoothness**2
        return (
            self.moment_bound * (2 * a**2 * steep**2)
            + disagreement * (t.coupling * (2 * a**2 * steep + 1))
            + 2 * a * steep * s.dimension
        )

    def _elapsed(self, steps: np.ndarray) -> np.ndarray:
        """`Σ_{l<k} α_l`: exactly for steps that can be counted, from below otherwise."""
        s = self.consensus.setting
        power = 1 - s.step_exponent
        below = s.step_scale / power * ((np.asarray(steps, float)) ** power - 1)
        countable = np.minimum(steps, _COUNTED).astype(int)
        sums = s.step_scale * np.cumsum(np.arange(1, countable.max() + 1) ** -s.step_exponent)
        return np.where(steps <= _COUNTED, sums[countable - 1], below)


def _ceiling(value: Magnitude) -> Magnitude:
    return Magnitude.of(math.ceil(float(value))) if value.log < 30 else value
