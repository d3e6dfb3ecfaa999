"""How a plan's `problem` entry becomes a problem: an experiment's, or the attribute of a module."""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from consilience.errors import ConsilienceError, DataError, PlanError, ProblemError
from consilience.experiments.catalogue import EXPERIMENTS, find
from consilience.plans import Plan
from consilience.problems import Problem


def require_allowed(reference: str | None, allowed: Sequence[str], remedy: str) -> None:
    """Check that a plan from a file names what Consilience has, or a module that somebody here has allowed.

    To load a module is to run it, and a plan may come from anywhere.

    Args:
        reference: the plan's entry `problem`.
        allowed: modules, or packages with all that is in them.
        remedy: what to do if it is not allowed, with `{}` where the module's name belongs.
    """
    if reference is None or find(reference) is not None:
        return
    module, _ = _parts(reference)
    if not any(module == one or module.startswith(f"{one}.") for one in allowed):
        raise PlanError(
            f"the plan names {reference!r}, which would run the module {module!r}: if you trust it, "
            + remedy.format(module)
        )


def _parts(reference: str) -> tuple[str, str]:
    """Module and attribute of `module:attribute`."""
    module, _, attribute = reference.partition(":")
    if not attribute.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        known = ", ".join(EXPERIMENTS)
        raise PlanError(
            f"unknown experiment {reference!r}: choose one of {known}, or give module:attribute"
            + _like(reference, EXPERIMENTS)
        )
    return module, attribute


def _like(name: str, known: Iterable[str]) -> str:
    """What somebody may have meant, as the end of a message; nothing if no name is near.

    >>> _like("goood", ["good", "_hidden"])
    ": did you mean 'good'?"
    """
    near = difflib.get_close_matches(name, [one for one in known if not one.startswith("_")], 1)
    return f": did you mean {near[0]!r}?" if near else ""


def load_problem(plan: Plan, agents: Sequence[int] | None = None, data: Sequence[str | Path] = ()) -> Problem:
    """The problem that a plan names: an experiment's, the attribute of a module, or a study with its files.

    With agents, their part alone; an experiment, or a module's function that takes an agent, then makes no other's.

    Args:
        plan: what names it.
        agents: whose shards to load; by default all.
        data: for a study, one file for each agent of the plan; only those of `agents` are read.
    """
    if plan.study is not None:
        return _study_problem(plan, agents, data)
    if data:
        raise PlanError("--data is for a study, STUDY.toml: other problems have their own data")
    if plan.problem is None:
        raise PlanError(
            'the plan names no problem: add `problem = "gmm"` or `problem = "module:attribute"` to it, or '
            "use consilience.sample(problem, plan) and consilience.resume(run, problem) in Python"
        )
    experiment = find(plan.problem)
    if experiment is not None:
        found = experiment.problem_of(plan, agents)
    else:
        found = import_problem(plan.problem, plan.num_agents, agents)
    return found if agents is None or found.network_size is not None else found.of_agents(agents)


def _study_problem(plan: Plan, agents: Sequence[int] | None, data: Sequence[str | Path]) -> Problem:
    from consilience import studies

    study = studies.of_run(plan)
    assert study is not None
    if len(data) != plan.num_agents:
        given = f"{len(data)} file{'s' * (len(data) != 1)} given" if data else "none is given"
        raise DataError(
            f"the study has {plan.num_agents} sites, each with a file of its own, and {given}: name one for each, in "
            "their order, with --data FILE"
        )
    if agents is None:
        return study.problem(data)
    return study.sites_problem([data[agent] for agent in agents], plan.num_agents)


def sized_problem(plan: Plan, data: Sequence[str | Path] = ()) -> tuple[Problem, bool]:
    """A problem of the size that a plan asks for, to weigh it, and whether its data are repeated.

    An experiment with too few data for so many agents lends them those of its own network, over and over.
    """
    try:
        return load_problem(plan, data=data), False
    except (ProblemError, DataError):
        experiment = find(plan.problem)
        if experiment is None:
            raise
        own = experiment.plans()[experiment.main]
        small = experiment.problem_of(own.replace(num_chains=plan.num_chains, seed=plan.seed))
        repeated = small.of_agents([agent % small.num_agents for agent in range(plan.num_agents)])
        return replace(repeated, network_size=None), True


def import_problem(reference: str, num_agents: int | None, agents: Sequence[int] | None = None) -> Problem:
    """The problem at `module:attribute`: a `Problem`, or a function of the number of agents that makes one.

    A function of the number of agents and an agent returns a problem with that agent's shard alone; it is called for
    the given agents, which so load no other's data, or for all of them.
    """
    module_name, attribute = _parts(reference)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise PlanError(
            f"{reference!r}: there is no module {error.name!r} here; give the command in the directory that holds it"
        ) from None
    if not hasattr(module, attribute):
        raise PlanError(f"the module {module_name!r} has no attribute {attribute!r}{_like(attribute, vars(module))}")
    found = getattr(module, attribute)
    if isinstance(found, Problem):
        return found
    if callable(found):
        wanted = len(inspect.signature(found).parameters)
        if wanted and num_agents is None:
            raise PlanError(f"{reference} is a function of the number of agents: give --agents")
        if wanted == 2:
            return _of_agents(found, num_agents or 1, agents)
        made = found(num_agents) if wanted else found()
        if isinstance(made, Problem):
            return made
    raise ProblemError(f"{reference} is neither a Problem nor a function that returns one")


def _of_agents(function: Any, num_agents: int, agents: Sequence[int] | None) -> Problem:
    """The problem of some agents, or of all of them put together, from a function that makes single ones."""
    made = [_made(function, num_agents, one) for one in (range(num_agents) if agents is None else agents)]
    for one in made:
        if not isinstance(one, Problem) or len(one.shards) != 1:
            raise ProblemError("a function of the number of agents and an agent must return a Problem with one shard")
    size = None if agents is None else num_agents
    init = [one.inits[0] for one in made] if made[0].private else made[0].init  # they may differ in length
    return replace(made[0], init=init, shards=[one.shards[0] for one in made], network_size=size)


def _made(function: Any, num_agents: int, agent: int) -> Any:
    try:
        return function(num_agents, agent)
    except ConsilienceError:
        raise
    except Exception as error:  # it is the user's function, and may fail in any way
        raise ProblemError(
            f"{function.__module__}:{function.__name__} failed for agent {agent} ({type(error).__name__}: {error}): "
            "is its data on this machine?"
        ) from error
