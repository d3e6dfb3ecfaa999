"""What the command line can run: an experiment, a plan file, a study, or a problem in a module; all become plans.

An experiment and a plan file have their own sampler. A problem in a module or a study gets the one that is chosen
where nobody says anything, unless steps or step sizes are said, which means D-ULA, or minibatches, which means
kinetic.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from consilience import experiments, graphs
from consilience.errors import GraphError, PlanError, ProblemError
from consilience.graphs import Graph
from consilience.plans import Plan
from consilience.problems import Problem
from consilience.samplers import DEFAULT_SAMPLER, SAMPLERS, Gossip, Landscape, Sampler
from consilience.sampling.wishes import IN_UNISON, SELF_TUNING, Wishes, require_taken
from consilience.studies import Study, fill_from_files, is_study

_ANY_STEPS = 1000
_FEW_SITES = 3
_CAREFUL_ACCEPTANCE = 0.95
_LARGE = "by gossip, as the model is large: in unison (--sampler nuts, hmc) each gradient is summed over the network"
_NOTHING_KNOWN = Landscape(1.0, 1.0, "made up")


class Resolved(NamedTuple):
    """A plan, and the reasons for its sampler's numbers where they were chosen for it."""

    plan: Plan
    reasons: tuple[str, ...] = ()
    unsaid: tuple[str, ...] = ()
    """The entries of its lengths (`LENGTHS`) that nobody said, and `suggest` may choose."""


def plans_for(
    target: str,
    wishes: Wishes,
    *,
    only_weighed: bool = False,
    before_suggesting: Callable[[], None] = lambda: None,
) -> dict[str, Resolved]:
    """The plans that a target stands for: one called `run`, or one for each run of an experiment's series.

    Args:
        target: the name of an experiment, the path of a plan file or of a study, or `module:attribute`.
        wishes: what is said about the plan.
        only_weighed: the plan will not be sampled; steps and numbers that your own problem needs are made up.
        before_suggesting: called before step sizes are chosen, which looks at all agents' data; may raise.
    """
    wishes.require_known()
    target, wishes = meant(target, wishes)
    experiment = experiments.find(target)
    if experiment is not None:
        drafts = experiment.plans(wishes.num_steps)
        if wishes.num_agents is not None or wishes.graph is not None:
            n = wishes.num_agents or drafts[experiment.main].num_agents
            made = {family: experiment.plan(n, graphs.named(family, n), wishes.num_steps) for family in wishes.graphs}
            drafts = made if len(made) > 1 else {"run": next(iter(made.values()))}
    elif len(wishes.graphs) > 1:
        raise PlanError(
            f"--graph {wishes.graph} compares graphs by the result of an experiment, and {target} is none: name one "
            "graph, run each, and compare their summaries"
        )
    elif target.endswith(".toml") or Path(target).is_file():
        if is_study(target):
            return {"run": _from_study(target, wishes, only_weighed, before_suggesting)}
        drafts = {"run": _from_file(target, wishes)}
    else:
        return {"run": _from_module(target, wishes, only_weighed, before_suggesting)}
    return {name: _with_sampler(draft, draft.sampler, wishes, before_suggesting) for name, draft in drafts.items()}


def meant(target: str, wishes: Wishes) -> tuple[str, Wishes]:
    """The experiment that shows the wished sampler beside a target's own, with nothing more to wish; or the target.

    Who says how many draws a warm-up and sampling have wants a sampler that tunes itself, and not an experiment's
    numbers.
    """
    name = experiments.name_with(target, wishes.sampler)
    if name == target or wishes.counts_draws:
        return target, wishes
    return name, dataclasses.replace(wishes, sampler=None)


def main_plan(target: str, wishes: Wishes, **options: Any) -> Resolved:
    """The one plan that a target stands for: of a series, that of its main network."""
    if len(wishes.graphs) > 1:
        raise PlanError(f"one network is asked for here, and --graph {wishes.graph} names several: name one graph")
    plans = plans_for(target, wishes, **options)
    target, _ = meant(target, wishes)
    experiment = experiments.find(target)
    return plans.get(experiment.main if experiment else "", next(iter(plans.values())))


def _from_file(path: str, wishes: Wishes) -> Plan:
    plan = Plan.load(path)
    experiments.require_allowed(plan.problem, wishes.allow, "add --allow {}")
    if wishes.num_agents or wishes.graph:
        plan = plan.replace(graph=_graph(wishes.graph or plan.graph.name, wishes.num_agents or plan.num_agents))
    return plan.replace(num_steps=wishes.num_steps) if wishes.num_steps and not plan.sampler.tunes_itself else plan


