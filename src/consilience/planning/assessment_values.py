"""An assessment in plain values: the rows of its tables and the points of its curves, as `theory.json` holds them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from consilience.planning.assessments import Assessment
from consilience.plans import Plan
from consilience.theory import (
    Magnitude,
    exponential_total,
    late_rate,
    polynomial_total,
    promised_rates,
    require_dula,
    settled_step,
    step_constant,
    steps_needed,
)

TOLERANCE = 0.1
"""What the divergence should fall below, in nats, unless somebody says otherwise."""
_POINTS = 240


def described(assessment: Assessment, tolerance: float, comparisons: Sequence[Any] = ()) -> dict[str, Any]:
    """Everything that pages, tables and other programs need of an assessment.

    Args:
        assessment: of a plan.
        tolerance: `ε`, for the number of steps.
        comparisons: with other graphs and numbers of agents.
    """
    plan = assessment.plan
    unmet = list(assessment.prediction.unmet)
    if plan.batch_size is not None:
        unmet.append(
            f"full gradients: the plan uses minibatches of {plan.batch_size} rows, the theory below does not"
        )
    plans = {"this plan": assessment}
    if assessment.proven is not None:
        plans["nearest plan inside the theorems"] = assessment.proven
    return {
        "problem": plan.problem or assessment.analysis.potentials.problem.name,
        "gaussian": assessment.analysis.gaussian,
        "num_agents": plan.num_agents,
        "num_steps": plan.num_steps,
        "graph": plan.graph.name,
        "tolerance": tolerance,
        "unmet_conditions": unmet,
        "inside_theorem_1": assessment.prediction.consensus_bound is not None,
        "minibatches": plan.batch_size is not None,
        "problem_constants": problem_rows(assessment),
        "theorem_constants": theorem_rows(assessment.inside, tolerance),
        "plans": [_curves(title, one, tolerance) for title, one in plans.items()],
        "comparisons": [row.to_dict() for row in comparisons],
    }


def problem_rows(assessment: Assessment) -> list[dict[str, Any]]:
    """The constants of the problem, the network and the start."""
    constants, prediction = assessment.analysis.constants, assessment.prediction
    network, plan = assessment.analysis.network, assessment.plan
    disagreement, start = _disagreement(assessment), _start(assessment)
    rows = [
        ("n", "number of agents", plan.num_agents, "exact", plan.graph.name),
        ("d_w", "number of parameters", constants.centre.size, "exact", ""),
        ("λ_2(L)", "algebraic connectivity of the graph", network.graph.algebraic_connectivity, "exact", ""),
        ("σ_max(L)", "largest eigenvalue of the graph", _largest_eigenvalue(plan), "exact", ""),
        ("L", "largest L_i, Lipschitz constant of an agent's gradient", *constants.smoothness),
        ("L̄", "Lipschitz constant of ∇U", *constants.total_smoothness),
        ("C_ζ", "‖ζ‖² ≤ C_ζ‖w̃‖²", *constants.coupling),
        ("ρ_U", "log-Sobolev constant of the posterior", *constants.log_sobolev),
        ("c_1", "E‖w − w*‖² under the posterior", *constants.second_moment),
        ("μ_g", "disagreement of gradients (Assumption 3)", prediction.gradient_disagreement, *disagreement),
        ("F_0", "KL of the start from the posterior", prediction.inputs.initial_divergence, *start),
    ]
    names = ("symbol", "meaning", "value", "kind", "how")
    return [{**dict(zip(names, row, strict=True)), "value": _finite(float(row[2]))} for row in rows]


def _disagreement(assessment: Assessment) -> tuple[str, str]:
    """How sure `μ_g` is: it holds as far as it was looked at."""
    if assessment.pilot is not None and assessment.pilot.gradient_disagreement:
        return "estimate", f"largest in a pilot up to step {assessment.pilot.steps[-1]:,}"
    which = "exact path" if assessment.analysis.gaussian else "normal approximation's path"
    return "estimate", f"largest along the {which} up to step {assessment.prediction.path.steps[-1]:,}"


def _start(assessment: Assessment) -> tuple[str, str]:
    """How sure `F_0` is."""
    if np.any(assessment.analysis.start.covariance):
        return "estimate", "of a normal start with the same mean and variance"
    return "exact" if assessment.analysis.gaussian else "estimate", "starts are fixed points: after the first step"


def theorem_rows(assessment: Assessment, tolerance: float) -> list[dict[str, Any]]:
    """The constants of both theorems and of Corollary 1; none where no plan is inside the theorems."""
    one, two = assessment.prediction.consensus_bound, assessment.prediction.divergence_bound
    if one is None or two is None:
        return []
    s = one.setting
    single = s.num_agents == 1
    rows: list[tuple[str, str, str, Any]] = [
        ("μ_g", "disagreement of gradients", "S10", one.gradient_disagreement),
        ("F_0", "KL of the start from the posterior", "27", two.inputs.initial_divergence),
        ("a", "first step size, γ = " + ("any" if single else f"{two.speed_up_exponent:.3f}"), "26", s.step_scale),
        ("b", "first consensus step", "S6", s.consensus_scale),
        ("δ_2", "how fast the step size falls", "S6", s.step_exponent),
        ("δ_1", "how fast the consensus step falls", "S6", s.consensus_exponent),
        ("δ_2 − 2δ_1", "rate of both bounds", "25, 27", s.rate),
        ("W_1", "exponential rate of agreement", "S87", one.exponential_rate),
        ("W_2", "scale of the polynomial part", "S88", one.polynomial_scale),
        ("W_3", "scale of the exponential part", "S89", one.exponential_scale),
        ("W_4", "W_3 at the polynomial rate", "S95", one.rate_scale),
        ("k̄", "early steps summed one by one", "S90", one.split),
        ("C_a", "a = C_a^(1/3)/n^γ", "S230", step_constant(two.inputs, s.step_exponent)),
        ("d_1", "sum of all disturbances", "S264", two.summed_disturbance),
        ("C_w̄", "bound on E‖w̄ − w*‖²", "S231", two.moment_bound),
        ("C_ξ", "scale of the disturbance", "S228", two.disturbance_scale),
        ("C_ρ", "scale of its decay", "S229", two.decay_scale),
        ("C̄_W2", "n^(γ−2) W_2", "S220", two.consensus_scale),
        ("k̆", "early steps summed one by one", "S224", two.split),
        ("C̄_F1", "what early steps add to the start", "S224", two.early_scale),
        ("C̄_F2", "scale of the polynomial part", "S225", two.late_scale),
        ("l̆", "where agreement outruns forgetting", "S227", 0 if single else two.place),
        ("κ", "by how much", "S227", 0.0 if single else two.margin),
        ("C̄_F3", "what disagreement at the start adds", "S226", two.transient_scale),
        ("Q_1", "scale of the exponential parts", "S275", exponential_total(two)),
        ("Q_2", "scale of the polynomial part", "S276", polynomial_total(two)),
        ("k*", f"steps until KL ≤ {tolerance:g}", "S284", steps_needed(two, tolerance)),
    ]
    return [
        {"symbol": symbol, "meaning": meaning, "equation": equation, **_number(value)}
        for symbol, meaning, equation, value in rows
    ]


def _largest_eigenvalue(plan: Plan) -> float:
    return plan.graph.largest_eigenvalue if plan.graph.num_edges else 0.0


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _number(value: Any) -> dict[str, Any]:
    """A number as text and, as it may be too large for a float, its logarithm."""
    log10 = float(Magnitude.of(value).log10)
    text = str(value) if isinstance(value, Magnitude) else f"{value:.4g}"
    return {"value": text, "log10": log10 if math.isfinite(log10) else None}


def _curves(title: str, assessment: Assessment, tolerance: float) -> dict[str, Any]:
    found, pilot, plan = assessment.prediction, assessment.pilot, assessment.plan
    steps, path = found.steps, found.path
    one, two = found.consensus_bound, found.divergence_bound
    consensus: dict[str, Any] = {"tight": _curve(steps, found.consensus_tight)}
    divergence: dict[str, Any] = {}
    if found.divergence_tight is not None:
        divergence["tight"] = _curve(steps, found.divergence_tight)
    if one is not None:
        consensus["closed"] = _curve(steps, one(steps))
    if two is not None:
        divergence["closed"] = _curve(steps, two(steps))
    exact = "exact" if assessment.analysis.gaussian else "approximate"
    consensus[exact], divergence[exact] = (
        _curve(path.steps, path.consensus_error),
        _curve(path.steps, path.divergence),
    )
    if pilot is not None:
        consensus["measured"] = _curve(pilot.steps, pilot.consensus_error)
        if pilot.divergence is not None:
            above = np.where(pilot.divergence > pilot.divergence_floor, pilot.divergence, 0.0)
            divergence["measured"] = _curve(pilot.steps, above)
    sampler = require_dula(plan.sampler)
    needed: dict[str, Any] = {**found.steps_to(tolerance)}
    looked_at = {"tight": int(steps[-1]), exact: int(path.steps[-1])}
    if pilot is not None and pilot.divergence is not None and pilot.divergence_floor < tolerance:
        settled = settled_step(np.maximum(pilot.divergence, 0.0), tolerance)
        needed["measured"] = None if settled is None else int(pilot.steps[settled])
        looked_at["measured"] = int(pilot.steps[-1])
    return {
        "title": title,
        "num_steps": plan.num_steps,
        "consensus": consensus,
        "divergence": divergence,
        "slope": {
            **promised_rates(sampler),
            exact: late_rate(path.steps, path.consensus_error, sampler),
            "tight": late_rate(steps, found.consensus_tight, sampler),
        },
        "steps_needed": {
            "theorem": None if needed["theorem"] is None else _number(needed["theorem"]),
            **({"tight": needed["tight"]} if found.divergence_tight is not None else {}),
            exact: needed["exact"],
            **({"measured": needed["measured"]} if "measured" in needed else {}),
            "looked_at": looked_at,
        },
    }


def _curve(steps: np.ndarray, values: Any) -> dict[str, list[float]]:
    """Steps and logarithms to base 10, at most some hundred points that are even on the logarithmic scale."""
    log10 = np.asarray(Magnitude.of(values).log10, float)
    chosen = np.unique(np.searchsorted(steps, np.geomspace(max(steps[0], 1), steps[-1], _POINTS)))
    kept = chosen[np.isfinite(log10[chosen])]
    return {"step": steps[kept].tolist(), "log10": log10[kept].tolist()}
