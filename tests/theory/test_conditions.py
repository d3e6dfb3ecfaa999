"""Outside the conditions there is an error that names the condition; at their edges nothing is singular."""

import math

import numpy as np
import pytest

import consilience as cs
from consilience.errors import ConditionError
from consilience.theory import (
    ConsensusBound,
    DivergenceBound,
    Magnitude,
    Setting,
    TheoremInputs,
    largest_step_scale,
    steps_needed,
    unmet_conditions,
)

INPUTS = TheoremInputs(
    smoothness=1.0, total_smoothness=3.0, coupling=5.0, log_sobolev=2.0, second_moment=1.0, initial_moment=1.0,
    initial_divergence=1.0,
)  # fmt: skip


def sampler(a=1e-3, delta_2=0.7, b=0.2, delta_1=0.1, **entries):
    return cs.dula(cs.Polynomial(scale=a, exponent=delta_2), cs.Polynomial(scale=b, exponent=delta_1), **entries)


OUTSIDE = {
    "exponents on the border": (sampler(delta_1=0.05, delta_2=0.55), "1/2 \\+ δ_1 < δ_2 does not hold"),
    "step size falls too fast": (sampler(delta_2=1.0), "δ_2 < 1 does not hold"),
    "constant step size": (cs.dula(1e-3, 0.2), "1/2 \\+ δ_1 < δ_2 does not hold"),
    "consensus step too large": (sampler(b=0.3), "b σ_max\\(L\\) < 1 does not hold: b = 0.3"),
    "offset": (
        cs.dula(cs.Polynomial(scale=1e-3, offset=230, exponent=0.7), 0.2),
        "α_k = a/\\(k\\+1\\)\\^δ_2 does not hold: the offset is 230",
    ),
    "temperature": (sampler(temperature=0.5), "the temperature 0.5 instead of n"),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_each_condition_is_named(name):
    outside, message = OUTSIDE[name]
    with pytest.raises(ConditionError, match=message):
        Setting.of(cs.graphs.ring(5), outside, 2)
    assert len(unmet_conditions(cs.graphs.ring(5), outside)) == 1


def bound(inputs=INPUTS, graph=None, share=0.9, delta_1=0.1, delta_2=0.7, as_printed=False, **more):
    graph = graph or cs.graphs.ring(5)
    a = share * largest_step_scale(inputs, graph.num_agents, delta_2)
    inside = sampler(a, delta_2, 0.9 * min(1.0, graph.proven_consensus_limit), delta_1)
    consensus = ConsensusBound(Setting.of(graph, inside, 2), 1.0, 1.0, as_printed)
    return DivergenceBound(consensus, inputs)


@pytest.mark.parametrize("share", [1.0, 1.5])
def test_a_step_too_large_for_theorem_2_is_refused(share):
    with pytest.raises(ConditionError, match=r"γ > 2 .* does not hold"):
        bound(share=share)


@pytest.mark.parametrize("tolerance", [0.0, 1.0, -0.1])
def test_the_tolerance_lies_between_0_and_1(tolerance):
    with pytest.raises(ConditionError, match="tolerance"):
        steps_needed(bound(), tolerance)


def test_theorem_2_holds_the_divergence_below_the_tolerance_from_the_step_of_corollary_1():
    found = bound()
    for tolerance in (0.5, 0.01):
        k = math.ceil(float(steps_needed(found, tolerance)))
        assert float(found(np.array(k))) <= tolerance
        assert float(found(np.array(k // 100))) > tolerance


def test_the_step_scale_determines_gamma():
    found = bound(share=0.5)
    assert found.speed_up_exponent == pytest.approx(2 - math.log(0.5) / math.log(5))
    setting = found.consensus.setting
    c_a = INPUTS.log_sobolev * (3 * 0.7 - 1) / (25 * INPUTS.smoothness**4 * 0.7)
    assert setting.step_scale == pytest.approx(c_a ** (1 / 3) / 5**found.speed_up_exponent)


def test_without_a_falling_consensus_step_the_printed_constant_is_refused_and_ours_is_finite():
    with pytest.raises(ConditionError, match="δ_1 in its denominator"):
        bound(delta_1=0.0, as_printed=True)
    at_zero, near = bound(delta_1=0.0), bound(delta_1=1e-6)
    assert at_zero.consensus.polynomial_scale < near.consensus.polynomial_scale / 1e4
    assert np.isfinite(at_zero(np.array([1, 10**6])).log).all()


def test_constants_that_no_float_holds_stay_finite():
    slow = bound(graph=cs.graphs.path(600), delta_1=0.4, delta_2=0.95)
    assert slow.consensus.exponential_scale.log > 1000
    flat = INPUTS._replace(log_sobolev=1e-6, smoothness=50.0, total_smoothness=200.0)
    steep = bound(flat, delta_2=0.98, delta_1=0.01)
    for found in (slow, steep):
        values = [
            found.summed_disturbance, found.moment_bound, found.disturbance_scale, found.consensus_scale,
            found.decay_scale, found.split, found.early_scale, found.late_scale, found.transient_scale,
            found.consensus.polynomial_scale, found.consensus.rate_scale, steps_needed(found, 0.1),
            found(np.array(10**6)),
        ]  # fmt: skip
        assert all(np.isfinite(value.log) for value in values)
    assert steps_needed(steep, 0.1).log10 > 308
    assert steep.split.log10 > 308


def test_the_printed_constants_differ_where_the_documentation_says():
    ours, printed = bound(), bound(as_printed=True)
    shrink = 1 - ours.consensus.setting.contraction
    assert float(printed.consensus.exponential_scale) < float(ours.consensus.exponential_scale)

    def early(found):
        return float(found.consensus.exponential_scale) / math.exp(found.consensus.exponential_rate) - 1.0

    assert early(printed) / early(ours) == pytest.approx(shrink)  # one factor (1 − b λ_2) in every term
    assert float(printed.consensus_scale) < float(ours.consensus_scale)
    assert float(ours.consensus_scale) == pytest.approx(
        float(ours.consensus.polynomial_scale) * 5 ** (ours.speed_up_exponent - 2)
    )


def test_a_single_agent_has_nothing_to_agree_on():
    alone = bound(graph=cs.graphs.ring(1))
    assert str(alone.consensus.polynomial_scale) == str(alone.transient_scale) == "0"
    assert np.isfinite(alone(np.array([1, 100])).log).all()


def test_constants_by_hand():
    found = bound().consensus
    graph, a, b = cs.graphs.ring(5), found.setting.step_scale, 0.9 * cs.graphs.ring(5).proven_consensus_limit
    mu = b * graph.algebraic_connectivity
    zeta = 2 * 25 * a / mu * (2 * 2 / math.sqrt(1 - mu) + 5 * a)
    assert found.exponential_rate == pytest.approx(mu / 0.9)
    assert found.split == math.ceil((0.6 / mu) ** (1 / 0.9))
    assert float(found.polynomial_scale) == pytest.approx(zeta * 0.6 / (mu * 0.1) * math.exp(mu / 0.9 * 2**0.9))
    early = sum((1 - mu) ** -j * j**-0.6 for j in range(1, found.split + 2))
    assert float(found.exponential_scale) == pytest.approx(math.exp(mu / 0.9) * (1 + zeta * early))


def test_the_margin_does_not_vanish_where_agreement_is_slow():
    """With `l̆` in the millions the printed `κ` is rounding; here it is half of `W_1`."""
    graph = cs.graphs.path(1500)
    slow = INPUTS._replace(log_sobolev=1e7, smoothness=1e-3)
    a = 0.5 * largest_step_scale(slow, 1500, 0.7)
    setting = Setting.of(graph, sampler(a, 0.7, 1e-6, 0.19), 2)
    found = DivergenceBound(ConsensusBound(setting, 1.0, 1.0), slow)
    assert found.place > 1e6
    assert found.margin >= 0.4 * found.consensus.exponential_rate
    assert np.isfinite(found.transient_scale.log)


def test_whole_numbers_that_no_float_holds_are_magnitudes_too():
    assert Magnitude.of(10**400).log10 == pytest.approx(400)
