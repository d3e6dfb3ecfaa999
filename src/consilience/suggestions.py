"""Step sizes for a problem, a graph and a budget of steps, with the reasons in words.

Two plans. The *proven* one is inside both theorems, which makes its steps so small that it seldom gets anywhere. The
*practical* one is stable, ends with agents that agree and a small bias, and spends the budget on moving:

- consensus step constant, 0.9 of the limit of the theorems;
- first step size `α_0 = 1/(2 n L)`, a quarter of what is stable;
- last step size so small that it adds at most a twentieth to an agent's variance, unless the budget then is too short
  to forget the start; in that case as small as leaves 50 relaxation times.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from consilience.checks import largest_curvature
from consilience.errors import ProblemError
from consilience.graphs import Graph
from consilience.plans import Plan
from consilience.problems import Problem
from consilience.samplers.dula import DULA, dula
from consilience.schedules import FromTo, Polynomial
from consilience.theory import Analysis, Potentials, analyse, largest_step_scale, theorem_inputs

_EXPONENT = 0.6
_PROVEN_EXPONENT = 0.55
_MARGIN = 0.9
_EXCESS = 0.05
_BIAS = 0.1
_RELAXATIONS = 50
_LEAST_FALL = 0.5
_LARGE_GRAPH = 2000


class Suggestion(NamedTuple):
    """A plan and the reasons for its step sizes."""

    name: str
    plan: Plan
    reasons: tuple[str, ...]


class Suggestions(NamedTuple):
    """Two plans for the same problem; there is no proven one where the problem's constants are not known."""

    practical: Suggestion
    proven: Suggestion | None
    why_not_proven: str


