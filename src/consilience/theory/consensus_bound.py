"""Theorem 1 in closed form: how far apart the agents are at most.

Equation 25, inside Condition 1:

    E‖w̃_{k+1}‖² ≤ W_3 exp(−W_1 (k+1)^{1−δ_1}) + W_2 (k+1)^{−(δ_2−2δ_1)}.

`docs/explanation/paper-edges.md` says what was done about the paper's slips.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from consilience.errors import ConditionError
from consilience.theory.conditions import Setting
from consilience.theory.magnitudes import Magnitude, sum_from_above


@dataclass(frozen=True)
class ConsensusBound:
    """The closed form of Theorem 1.

    Attributes:
        setting: network and schedules, inside Condition 1.
        gradient_disagreement: `μ_g` of Assumption 3, `E‖g̃_k‖² ≤ n μ_g (k+1)^δ_2`.
        initial_error: `E‖w̃_0‖²`.
        as_printed: use the paper's formulas to the letter, slips included.
    """

    setting: Setting
    gradient_disagreement: float
    initial_error: float
    as_printed: bool = False

    def __post_init__(self) -> None:
        if self.as_printed and self.setting.consensus_exponent == 0:
            raise ConditionError("W_2 as printed has δ_1 in its denominator and δ_1 is 0: leave as_printed out")

    @property
    def exponential_rate(self) -> float:
        """`W_1 = b λ_2/(1 − δ_1)` (S87): how fast the initial disagreement dies out."""
        return self.setting.contraction / (1 - self.setting.consensus_exponent)

    @property
    def split(self) -> int:
        """`k̄ = ⌈(m (δ_2−δ_1)/(b λ_2))^{1/(1−δ_1)}⌉` (S90), before which the early terms are summed one by one.

        The paper has `m = 1`. For `δ_1 = 0` that leaves nothing to divide by in `W_2`; with `m = 2` the proof of the
        underlying lemma (S16) goes through unchanged.
        """
        s = self.setting
        if s.num_agents == 1:
            return 0
        ratio = self._margin * (s.step_exponent - s.consensus_exponent) / s.contraction
        return math.ceil(ratio ** (1 / (1 - s.consensus_exponent)))

    @property
    def forcing(self) -> float:
        """`μ_ζ = 2 n² a/(b λ_2) · (2 d_w (1 − b λ_2)^{−½} + a n μ_g)` (S85): noise and unequal gradients."""
        s = self.setting
        n, a = s.num_agents, s.step_scale
        noise = 2 * s.dimension / math.sqrt(1 - s.contraction)
        return 2 * n**2 * a / s.contraction * (noise + a * n * self.gradient_disagreement)

    @property
    def polynomial_scale(self) -> Magnitude:
        """`W_2 = μ_ζ/(b λ_2) · m(δ_2−δ_1)/(m(δ_2−δ_1) − (δ_2−2δ_1)) · exp(W_1 2^{1−δ_1})` (S88).

        With the paper's `m = 1` the fraction is `(δ_2−δ_1)/δ_1`.
        """
        s = self.setting
        if s.num_agents == 1:
            return Magnitude.of(0.0)
        fall = s.step_exponent - s.consensus_exponent  # δ_4 of the lemma
        fraction = self._margin * fall / (self._margin * fall - s.rate)
        growth = Magnitude.exp(self.exponential_rate * 2 ** (1 - s.consensus_exponent))
        return growth * (self.forcing / s.contraction * fraction)

    @property
    def exponential_scale(self) -> Magnitude:
        """`W_3 = e^{W_1} (E‖w̃_0‖² + μ_ζ Σ_{l=0}^{k̄} (1−b λ_2)^{−(l+1)} (l+1)^{−(δ_2−δ_1)})` (S89).

        The paper prints the exponent `l`, but `∏_{i=0}^{l} (1−β_i)` has `l + 1` factors.
        """
        s = self.setting
        if s.num_agents == 1:
            return Magnitude.of(0.0)
        per_factor, fall = -math.log1p(-s.contraction), s.step_exponent - s.consensus_exponent
        factors = 0 if self.as_printed else 1

        def log_term(log_place: np.ndarray) -> np.ndarray:
            return per_factor * (np.exp(log_place) - 1 + factors) - fall * log_place

        early = sum_from_above(log_term, self.split + 1) * self.forcing
        return Magnitude.exp(self.exponential_rate) * (early + self.initial_error)

    @property
    def rate_scale(self) -> Magnitude:
        """`W_4 = W_3 e^{−p} ((δ_2−2δ_1)/(b λ_2))^p`, `p = (δ_2−2δ_1)/(1−δ_1)` (S95), for the pure rate."""
        s = self.setting
        if s.num_agents == 1:
            return Magnitude.of(0.0)
        power = s.rate / (1 - s.consensus_exponent)
        return self.exponential_scale * Magnitude.exp(-power) * Magnitude.of(s.rate / s.contraction) ** power

    def exponential_term(self, steps: Any) -> Magnitude:
        """`W_3 exp(−W_1 k^{1−δ_1})`, the first term of the bound after `k ≥ 1` steps."""
        clock = np.asarray(steps, float) ** (1 - self.setting.consensus_exponent)
        return self.exponential_scale * Magnitude.exp(-self.exponential_rate * clock)

    def polynomial_term(self, steps: Any) -> Magnitude:
        """`W_2 k^{−(δ_2−2δ_1)}`, the second term of the bound after `k ≥ 1` steps."""
        return self.polynomial_scale * Magnitude.of(np.asarray(steps, float)) ** -self.setting.rate

    def __call__(self, steps: Any) -> Magnitude:
        """The bound on `E‖w̃_k‖²` after `k ≥ 1` steps (25)."""
        return self.exponential_term(steps) + self.polynomial_term(steps)

    def at_rate(self, steps: Any) -> Magnitude:
        """`(W_2 + W_4) k^{−(δ_2−2δ_1)}` (S96): larger than the bound, with its rate plain to see."""
        scale = self.polynomial_scale + self.rate_scale
        return scale * Magnitude.of(np.asarray(steps, float)) ** -self.setting.rate

    @property
    def _margin(self) -> float:
        return 1.0 if self.setting.consensus_exponent > 0 else 2.0
