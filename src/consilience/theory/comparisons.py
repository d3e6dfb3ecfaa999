"""What another graph or another number of agents would change, by the theory, without sampling.

Every choice keeps the data, the step sizes and the distance of the consensus step from instability (`β_0 λ_max`). The
last columns are about the theorems: with `a = C_a^{1/3}/n^γ` and `γ = 3`, Theorem 2 promises that the late part of
its bound falls like `1/n`. What that is worth shows in the number of steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from consilience import graphs
from consilience.errors import PlanError, ProblemError, UnstableError
from consilience.graphs import Graph
from consilience.plans import Plan
from consilience.problems import Problem
from consilience.samplers import DULA, dula
from consilience.samplers.consensus import default_consensus
from consilience.theory.analysis import Analysis, analyse
from consilience.theory.dula_only import require_dula
from consilience.theory.exact import gaussian_divergence
from consilience.theory.gaussian import GaussianNetwork, Moments
from consilience.theory.iterations import polynomial_total, steps_needed
from consilience.theory.magnitudes import Magnitude
from consilience.theory.potentials import Potentials
from consilience.theory.prediction import predict
from consilience.theory.proven import proven_sampler

GAMMA = 3.0
_STEPS = 20_000
_SECONDS = 4.0


@dataclass(frozen=True)
class Comparison:
    """One graph with one number of agents.

    Attributes:
        graph: the family.
        num_agents: `n`.
        connectivity: `λ_2(L)`.
        largest_eigenvalue: `λ_max(L)`.
        consensus: `β_0`.
        agreement: by what factor the first step shrinks disagreement at least, `max_j |1 − β_0 λ_j|`.
        smoothness: `L`.
        consensus_error: `E‖w̃‖²` where the plan ends: in the stationary law of its last step sizes; `None` if that
            is unstable.
        divergence: `KL(p ‖ p*)` of the average there: the bias that is left.
        steps: steps until `KL ≤ ε`; `None` if that takes more than could be followed.
        proven_scale: `a` for `γ = 3`.
        promised: `n^{2−γ}`, the factor that Theorem 2 promises.
        late_scale: `Q_2`, the scale of the late part of the bound.
        proven_steps: `k*` of Corollary 1.
        exact: whether the problem is Gaussian; otherwise the figures are those of its normal approximation.
    """

    graph: str
    num_agents: int
    connectivity: float
    largest_eigenvalue: float
    consensus: float
    agreement: float
    smoothness: float
    consensus_error: float | None
    divergence: float | None
    steps: int | None
    proven_scale: float
    promised: float
    late_scale: Magnitude
    proven_steps: Magnitude
    exact: bool

    def to_dict(self) -> dict[str, Any]:
        """The comparison as plain values; what may be too large for a float as text."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: str(value) if isinstance(value, Magnitude) else value for name, value in values.items()}


ProblemFor = Callable[[Plan], Problem]


def compare(
    problem: Problem, plan: Plan, choices: Mapping[str, Sequence[str]], tolerance: float,
    show: Callable[[str], None] = lambda _: None, draws: np.ndarray | None = None,
    problem_for: ProblemFor | None = None,
) -> list[Comparison]:  # fmt: skip
    """Compare graphs and numbers of agents.

    Args:
        problem: the plan's problem.
        plan: the plan to vary.
        choices: `graph` and `agents`, each with some values; what is missing stays as in the plan.
        tolerance: `ε`.
        show: called with what is looked at next.
        draws: `(count, size)` draws from about the posterior, for a problem whose spread is not known otherwise.
        problem_for: makes the problem of a plan for another number of agents, if there is a way to make it; otherwise
            its data is split anew.
    """
    sampler, rows = require_dula(plan.sampler), []
    for family, num_agents in _combinations(plan, choices):
        show(f"{family} of {num_agents}")
        graph = _graph(plan, family, num_agents)
        analysis = analyse(Potentials(_problem(problem, plan, graph, problem_for)), graph, draws)
        rows.append(_row(analysis, plan, sampler, tolerance))
    return rows


