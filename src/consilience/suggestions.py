"""Step sizes for a problem, a graph and a budget of steps, with the reasons in words.

Two plans. The *proven* one is inside both theorems, which makes its steps so small that it seldom gets anywhere. The
*practical* one is stable, ends with agents that agree and a small bias, and spends the budget on moving:

- consensus step constant, 0.9 of the limit of the theorems;
- first step size `α_0 = 1/(2 n L)`, a quarter of what is stable; less where an agent's own potential is not convex
  and its neighbours could not hold it back;
- last step size so small that any agent's disagreement has at most a twentieth of the posterior's smallest variance
  and shifts its mean by at most a tenth of a standard deviation, unless the budget then is too short to forget the
  start; in that case as small as leaves 50 relaxation times. The reasons say what remains.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
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
_EXCESS = 0.05  # of an agent's variance
_SHIFT = 0.1  # standard deviations
_BIAS = 0.1  # of the variance, twice
_HALVINGS = 60
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
    n, graph, pull = base.num_agents, base.graph, _pull(base.graph)
    reasons = [_consensus_reason(graph, pull)]
    if analysis is None:
        with jax.enable_x64(base.dtype == "float64"):
            local = largest_curvature(base, problem)
        total, kind, relaxation, shift = n * local, "estimated where the agents start", None, 0.0
    else:
        constants = analysis.constants
        local, total = float(constants.smoothness.value), float(constants.total_smoothness.value)
        kind, relaxation = constants.smoothness.kind, 1 / float(constants.log_sobolev.value)
        shift = _shift(analysis, pull) * math.sqrt(total)
    if local <= 0:
        raise ProblemError("the potentials are flat where the agents start: give step sizes by hand")
    first = 0.5 / (n * local)
    reasons.append(f"α_0 = {first:.3g}: α_0 n L = 0.5, with n L = {n * local:.4g} ({kind})")
    if analysis is not None and n > 1:
        first, words = _held_together(analysis, pull, first)
        reasons += words
    excess = _excess(graph, pull)
    wanted = min(
        _BIAS / total,
        _EXCESS / (total * excess) if excess else math.inf,
        _SHIFT / shift if shift else math.inf,
        _LEAST_FALL * first,
    )
    last, words = _affordable(first, wanted, base.num_steps, relaxation)
    reasons += words
    if excess:
        reasons.append(
            f"with α = {last:.3g} at the end, an agent's disagreement has at most {last * excess * total:.1%} of the "
            "posterior's smallest variance"
            + (f" and shifts its mean by at most {last * shift:.2g} standard deviations" if shift else "")
        )
    step_size = FromTo(start=first, end=last, num_steps=base.num_steps, exponent=_EXPONENT)
    sampler = dula(step_size, pull, base.sampler.temperature)
    return Suggestion("practical", base.replace(sampler=sampler), tuple(reasons))


def _held_together(analysis: Analysis, pull: float, first: float) -> tuple[float, list[str]]:
    """A first step size at which agents whose own potentials fall away are held back by their neighbours."""
    network, chosen = analysis.network, first
    mixing = pull * np.kron(network.graph.laplacian.toarray(), np.eye(network.linear.shape[1]))
    for _ in range(_HALVINGS):
        if np.linalg.eigvalsh(mixing + chosen * network.graph.num_agents * network.hessian)[0] > 0:
            break
        chosen /= 2
    if chosen == first:
        return first, []
    return chosen, [f"α_0 lowered to {chosen:.3g}: some agents' own potentials are not convex"]


def _affordable(first: float, wanted: float, steps: int, relaxation: float | None) -> tuple[float, list[str]]:
    """The last step size that leaves enough Langevin time, and the reason."""
    if relaxation is None:
        return wanted, [f"α falls to {wanted:.3g}; how long to run is not known"]
    needed, highest = _RELAXATIONS * relaxation, _LEAST_FALL * first
    if _elapsed(first, wanted, steps) >= needed:
        times = _elapsed(first, wanted, steps) / relaxation
        return wanted, [f"α falls to {wanted:.3g}, as low as wanted; the budget holds {times:.0f} relaxation times"]
    if _elapsed(first, highest, steps) < needed:
        times = _elapsed(first, highest, steps) / relaxation
        more = math.ceil(steps * _RELAXATIONS / times)
        return highest, [
            f"α falls only to {highest:.3g}: the budget holds {times:.2g} relaxation times, {_RELAXATIONS} would be "
            f"good; take about {more:,} steps, or read the draws as not yet settled"
        ]
    low, high = math.log(wanted), math.log(highest)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if _elapsed(first, math.exp(middle), steps) >= needed else (middle, high)
    end = math.exp(high)
    return end, [
        f"α falls to {end:.3g}, which leaves {_RELAXATIONS} relaxation times in the budget; {wanted:.3g} would be "
        "better, with more steps"
    ]


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
        *(["temperature 1, which the theorems are about"] if base.sampler.temperature != 1 else []),
    )
    return Suggestion("proven", base.replace(sampler=sampler), reasons)


def _pull(graph: Graph) -> float:
    return _MARGIN * graph.proven_consensus_limit if graph.num_edges else 1.0


def _consensus_reason(graph: Graph, pull: float) -> str:
    if not graph.num_edges:
        return "a single agent needs no consensus step"
    return f"β = {pull:.3g}: {_MARGIN} of 1/λ_max, stable and inside the theorems"


def _excess(graph: Graph, pull: float) -> float:
    """What noise adds to the variance of the agent that has it worst, for a step size of 1.

    `n max_i Σ_{j≥2} φ_j(i)²/(β λ_j (1 − β λ_j/2))` over the Laplacian's eigenvectors `φ_j`; for large graphs from
    above, by the slowest and fastest of them.
    """
    if not graph.num_edges:
        return 0.0
    if graph.num_agents > _LARGE_GRAPH:
        slowest, fastest = pull * graph.algebraic_connectivity, pull * graph.largest_eigenvalue
        return graph.num_agents / (slowest * (1 - fastest / 2))
    values, patterns = np.linalg.eigh(graph.laplacian.toarray())
    rates = pull * values[1:]
    return float(graph.num_agents * (patterns[:, 1:] ** 2 @ (1 / (rates * (1 - rates / 2)))).max())


def _shift(analysis: Analysis, pull: float) -> float:
    """How far the agents' different gradients at `w*` move the agent that has it worst, for a step size of 1."""
    network = analysis.network
    n = network.graph.num_agents
    if n == 1:
        return 0.0
    gradients = np.einsum("iab,b->ia", network.precisions, analysis.constants.centre) - network.linear
    apart = np.linalg.pinv(network.graph.laplacian.toarray()) @ (gradients - gradients.mean(0))
    return float(n / pull * np.linalg.norm(apart, axis=1).max())


def _elapsed(first: float, last: float, steps: int) -> float:
    """`Σ α_k`, by the integral."""
    offset = FromTo(start=first, end=last, num_steps=steps, exponent=_EXPONENT).offset
    power = 1 - _EXPONENT
    return first * offset**_EXPONENT * ((offset + steps) ** power - offset**power) / power
