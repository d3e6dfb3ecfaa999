"""Step sizes for a problem, a graph and a budget of steps, with the reasons in words.

Two plans. The *practical* one has the numbers that the plan's sampler itself chooses for what is known of the problem
(`Sampler.suggest`). The *proven* one is inside both theorems; it exists for D-ULA alone, which they are about.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from consilience.errors import ConditionError, PlanError, ProblemError
from consilience.graphs import Graph
from consilience.kernel.curvature import largest_curvature
from consilience.plans import Plan
from consilience.problems import Problem
from consilience.samplers import DEFAULT_SAMPLER, SAMPLERS, Gossip, Landscape
from consilience.theory import Analysis, Potentials, analyse, proven_reasons, proven_sampler, require_dula


class SuggestedPlan(NamedTuple):
    """A plan and the reasons for its step sizes."""

    name: str
    plan: Plan
    reasons: tuple[str, ...]


class Suggestions(NamedTuple):
    """Two plans for the same problem; there is no proven one where the problem's constants are not known."""

    practical: SuggestedPlan
    proven: SuggestedPlan | None
    why_not_proven: str


def suggest(
    problem: Problem,
    graph: Graph,
    num_steps: int,
    base: Plan | None = None,
    analysis: Analysis | None = None,
    sampler: str | None = None,
) -> Suggestions:
    """Choose step sizes for a problem on a graph within a budget of steps.

    Args:
        problem: what to infer.
        graph: who talks to whom.
        num_steps: the budget.
        base: a plan whose sampler and other entries (chains, seed, minibatches, …) to keep.
        analysis: of the problem, if it was made already.
        sampler: the name of a sampler, if it is not that of `base`.

    >>> from consilience import graphs, models
    >>> problem = models.linear_regression([([[1.0], [2.0]], [1.0, 2.0])] * 3)
    >>> found = suggest(problem, graphs.ring(3), 10_000)
    >>> found.practical.plan.sampler.step_size.start > found.proven.plan.sampler.step_size.scale
    True
    """
    kind = SAMPLERS[sampler or (base.sampler.kind if base is not None else DEFAULT_SAMPLER)]
    if not issubclass(kind, Gossip):
        raise PlanError(f"the sampler {kind.model_fields['kind'].default} finds its numbers itself: just run it")
    why_not = ""
    try:
        analysis = analysis or analyse(Potentials(problem), graph)
        landscape = _known(analysis)
    except ProblemError as error:
        landscape, why_not = _estimated(problem, graph, base), str(error)
    temperature = base.sampler.temperature if base is not None else 1.0
    chosen = kind.suggest(landscape, graph, num_steps, temperature)
    plan = (
        Plan(
            graph=graph, sampler=chosen.sampler, num_steps=num_steps, burn_in=num_steps // 10,
            store_every=max(1, num_steps // 10_000), num_chains=4,
        )
        if base is None
        else base.replace(graph=graph, num_steps=num_steps, sampler=chosen.sampler)
    )  # fmt: skip
    practical = SuggestedPlan("practical", plan, chosen.reasons)
    if analysis is None:
        return Suggestions(practical, None, why_not)
    return _with_proven(practical, analysis)


def _with_proven(practical: SuggestedPlan, analysis: Analysis) -> Suggestions:
    plan = practical.plan
    try:
        require_dula(plan.sampler)
    except ConditionError as error:
        return Suggestions(practical, None, str(error))
    sampler = proven_sampler(analysis, plan.graph)
    reasons = proven_reasons(sampler, analysis, plan.graph, plan.num_steps)
    if plan.sampler.temperature != 1:
        reasons = (*reasons, "temperature 1, which the theorems are about")
    return Suggestions(practical, SuggestedPlan("proven", plan.replace(sampler=sampler), reasons), "")


def _known(analysis: Analysis) -> Landscape:
    """What an analysis of the problem says: exact constants, bounds or estimates."""
    constants, network = analysis.constants, analysis.network
    gradients = np.einsum("iab,b->ia", network.precisions, constants.centre) - network.linear
    return _required(
        Landscape(
            smoothness=float(constants.smoothness.value),
            total_smoothness=float(constants.total_smoothness.value),
            known=constants.smoothness.kind,
            relaxation=1 / float(constants.log_sobolev.value),
            gradients=gradients,
            hessian=network.hessian,
        )
    )


def _estimated(problem: Problem, graph: Graph, base: Plan | None) -> Landscape:
    """What power iteration says where the agents start: all that is known of a large problem."""
    seed, dtype = (0, "float32") if base is None else (base.seed, base.dtype)
    local = largest_curvature(problem, seed, dtype)
    return _required(Landscape(local, graph.num_agents * local, "estimated where the agents start"))


def _required(landscape: Landscape) -> Landscape:
    if landscape.smoothness <= 0:
        raise ProblemError("the potentials are flat where the agents start: give step sizes by hand")
    return landscape