def parse_choices(words: Sequence[str]) -> dict[str, list[str]]:
    """`["graph=ring,star", "agents=5,10"]` as a mapping.

    >>> parse_choices(["graph=ring,star", "agents=5,10"])
    {'graph': ['ring', 'star'], 'agents': ['5', '10']}
    """
    choices: dict[str, list[str]] = {}
    for word in words:
        name, equals, values = word.partition("=")
        if not equals or name not in ("graph", "agents") or not all(values.split(",")):
            raise PlanError(f"cannot compare {word!r}: write graph=ring,star or agents=5,10")
        if name == "agents" and not all(value.isdigit() and int(value) for value in values.split(",")):
            raise PlanError(f"cannot compare {word!r}: numbers of agents are whole and positive")
        choices[name] = values.split(",")
    return choices


def _combinations(plan: Plan, choices: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, int]]:
    for family in choices.get("graph", [plan.graph.name]):
        for num_agents in choices.get("agents", [str(plan.num_agents)]):
            yield family, int(num_agents)


def _graph(plan: Plan, family: str, num_agents: int) -> Graph:
    if family == plan.graph.name and num_agents == plan.num_agents:
        return plan.graph
    if family == "edges":
        raise PlanError("the plan lists its edges: name a family too, for example graph=ring agents=5,10")
    return graphs.named(family, num_agents)


def _problem(problem: Problem, plan: Plan, graph: Graph, problem_for: ProblemFor | None) -> Problem:
    """The problem for another number of agents: made for them, or else its data split anew."""
    if graph.num_agents == problem.num_agents:
        return problem
    if problem_for is not None:
        made = problem_for(plan.replace(graph=graph))
        if made.num_agents == graph.num_agents:
            return made
    return problem.divided(graph.num_agents)


def _row(analysis: Analysis, plan: Plan, own: DULA, tolerance: float) -> Comparison:
    network, graph = analysis.network, analysis.network.graph
    n = graph.num_agents
    sampler = dula(own.step_size, _consensus(plan, own, graph), own.temperature)
    steps = predict(analysis, sampler, _STEPS, exact_seconds=_SECONDS).steps_to(tolerance)["exact"]
    inner = proven_sampler(analysis, graph, GAMMA)
    inside = predict(analysis, inner, _STEPS, exact_seconds=1.0).divergence_bound
    if inside is None:
        raise ProblemError(f"no step size is inside the theorems for {n} agents")
    last = _end(network, sampler, plan.num_steps - 1)
    pull = float(sampler.consensus(0))
    slowest, fastest = graph.algebraic_connectivity, graph.largest_eigenvalue if graph.num_edges else 0.0
    return Comparison(
        graph=graph.name,
        num_agents=n,
        connectivity=slowest,
        largest_eigenvalue=fastest,
        consensus=pull,
        agreement=max(abs(1 - pull * slowest), abs(1 - pull * fastest)) if graph.num_edges else 0.0,
        smoothness=float(analysis.constants.smoothness.value),
        consensus_error=None if last is None else network.consensus_error(last),
        divergence=None if last is None else float(gaussian_divergence(network.average(last), network.posterior)),
        steps=None if steps is None else int(float(steps)),
        proven_scale=float(inner.step_size(0)),
        promised=float(n ** (2 - GAMMA)),
        late_scale=polynomial_total(inside),
        proven_steps=steps_needed(inside, tolerance),
        exact=analysis.gaussian,
    )


def _consensus(plan: Plan, own: DULA, graph: Graph) -> Any:
    """The plan's consensus schedule, as far from instability on the other graph as on its own."""
    if not graph.num_edges or not plan.graph.num_edges:
        return default_consensus(graph)
    return own.consensus.times(plan.graph.largest_eigenvalue / graph.largest_eigenvalue)


def _end(network: GaussianNetwork, sampler: Any, k: int) -> Moments | None:
    try:
        return network.stationary(sampler, k)
    except UnstableError:
        return None