def suggest(
    problem: Problem, graph: Graph, num_steps: int, base: Plan | None = None, analysis: Analysis | None = None
) -> Suggestions:
    """Choose step sizes for a problem on a graph within a budget of steps.

    Args:
        problem: what to infer.
        graph: who talks to whom.
        num_steps: the budget.
        base: a plan whose other entries (chains, seed, minibatches, …) to keep.
        analysis: of the problem, if it was made already.

    >>> from consilience import graphs, models
    >>> problem = models.linear_regression([([[1.0], [2.0]], [1.0, 2.0])] * 3)
    >>> found = suggest(problem, graphs.ring(3), 10_000)
    >>> found.practical.plan.sampler.step_size.start > found.proven.plan.sampler.step_size.scale
    True
    """
    base = base or Plan(
        graph=graph,
        sampler=dula(1e-9, _pull(graph)),
        num_steps=num_steps,
        burn_in=num_steps // 10,
        store_every=max(1, num_steps // 10_000),
        num_chains=4,
    )
    base = base.replace(graph=graph, num_steps=num_steps)
    try:
        analysis = analysis or analyse(Potentials(problem), graph)
    except ProblemError as error:
        return Suggestions(_practical(base, problem, None), None, str(error))
    return Suggestions(_practical(base, problem, analysis), _proven(base, analysis), "")


def _practical(base: Plan, problem: Problem, analysis: Analysis | None) -> Suggestion:
    n, steps, graph = base.num_agents, base.num_steps, base.graph
    pull = _pull(graph)
    if analysis is None:
        local = largest_curvature(base, problem)
        total, kind = n * local, "estimated where the agents start"
        relaxation = None
    else:
        constants = analysis.constants
        local, total = float(constants.smoothness.value), float(constants.total_smoothness.value)
        kind, relaxation = constants.smoothness.kind, 1 / float(constants.log_sobolev.value)
    if local <= 0:
        raise ProblemError("the potentials are flat where the agents start: give step sizes by hand")
    first = 0.5 / (n * local)
    reasons = [
        _consensus_reason(graph, pull),
        f"α_0 = {first:.3g}: α_0 n L = 0.5, with n L = {n * local:.4g} ({kind})",
    ]
    excess = _excess(graph, pull)
    wanted = min(_BIAS / total, _EXCESS / (total * excess) if excess else math.inf)
    last = min(wanted, _LEAST_FALL * first)
    if relaxation is None:
        reasons.append(f"α falls to {last:.3g}, where {_what_is_small(excess)}; how long to run is not known")
    else:
        last, words = _affordable(first, last, steps, relaxation, _what_is_small(excess))
        reasons.append(words)
    step_size = FromTo(start=first, end=last, num_steps=steps, exponent=_EXPONENT)
    return Suggestion("practical", base.replace(sampler=dula(step_size, pull)), tuple(reasons))


def _affordable(first: float, last: float, steps: int, relaxation: float, small: str) -> tuple[float, str]:
    """The last step size that leaves enough Langevin time, and the reason."""
    needed, highest = _RELAXATIONS * relaxation, _LEAST_FALL * first
    if _elapsed(first, last, steps) >= needed:
        times = _elapsed(first, last, steps) / relaxation
        return last, f"α falls to {last:.3g}, where {small}; the budget holds {times:.0f} relaxation times"
    if _elapsed(first, highest, steps) < needed:
        times = _elapsed(first, highest, steps) / relaxation
        more = math.ceil(steps * _RELAXATIONS / times)
        return highest, (
            f"α falls only to {highest:.3g}: the budget holds {times:.2g} relaxation times, {_RELAXATIONS} would be "
            f"good; take about {more:,} steps, or read the draws as not yet settled"
        )
    low, high = math.log(last), math.log(highest)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if _elapsed(first, math.exp(middle), steps) >= needed else (middle, high)
    end = math.exp(high)
    return end, (
        f"α falls to {end:.3g}, which leaves {_RELAXATIONS} relaxation times in the budget; {last:.3g}, where "
        f"{small}, would need more steps"
    )


def proven_sampler(analysis: Analysis, graph: Graph, gamma: float | None = None) -> DULA:
    """Step sizes inside both theorems: `a = C_a^{1/3}/n^γ` for the given `γ > 2`, by default just above 2."""
    n, pull = graph.num_agents, _pull(graph)
    inputs = theorem_inputs(analysis.constants, analysis.network, dula(1e-12, pull), analysis.start)
    share = _MARGIN if gamma is None or n == 1 else n ** (2 - gamma)
    a = share * largest_step_scale(inputs, n, _PROVEN_EXPONENT)
    return dula(Polynomial(scale=a, exponent=_PROVEN_EXPONENT), pull)


def _proven(base: Plan, analysis: Analysis) -> Suggestion:
    graph, constants = base.graph, analysis.constants
    sampler = proven_sampler(analysis, graph)
    elapsed = float(np.sum(sampler.step_size(np.arange(min(base.num_steps, 10**7)))))
    times = elapsed * float(constants.log_sobolev.value)
    kind = constants.log_sobolev.kind
    reasons = (
        _consensus_reason(graph, _pull(graph)) + ", and it does not fall (δ_1 = 0), which Condition 1 allows",
        f"δ_2 = {_PROVEN_EXPONENT}: just above 1/2 + δ_1, so that the step size falls as slowly as it may",
        f"a = {sampler.step_size(0):.3g}: {_MARGIN} of (C_a)^(1/3)/n², so that γ > 2, with "
        f"L = {constants.smoothness.value:.4g} and ρ_U = {constants.log_sobolev.value:.4g} "
        f"({kind}{'' if kind == 'exact' else ', so the proof is as good as that'})",
        f"the budget of {base.num_steps:,} steps holds {times:.2g} relaxation times",
    )
    return Suggestion("proven", base.replace(sampler=sampler), reasons)


def _pull(graph: Graph) -> float:
    return _MARGIN * graph.proven_consensus_limit if graph.num_edges else 1.0


def _consensus_reason(graph: Graph, pull: float) -> str:
    if not graph.num_edges:
        return "a single agent needs no consensus step"
    return f"β = {pull:.3g}: {_MARGIN} of 1/λ_max, stable and inside the theorems"


def _excess(graph: Graph, pull: float) -> float:
    """`Σ_{j≥2} 1/(β λ_j (1 − β λ_j/2))`, times `α` what disagreement adds to an agent's variance.

    For large graphs from above, by the smallest rate.
    """
    if not graph.num_edges:
        return 0.0
    if graph.num_agents > _LARGE_GRAPH:
        slowest, fastest = pull * graph.algebraic_connectivity, pull * graph.largest_eigenvalue
        return (graph.num_agents - 1) / (slowest * (1 - fastest / 2))
    rates = pull * graph.spectrum[1:]
    return float((1 / (rates * (1 - rates / 2))).sum())


def _what_is_small(excess: float) -> str:
    if not excess:
        return f"the bias of the step size is below {_BIAS / 2:.0%} of the variance"
    return f"disagreement adds at most {_EXCESS:.0%} to an agent's variance"


def _elapsed(first: float, last: float, steps: int) -> float:
    """`Σ α_k`, by the integral."""
    offset = FromTo(start=first, end=last, num_steps=steps, exponent=_EXPONENT).offset
    power = 1 - _EXPONENT
    return first * offset**_EXPONENT * ((offset + steps) ** power - offset**power) / power