def _from_module(
    reference: str, wishes: Wishes, only_weighed: bool, before_suggesting: Callable[[], None]
) -> Resolved:
    count = wishes.num_agents or experiments.import_problem(reference, None).num_agents
    graph = _graph(wishes.graph or "ring", count)
    own = _Own(reference, {"problem": reference}, lambda: _seen_here(reference, count))
    return _own_plan(own, graph, wishes, only_weighed, before_suggesting)


def _from_study(path: str, wishes: Wishes, only_weighed: bool, before_suggesting: Callable[[], None]) -> Resolved:
    """The plan of a study: as many sites as files; what its codebook leaves open is filled from the files."""
    study = Study.load(path)
    found: tuple[str, ...] = ()
    count = wishes.num_agents or len(wishes.data)
    if not count:
        raise PlanError(
            f"{path} does not say how many sites there are: give --data FILE once for each of them, or --agents "
            "where the files are elsewhere"
        )
    if wishes.data and len(wishes.data) != count:
        raise PlanError(f"--agents {count}, but there are {len(wishes.data)} files: give --data once for each agent")
    if study.unfilled and wishes.data:
        before_suggesting()
        study, found = fill_from_files(study, wishes.data)
    elif study.unfilled and (wishes.auto or only_weighed):
        raise PlanError(f"{path} leaves {', '.join(study.unfilled)} to the sites: give their files with --data")
    elif study.unfilled and wishes.implied is None:  # its model is not known yet
        wishes = dataclasses.replace(wishes, sampler="hmc" if study.parsed.site_terms else "nuts")
    wishes = _careful(study, wishes)
    graph = _graph(wishes.graph or ("complete" if count <= _FEW_SITES else "ring"), count)
    own = _Own(path, {"study": study.entries()}, study.model)
    resolved = _own_plan(own, graph, wishes, only_weighed, before_suggesting)
    return resolved._replace(reasons=(*found, *resolved.reasons))


def _careful(study: Study, wishes: Wishes) -> Wishes:
    """Smaller steps for effects of sites: few sites leave their spread open, and large steps diverge there."""
    says = wishes.implied not in (None, "hmc") or "target_acceptance" in wishes.numbers
    if study.parsed.site_terms is None or says:
        return wishes
    return dataclasses.replace(wishes, numbers={**wishes.numbers, "target_acceptance": _CAREFUL_ACCEPTANCE})


class _Own(NamedTuple):
    """A problem of the user's own: what it is called, the entry of a plan for it, and its model."""

    name: str
    entry: dict[str, Any]
    model: Callable[[], Problem]


def _own_plan(
    own: _Own, graph: Graph, wishes: Wishes, only_weighed: bool, before_suggesting: Callable[[], None]
) -> Resolved:
    kind = wishes.sampler or (DEFAULT_SAMPLER if only_weighed else wishes.implied)
    if kind is None:
        return _by_default(own, graph, wishes)
    wishes.require_fitting(kind)
    sampler = SAMPLERS[kind].from_numbers(graph, wishes.numbers)
    if sampler is not None and sampler.tunes_itself:
        return Resolved(Plan(**own.entry, graph=graph, sampler=sampler, **wishes.entries))
    steps = wishes.num_steps or (_ANY_STEPS if only_weighed else None)
    if steps is None and wishes.auto:
        raise PlanError(
            f"{own.name} is your own problem: --auto chooses the step sizes of {kind} for a number of steps, so say "
            f"how many, with --steps; or leave out --auto: then {' or '.join(SELF_TUNING)} samples it, tuning itself"
        )
    if steps is None or not (sampler or only_weighed or wishes.auto or wishes.sampler):
        raise PlanError(
            f"{own.name} is your own problem: for {kind} say how to sample it with --steps and --step-size (or "
            f"--auto); with none of its options it is sampled by {' or '.join(SELF_TUNING)}, which tune themselves"
        )
    plan = _stand_in(Plan, kind, graph, steps, sampler, **own.entry, **wishes.entries)
    unsaid = _unsaid(wishes)
    return _with_sampler(plan, plan.sampler if only_weighed else sampler, wishes, before_suggesting, unsaid)


def _by_default(own: _Own, graph: Graph, wishes: Wishes) -> Resolved:
    """The plan where nobody names a sampler or says anything of steps."""
    from consilience.planning.defaults import default_sampler

    sampler = _with_numbers(default_sampler(own.model()), wishes.numbers)
    plan = Plan(**own.entry, graph=graph, sampler=sampler, **wishes.entries)
    return Resolved(plan, () if plan.is_unison else (_LARGE,))


