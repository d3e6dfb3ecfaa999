"""What the command line can run: an experiment, a plan file, or a problem in a module; all become plans."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from consilience import experiments, graphs
from consilience.errors import GraphError, PlanError
from consilience.graphs import Graph
from consilience.plans import Plan
from consilience.samplers import dula

_ANY_STEP_SIZE = 1e-9
_ANY_STEPS = 1000


def plans_for(
    target: str,
    *,
    num_agents: int | None = None,
    graph: str | None = None,
    num_steps: int | None = None,
    step_size: float | None = None,
    consensus: float | None = None,
    temperature: float | None = None,
    auto: bool = False,
    only_weighed: bool = False,
    **changes: Any,
) -> dict[str, Plan]:
    """The plans that a target stands for: one called `run`, or one for each run of an experiment's study.

    Args:
        target: the name of an experiment, the path of a plan file, or `module:attribute`.
        num_agents: the size of the network; without it (and without `graph`) an experiment is its whole study.
        graph: the family of the graph.
        num_steps: how many steps.
        step_size: a constant step size.
        consensus: a constant consensus step.
        temperature: the temperature.
        auto: the step sizes will be chosen by `suggest`, so none need be given.
        only_weighed: the plan will not be sampled; steps and step sizes that your own problem needs are made up.
        changes: other entries of the plan; `None` leaves them as they are.
    """
    if auto and (step_size is not None or consensus is not None):
        raise PlanError("--auto chooses the step sizes: leave out --step-size and --consensus, or --auto")
    changes = {name: value for name, value in changes.items() if value is not None}
    experiment = experiments.find(target)
    if experiment is not None:
        drafts = experiment.plans(num_steps)
        if num_agents is not None or graph is not None:
            n = num_agents or drafts[experiment.main].num_agents
            drafts = {"run": experiment.plan(n, graphs.named(graph or "ring", n), num_steps)}
    elif target.endswith(".toml") or Path(target).is_file():
        drafts = {"run": _from_file(target, num_agents, graph)}
        changes = {**changes, "num_steps": num_steps} if num_steps else changes
    else:
        first = _ANY_STEP_SIZE if auto or only_weighed else step_size
        steps = _ANY_STEPS if only_weighed and num_steps is None else num_steps
        drafts = {"run": _from_module(target, num_agents, graph, steps, first, consensus)}
    return {name: _changed(draft, step_size, consensus, temperature, changes) for name, draft in drafts.items()}


def main_plan(target: str, **options: Any) -> Plan:
    """The one plan that a target stands for: of a study, that of its main network."""
    plans = plans_for(target, **options)
    experiment = experiments.find(target)
    return plans.get(experiment.main if experiment else "", next(iter(plans.values())))


def _from_file(path: str, num_agents: int | None, graph: str | None) -> Plan:
    plan = Plan.load(path)
    if num_agents or graph:
        plan = plan.replace(graph=_graph(graph or plan.graph.name, num_agents or plan.num_agents))
    return plan


def _from_module(
    reference: str,
    num_agents: int | None,
    graph: str | None,
    num_steps: int | None,
    step_size: float | None,
    consensus: float | None,
) -> Plan:
    count = num_agents or experiments.import_problem(reference, None).num_agents
    if num_steps is None or step_size is None:
        raise PlanError(
            f"{reference} is your own problem: say how to sample it with --steps and --step-size (or --auto)"
        )
    network = _graph(graph or "ring", count)
    pull = consensus or (0.9 * network.proven_consensus_limit if network.num_edges else 1.0)
    return Plan(problem=reference, graph=network, sampler=dula(step_size, pull), num_steps=num_steps)


def _graph(family: str, num_agents: int) -> Graph:
    if family == "edges":
        raise GraphError("the plan lists its edges: to change the number of agents, name a --graph too")
    return graphs.named(family, num_agents)


def _changed(
    plan: Plan,
    step_size: float | None,
    consensus: float | None,
    temperature: float | None,
    changes: dict[str, Any],
) -> Plan:
    sampler = plan.sampler
    if step_size is not None or consensus is not None or temperature is not None:
        sampler = dula(
            sampler.step_size if step_size is None else step_size,
            sampler.consensus if consensus is None else consensus,
            sampler.temperature if temperature is None else temperature,
        )
    return plan.replace(sampler=sampler, **changes)
