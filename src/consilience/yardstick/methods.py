"""The methods of the table: what each is, and how it is set up where nothing is tuned by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from consilience.graphs import Graph
from consilience.planning.suggestions import suggest
from consilience.plans import Plan
from consilience.problems import Problem
from consilience.samplers import dula, hmc, kinetic, langevin, nuts
from consilience.samplers.consensus import default_consensus
from consilience.schedules import Polynomial

_FIRST_DRAWS = {"nuts": 3000, "hmc": 2000, "kinetic": 1600, "langevin": 2000}
"""Of each chain: about as many as 5,000 effective ones take on a posterior that is near normal."""
_COUNTED_CHAINS, _COUNTED_DRAWS = 4, 2500
_OFFSET, _DECAY, _CONSENSUS_DECAY = 230.0, 0.55, 0.05

MakePlan = Callable[[Problem, Graph, int], Plan]


class Method(NamedTuple):
    """A row of the table of methods."""

    title: str
    plan: MakePlan | None = None
    """From problem, graph and budget; `None` for what every agent does alone."""
    has_agents: bool = True
    """Whether rows are split among agents."""
    in_unison: bool = False
    """Whether agents exchange nothing but sums, which are the same over every graph."""

    @property
    def has_graph(self) -> bool:
        """Whether messages travel over a network."""
        return self.has_agents and self.plan is not None


def _in_unison(problem: Problem, graph: Graph, budget: int) -> Plan:
    """NUTS, or HMC where some parameters are private."""
    sampler = hmc() if problem.private else nuts()
    return Plan(graph=graph, sampler=sampler, num_draws=_FIRST_DRAWS[sampler.kind])


def _corrected(sampler: Callable[[], object]) -> MakePlan:
    def plan(problem: Problem, graph: Graph, budget: int) -> Plan:
        made = Plan(graph=graph, sampler=sampler(), num_draws=4)
        most = max(200, budget // made.store_every)
        return made.replace(num_draws=min(_FIRST_DRAWS[made.sampler.kind], most))

    return plan


def _counting_steps(kind: str) -> MakePlan:
    """A sampler whose step sizes and burn-in `suggest` chooses for the budget."""

    def plan(problem: Problem, graph: Graph, budget: int) -> Plan:
        chosen = suggest(problem, graph, budget, sampler=kind).practical.plan
        store_every = max(1, (budget - chosen.burn_in) // _COUNTED_DRAWS)
        return chosen.replace(store_every=store_every, num_chains=_COUNTED_CHAINS, dtype="float64")

    return plan


def _papers_schedule(problem: Problem, graph: Graph, budget: int) -> Plan:
    """The exponents and the offset that the paper has for a9a; the first step is the one that `suggest` finds stable.

    The paper's own first step, 0.00082, was chosen for the curvature of its data.
    """
    suggested = _counting_steps("dula")(problem, graph, budget)
    first = float(suggested.sampler.step_size(0))  # type: ignore[attr-defined]
    step_size = Polynomial(scale=first * _OFFSET**_DECAY, offset=_OFFSET, exponent=_DECAY)
    pull = default_consensus(graph)
    consensus = Polynomial(scale=pull * _OFFSET**_CONSENSUS_DECAY, offset=_OFFSET, exponent=_CONSENSUS_DECAY)
    return suggested.replace(sampler=dula(step_size, consensus))


METHODS = {
    "pooled": Method("NUTS on the pooled data", _in_unison, has_agents=False, in_unison=True),
    "nuts": Method("NUTS in unison (HMC with private parameters)", _in_unison, in_unison=True),
    "kinetic": Method("corrected kinetic Langevin", _corrected(kinetic)),
    "langevin": Method("corrected Langevin", _corrected(langevin)),
    "dula": Method("D-ULA, suggested step sizes", _counting_steps("dula")),
    "dula-paper": Method("D-ULA, the paper's schedule", _papers_schedule),
    "sghmc": Method("DE-SGHMC, suggested step sizes", _counting_steps("sghmc")),
    "consensus": Method("consensus Monte Carlo"),
    "parametric": Method("parametric product of subposteriors"),
    "semiparametric": Method("semi-parametric product of subposteriors"),
    "one-shot": Method("Gaussian product of modes and curvatures"),
}
"""By the names of the command line."""
