"""A cell whose method samples over a network: its run, made longer once if its draws are too few to judge it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from consilience import graphs
from consilience.kernel.parameters import Parameters
from consilience.plans import Plan
from consilience.posteriors import Posterior
from consilience.posteriors.posterior import Split
from consilience.problems import Problem
from consilience.runs.loop import ShowProgress
from consilience.sampling.run import Run
from consilience.sampling.sample import is_finished, resume, sample
from consilience.yardstick.cells import Cell, Request
from consilience.yardstick.measures import ESS_GOAL, judged
from consilience.yardstick.methods import METHODS, MakePlan
from consilience.yardstick.spending import spent

_MARGIN, _MOST_DRAWS = 1.25, 25_000

ShowRun = Callable[[Plan], ShowProgress | None]


def problem_of(posterior: Posterior, cell: Cell, seed: int) -> Problem:
    """The rows of a posterior, split as the cell says, without what would be predicted of them."""
    if cell.num_agents == 1:
        problem = posterior.problem("random", 1, seed)
    elif cell.split == "random":
        problem = posterior.problem("random", cell.num_agents, seed)
    else:
        problem = posterior.problem("natural")
    return dataclasses.replace(problem, outcomes=None, derived=None)


def sampled(posterior: Posterior, cell: Cell, request: Request, where: Path, show: ShowRun) -> dict[str, Any]:
    """The measures of a cell, from a run that is made, or resumed, in its directory."""
    problem, make = problem_of(posterior, cell, request.seed), METHODS[cell.method].plan
    assert make is not None
    short, longer = where / "run", where / "longer"
    if not longer.exists():
        begun = (short / "plan.toml").is_file()
        run = finished(problem, short, Run(short).plan if begun else _first(problem, cell, request, make), show)
        found = _measured(posterior, cell, problem, run)
        plan = _lengthened(run.plan, found, request.budget)
        if plan is None:
            return found
    else:
        plan = Run(longer).plan
    return _measured(posterior, cell, problem, finished(problem, longer, plan, show))


def finished(problem: Problem, path: Path, plan: Plan, show: ShowRun) -> Run:
    """The run of a plan at a path: as it is there, resumed, or made."""
    if not (path / "plan.toml").is_file():
        return sample(problem, plan, path, progress=show(plan))
    return Run(path) if is_finished(path) else resume(path, problem, progress=show(plan))


def _first(problem: Problem, cell: Cell, request: Request, make: MakePlan) -> Plan:
    graph = graphs.named("ring" if cell.num_agents == 1 else cell.graph, cell.num_agents)
    return make(problem, graph, request.budget).replace(seed=request.seed)


def _lengthened(plan: Plan, found: dict[str, Any], budget: int) -> Plan | None:
    """The plan with as many draws as the goal takes; `None` if it has enough, or may not have more."""
    ess = min(found["ess_mean"], found["ess_square"])
    if not plan.sampler.tunes_itself or plan.num_draws is None or ess >= ESS_GOAL:
        return None
    most = _MOST_DRAWS
    if not plan.is_unison:
        most = min(most, int(plan.num_draws * budget / (found["rounds"] - found["warmup_rounds"])))
    wanted = min(most, math.ceil(plan.num_draws * _MARGIN * ESS_GOAL / max(ess, 1.0)))
    return plan.replace(num_draws=wanted) if wanted > 1.1 * plan.num_draws else None


def _measured(posterior: Posterior, cell: Cell, problem: Problem, run: Run) -> dict[str, Any]:
    """What the run's draws are worth, and what they took."""
    split: Split = "natural" if cell.split == "natural" else "random"
    agents = range(cell.num_agents) if "agent" in run.draws.dims or problem.private else [0]  # else all are the same
    draws, references = [], []
    for agent in agents:
        own = run.agents[agent]
        arrays = {name: own[name].to_numpy() for name in own.attrs["parameters"]}
        draws.append(posterior.measured(arrays, split, agent))
        references.append(posterior.reference.at(posterior.places(split, agent)))
    summary, found = run.summary, judged(draws, references)
    with jax.enable_x64(True):
        num_shared = Parameters.of(problem, np.float64).num_shared
    return {
        **found,
        **spent(run.plan, summary, found, num_shared),
        "divergences": summary.get("divergences"),
        "converged": summary["converged"],
        "verdict": summary["verdict"],
        "sampler": summary["method"],
        "chains": run.plan.num_chains,
        "draws": summary["num_draws"],
        "run": run.path.name,
    }
