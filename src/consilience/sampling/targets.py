"""What the command line can run: an experiment, a plan file, or a problem in a module; all become plans."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from consilience import experiments, graphs
from consilience.errors import GraphError, PlanError
from consilience.graphs import Graph
from consilience.plans import Plan
from consilience.samplers import DEFAULT_SAMPLER, SAMPLERS, Gossip, Landscape, Sampler

_ANY_STEPS = 1000
_NOTHING_KNOWN = Landscape(1.0, 1.0, "made up")


@dataclass(frozen=True)
class Wishes:
    """What is said about a plan beside its target; `None` leaves an entry as it is.

    Attributes:
        num_agents: the size of the network; without it (and without `graph`) an experiment is its whole study.
        graph: the family of the graph.
        num_steps: how many steps.
        sampler: the name of the sampler; an experiment and a plan file have their own.
        numbers: entries of the sampler, by name.
        auto: let `suggest` choose the sampler's numbers.
        entries: other entries of the plan.
        allow: modules that a plan file may name as its problem.
    """

    num_agents: int | None = None
    graph: str | None = None
    num_steps: int | None = None
    sampler: str | None = None
    numbers: Mapping[str, float] = field(default_factory=dict)
    auto: bool = False
    entries: Mapping[str, Any] = field(default_factory=dict)
    allow: Sequence[str] = ()


class Resolved(NamedTuple):
    """A plan, and the reasons for its sampler's numbers where they were chosen for it."""

    plan: Plan
    reasons: tuple[str, ...] = ()


def plans_for(
    target: str,
    wishes: Wishes,
    *,
    only_weighed: bool = False,
    before_suggesting: Callable[[], None] = lambda: None,
) -> dict[str, Resolved]:
    """The plans that a target stands for: one called `run`, or one for each run of an experiment's study.

    Args:
        target: the name of an experiment, the path of a plan file, or `module:attribute`.
        wishes: what is said about the plan.
        only_weighed: the plan will not be sampled; steps and numbers that your own problem needs are made up.
        before_suggesting: called before step sizes are chosen, which looks at all agents' data; may raise.
    """
    _require_known(wishes)
    experiment = experiments.find(target)
    if experiment is not None:
        drafts = experiment.plans(wishes.num_steps)
        if wishes.num_agents is not None or wishes.graph is not None:
            n = wishes.num_agents or drafts[experiment.main].num_agents
            drafts = {"run": experiment.plan(n, graphs.named(wishes.graph or "ring", n), wishes.num_steps)}
    elif target.endswith(".toml") or Path(target).is_file():
        drafts = {"run": _from_file(target, wishes)}
    else:
        return {"run": _from_module(target, wishes, only_weighed, before_suggesting)}
    return {
        name: _with_sampler(draft.replace(**wishes.entries), draft.sampler, wishes, before_suggesting)
        for name, draft in drafts.items()
    }


def main_plan(target: str, wishes: Wishes, **options: Any) -> Resolved:
    """The one plan that a target stands for: of a study, that of its main network."""
    plans = plans_for(target, wishes, **options)
    experiment = experiments.find(target)
    return plans.get(experiment.main if experiment else "", next(iter(plans.values())))


def _require_known(wishes: Wishes) -> None:
    """Check that the sampler is one; which numbers it takes is checked when it is made."""
    if wishes.sampler is not None and wishes.sampler not in SAMPLERS:
        raise PlanError(f"unknown sampler {wishes.sampler!r}: choose one of {', '.join(SAMPLERS)}")
    given = [name for name in wishes.numbers if name != "temperature"]
    if wishes.auto and given:
        shown = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise PlanError(f"--auto chooses the step sizes: leave out {shown}, or --auto")


def _from_file(path: str, wishes: Wishes) -> Plan:
    plan = Plan.load(path)
    experiments.require_allowed(plan.problem, wishes.allow, "add --allow {}")
    if wishes.num_agents or wishes.graph:
        plan = plan.replace(graph=_graph(wishes.graph or plan.graph.name, wishes.num_agents or plan.num_agents))
    return plan.replace(num_steps=wishes.num_steps) if wishes.num_steps else plan


def _from_module(
    reference: str, wishes: Wishes, only_weighed: bool, before_suggesting: Callable[[], None]
) -> Resolved:
    count = wishes.num_agents or experiments.import_problem(reference, None).num_agents
    kind, graph = wishes.sampler or DEFAULT_SAMPLER, _graph(wishes.graph or "ring", count)
    steps = wishes.num_steps or (_ANY_STEPS if only_weighed else None)
    _require_taken(SAMPLERS[kind], kind, wishes.numbers)
    own = SAMPLERS[kind].from_numbers(graph, wishes.numbers)
    if steps is None or not (own or only_weighed or wishes.auto or wishes.sampler):
        raise PlanError(
            f"{reference} is your own problem: say how to sample it with --steps and --step-size (or --auto)"
        )
    stand_in = own or _with_some_numbers(SAMPLERS[kind], graph, steps)
    plan = Plan(problem=reference, graph=graph, sampler=stand_in, num_steps=steps, **wishes.entries)
    return _with_sampler(plan, stand_in if only_weighed else own, wishes, before_suggesting)


def _with_some_numbers(kind: type[Sampler], graph: Graph, num_steps: int) -> Sampler:
    assert issubclass(kind, Gossip)  # others need none
    return kind.suggest(_NOTHING_KNOWN, graph, num_steps).sampler


def _with_sampler(
    draft: Plan, own: Sampler | None, wishes: Wishes, before_suggesting: Callable[[], None]
) -> Resolved:
    """The plan with its own sampler, or with one whose numbers are chosen for it; the wished numbers hold in both."""
    kind = wishes.sampler or draft.sampler.kind
    if own is not None and own.kind == kind and not wishes.auto:
        return Resolved(draft.replace(sampler=_with_numbers(own, wishes.numbers)))
    before_suggesting()
    from consilience.planning.suggestions import suggest

    problem = experiments.load_problem(draft)
    found = suggest(problem, draft.graph, draft.num_steps, draft, sampler=kind).practical
    chosen = _with_numbers(found.plan.sampler, wishes.numbers)
    return Resolved(found.plan.replace(sampler=chosen), found.reasons)


def _with_numbers(sampler: Sampler, numbers: Mapping[str, float]) -> Sampler:
    """The sampler with some of its entries replaced by numbers."""
    _require_taken(type(sampler), sampler.kind, numbers)
    if not numbers:
        return sampler
    entries = {name: getattr(sampler, name) for name in type(sampler).model_fields}
    return type(sampler)(**{**entries, **numbers})


def _require_taken(sampler: type[Sampler], kind: str, numbers: Mapping[str, float]) -> None:
    """Check that a sampler takes all the numbers that were given for it."""
    unknown = [name for name in numbers if name not in sampler.options]
    if unknown:
        taken = ", ".join(f"--{name.replace('_', '-')}" for name in sampler.options)
        raise PlanError(f"--{unknown[0].replace('_', '-')} is not for the sampler {kind}, which takes {taken}")


def _graph(family: str, num_agents: int) -> Graph:
    if family == "edges":
        raise GraphError("the plan lists its edges: to change the number of agents, name a --graph too")
    return graphs.named(family, num_agents)
