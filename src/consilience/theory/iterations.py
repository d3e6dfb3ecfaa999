"""Corollary 1: how many steps until the divergence is below a tolerance.

From Theorem 2, `F_k ≤ Q_1 exp(−ρ_U a k^{1−δ_2}/(1−δ_2)) + Q_2 k^{−(δ_2−2δ_1)}`; both terms are at most `ε/2` from

    k* = max{ ((1−δ_2)/(a ρ_U) · log(2Q_1/ε))^{1/(1−δ_2)},  (2Q_2/ε)^{1/(δ_2−2δ_1)} }.
"""

from __future__ import annotations

import math

import numpy as np

from consilience.errors import ConditionError
from consilience.theory.divergence_bound import DivergenceBound
from consilience.theory.magnitudes import Magnitude, largest


def exponential_total(bound: DivergenceBound) -> Magnitude:
    """`Q_1 = (F_0 + C̄_F1) exp(a ρ_U/(1−δ_2)) + C̄_F3` (S275)."""
    s = bound.consensus.setting
    shift = bound.inputs.log_sobolev * s.step_scale / (1 - s.step_exponent)
    return (bound.early_scale + bound.inputs.initial_divergence) * Magnitude.exp(shift) + bound.transient_scale


def polynomial_total(bound: DivergenceBound) -> Magnitude:
    """`Q_2 = C̄_F2/n^{γ−2}` (S276)."""
    return bound.late_scale / bound.agent_power * bound.consensus.setting.num_agents**2


def steps_needed(bound: DivergenceBound, tolerance: float) -> Magnitude:
    """`k*` (S284): from here on Theorem 2 holds the divergence below the tolerance `0 < ε < 1`."""
    require_tolerance(tolerance)
    s = bound.consensus.setting
    log_ratio = max(0.0, float((exponential_total(bound) * (2 / tolerance)).log))
    rate = s.step_scale * bound.inputs.log_sobolev / (1 - s.step_exponent)
    forgetting = Magnitude.of(log_ratio / rate) ** (1 / (1 - s.step_exponent))
    settling = (polynomial_total(bound) * (2 / tolerance)) ** (1 / s.rate)
    return largest(forgetting, settling)


def require_tolerance(tolerance: float) -> None:
    """Check that a tolerance is one: `0 < ε < 1`."""
    if not 0 < tolerance < 1:
        raise ConditionError(f"the tolerance ε must lie between 0 and 1, got {tolerance:g}")


def settled_step(values: Magnitude | np.ndarray, tolerance: float) -> int | None:
    """The first index from which a sequence stays at or below the tolerance; `None` if its end is above.

    >>> settled_step(np.array([3.0, 0.5, 2.0, 0.9, 0.1]), 1.0)
    3
    """
    above = np.flatnonzero(Magnitude.of(values).log > math.log(tolerance))
    if above.size == 0:
        return 0
    last = int(above[-1])
    return None if last == len(Magnitude.of(values).log) - 1 else last + 1
