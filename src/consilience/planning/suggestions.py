"""Numbers for a problem, a graph and a budget of steps, with the reasons in words.

The warm-up of the corrected samplers goes to where the posterior's mass is, and says how it is curved there, how wide
it is and how far the agents' data pull in different directions (`exploration.py`). Of a sampler that tunes itself by
that warm-up it says what was found. Any other sampler by gossip chooses its own numbers for it (`Sampler.suggest`);
that is the *practical* plan. The *proven* one is inside both theorems; it exists for D-ULA alone, which they are
about.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from consilience.errors import ConditionError, PlanError, ProblemError
from consilience.graphs import Graph
from consilience.planning.exploration import Explored, explore
from consilience.planning.lengths import NUM_CHAINS, lengths
from consilience.plans import Plan
from consilience.problems import Problem
from consilience.samplers import DEFAULT_SAMPLER, SAMPLERS, Corrected, Gossip, Landscape
from consilience.theory import Analysis, Potentials, analyse, proven_reasons, proven_sampler, require_dula

LENGTHS = ("num_chains", "burn_in", "store_every")
"""The entries of a plan that say how long it is and what it stores, beside its steps."""


class SuggestedPlan(NamedTuple):
    """A plan and the reasons for its step sizes."""

    name: str
    plan: Plan
    reasons: tuple[str, ...]


class Suggestions(NamedTuple):
    """Two plans for the same problem, and what they follow from.

    There is no proven one where the problem's constants are not known, and for other samplers than D-ULA.
    """

    practical: SuggestedPlan
    proven: SuggestedPlan | None
    why_not_proven: str
    found: Mapping[str, Any]
    """What the warm-up found, as the summary of a run has it."""


def suggest(
    problem: Problem,
    graph: Graph,
    num_steps: int | None = None,
    base: Plan | None = None,
    analysis: Analysis | None = None,
    sampler: str | None = None,
    choose: Collection[str] | None = None,
) -> Suggestions:
    """Choose a sampler's numbers for a problem on a graph within a budget of steps.

    Args:
        problem: what to infer.
        graph: who talks to whom.
        num_steps: the budget, of a sampler that counts steps.
        base: a plan whose sampler and other entries (seed, minibatches, …) to keep.
        analysis: of the problem, if it was made already.
        sampler: the name of a sampler, if it is not that of `base`.
        choose: which of `num_chains`, `burn_in` and `store_every` to choose too; without a base all, otherwise none.

    >>> from consilience import graphs, models
    >>> problem = models.linear_regression([([[1.0], [2.0]], [1.0, 2.0])] * 3)
    >>> found = suggest(problem, graphs.ring(3), 10_000)
    >>> found.practical.plan.sampler.step_size.start > found.proven.plan.sampler.step_size.scale
    True
    """
    kind = SAMPLERS[sampler or (base.sampler.kind if base is not None else DEFAULT_SAMPLER)]
    name = kind.model_fields["kind"].default
    if not issubclass(kind, Gossip):
        raise PlanError(f"the sampler {name} finds its numbers itself: just run it")
    if issubclass(kind, Corrected):
        return _of_corrected(problem, graph, kind, base)
    if num_steps is None:
        raise PlanError(f"the sampler {name} counts steps: say how many there are, with num_steps")
    explored = explore(problem, graph, base)
    why_not = ""
    try:
        analysis = (analysis or analyse(Potentials(problem), graph)) if name == DEFAULT_SAMPLER else None
    except ProblemError as error:
        why_not = str(error)
    landscape = _with_modes(_required(explored.landscape), analysis)
    temperature = base.sampler.temperature if base is not None else 1.0
    chosen = kind.suggest(landscape, graph, num_steps, temperature)
    draft = base or Plan(graph=graph, sampler=chosen.sampler, num_steps=num_steps)
    entries = {"graph": graph, "num_steps": num_steps, "sampler": chosen.sampler}
    plan, reasons = (draft if base is None else draft.replace(**entries)), chosen.reasons
    if wanted := LENGTHS if choose is None and base is None else tuple(choose or ()):
        burn_in, store_every, why = lengths(chosen.sampler, num_steps, chosen.forgets)
        told = {"num_chains": NUM_CHAINS, "burn_in": burn_in, "store_every": store_every}
        plan, reasons = plan.replace(**{one: told[one] for one in wanted}), (*reasons, *why)
    practical = SuggestedPlan("practical", plan, reasons)
    if analysis is None:
        return Suggestions(practical, None, why_not or _only_dula(plan), explored.found)
    return Suggestions(practical, nearest_proven(plan, analysis), "", explored.found)


def nearest_proven(plan: Plan, analysis: Analysis) -> SuggestedPlan:
    """The plan with step sizes that are inside the theorems."""
    sampler = proven_sampler(analysis, plan.graph)
    reasons = proven_reasons(sampler, analysis, plan.graph, plan.num_steps)
    if plan.sampler.temperature != 1:
        reasons = (*reasons, "temperature 1, which the theorems are about")
    return SuggestedPlan("proven", plan.replace(sampler=sampler), reasons)


def _only_dula(plan: Plan) -> str:
    try:
        require_dula(plan.sampler)
    except ConditionError as error:
        return str(error)
    return ""


def _of_corrected(problem: Problem, graph: Graph, kind: type[Corrected], base: Plan | None) -> Suggestions:
    """The plan as it is, with what its warm-up finds."""
    if base is None:
        plan = Plan(graph=graph, sampler=kind.from_numbers(graph, {}))
    else:
        own = base.sampler if isinstance(base.sampler, kind) else kind.from_numbers(graph, {})
        plan = base.replace(graph=graph, sampler=own)
    if not plan.sampler.tunes_itself:
        raise PlanError(f"all numbers of {plan.sampler.kind} are given: leave one out, and its warm-up finds it")
    explored = explore(problem, graph, plan)
    reasons = _in_words(explored)
    return Suggestions(SuggestedPlan("practical", plan, reasons), None, _only_dula(plan), explored.found)


def _in_words(explored: Explored) -> tuple[str, ...]:
    """What a warm-up found."""
    found = explored.found
    steps = sum(window["steps"] for window in found["windows"])
    settled = "" if found["settled"] else ", in which they did not settle: more steps (num_warmup) may help"
    reasons = [
        f"coordinates: {found['whitening']} whitening, condition {found['condition']:.3g}, from "
        f"{len(found['windows'])} windows of {steps:,.0f} steps together{settled}",
        f"step size {found['step_size']:.3g}: for the largest curvature {found['curvature']:.3g} in them",
        f"{found['exchanges']} exchanges a step: one agent has up to {found['excess']:.3g} times an equal share of "
        "the curvature",
    ]
    if "mean_error" in (left := found["predicted"]):
        mean, variance = max(map(abs, left["mean_error"])), max(map(abs, left["variance_error"]))
        reasons.append(
            f"what that leaves at the worst agent: {mean:.2g} standard deviations of a mean, {variance:.1%} of a "
            "variance"
        )
    if "heating" in found:
        reasons.append(f"the noise of minibatches heats by {found['heating'] - 1:.1%}")
    return tuple(reasons)


def _with_modes(landscape: Landscape, analysis: Analysis | None) -> Landscape:
    """Where there are several modes, chains forget as slowly as they cross between them, which the theory knows."""
    if analysis is None or analysis.gaussian or len(analysis.potentials.modes) == 1:
        return landscape
    slowest = 1 / float(analysis.constants.log_sobolev.value)
    return dataclasses.replace(landscape, relaxation=max(landscape.relaxation or 0.0, slowest))


def _required(landscape: Landscape) -> Landscape:
    if landscape.smoothness <= 0:
        raise ProblemError("the potentials are flat where the posterior is: give step sizes by hand")
    return landscape