def _seen_here(reference: str, num_agents: int) -> Problem:
    """The model, with the rows of one agent alone if the module makes them one by one: any agent's that are here."""
    for agent in range(num_agents):
        try:
            return experiments.import_problem(reference, num_agents, [agent])
        except ProblemError as error:
            failure = error
    raise PlanError(
        f"{reference} makes no agent's problem here, and what its parameters are decides the sampler: name it, with "
        f"--sampler nuts, or --sampler hmc if some are private (the last agent's failed so: {failure})"
    )


def _stand_in(
    make: Callable[..., Plan], kind: str, graph: Graph, num_steps: int, own: Sampler | None = None, **entries: Any
) -> Plan:
    """A plan with a sampler that counts steps; its numbers are made up if they are not known yet."""
    sampler = own or _with_some_numbers(SAMPLERS[kind], graph, num_steps)
    return make(graph=graph, sampler=sampler, num_steps=num_steps, **entries)


def _with_some_numbers(kind: type[Sampler], graph: Graph, num_steps: int) -> Sampler:
    assert issubclass(kind, Gossip)  # others need none
    return kind.suggest(_NOTHING_KNOWN, graph, num_steps).sampler


def _unsaid(wishes: Wishes) -> tuple[str, ...]:
    from consilience.planning.suggestions import LENGTHS

    return tuple(name for name in LENGTHS if name not in wishes.entries)


def _with_sampler(
    draft: Plan,
    own: Sampler | None,
    wishes: Wishes,
    before_suggesting: Callable[[], None],
    unsaid: tuple[str, ...] = (),
) -> Resolved:
    """The plan with its own sampler, or with one whose numbers are chosen for it; the wished numbers hold in both."""
    kind = wishes.sampler or draft.sampler.kind
    has_numbers = (
        own is not None and own.kind == kind and not (own.tunes_itself or wishes.counts_draws or wishes.auto)
    )
    if not has_numbers:
        wishes.require_fitting(kind)
    if SAMPLERS[kind].tunes_by_default and not has_numbers:
        return Resolved(_tuning_itself(draft, kind, wishes))
    if draft.sampler.tunes_itself:
        if wishes.num_steps is None:
            raise PlanError(f"the plan counts draws, and {kind} counts steps: say how many with --steps")
        draft, own = _stand_in(draft.replace, kind, draft.graph, wishes.num_steps), None
        unsaid = _unsaid(wishes)
    draft = draft.replace(**wishes.entries)
    if own is not None and own.kind == kind and not wishes.auto:
        return Resolved(draft.replace(sampler=_with_numbers(own, wishes.numbers)), unsaid=unsaid)
    before_suggesting()
    from consilience.planning.suggestions import suggest

    problem = experiments.load_problem(draft, data=wishes.data)
    found = suggest(problem, draft.graph, draft.num_steps, draft, sampler=kind, choose=unsaid).practical
    chosen = _with_numbers(found.plan.sampler, wishes.numbers)
    return Resolved(found.plan.replace(sampler=chosen), found.reasons)


def _tuning_itself(draft: Plan, kind: str, wishes: Wishes) -> Plan:
    """The plan with a sampler that needs no numbers."""
    if draft.batch_size is not None and kind in IN_UNISON:
        raise PlanError(
            f"the plan has minibatches of {draft.batch_size} rows, and {kind} needs the gradients of all rows: take "
            + " or ".join(f"--sampler {name}" for name in SAMPLERS if name not in IN_UNISON)
        )
    keeps = draft.sampler.tunes_itself or not (wishes.counts_draws or wishes.auto)
    fits = draft.sampler.kind == kind and keeps
    own = draft.sampler if fits else SAMPLERS[kind].from_numbers(draft.graph, {})
    assert own is not None  # it needs no numbers
    entries, experiment = dict(wishes.entries), experiments.find(draft.problem)
    says = draft.sampler.tunes_itself or {"num_draws", "max_draws"} & set(entries)
    if isinstance(experiment, experiments.Repeating) and not says:
        every = entries.get("store_every", own.defaults.store_every)
        entries = {"num_chains": draft.num_chains, "num_draws": experiment.num_draws(draft, every), **entries}
    return draft.replace(sampler=_with_numbers(own, wishes.numbers), **entries)


def _with_numbers(sampler: Sampler, numbers: Mapping[str, float]) -> Sampler:
    """The sampler with some of its entries replaced by numbers."""
    require_taken(type(sampler), sampler.kind, numbers)
    if not numbers:
        return sampler
    entries = {name: getattr(sampler, name) for name in type(sampler).model_fields}
    return type(sampler)(**{**entries, **numbers})


def _graph(family: str, num_agents: int) -> Graph:
    if family == "edges":
        raise GraphError("the plan lists its edges: to change the number of agents, name a --graph too")
    return graphs.named(family, num_agents)
