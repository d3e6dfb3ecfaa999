"""The plan where nobody says anything: a sampler in unison, four chains, until it has converged.

NUTS if all parameters are shared, HMC if some are private; both need every agent to hold all shared parameters of all
chains, and a sum of that many numbers over the network for each leapfrog step. So the rule: up to 2,000 shared
parameters. Larger models need a sampler by gossip, which is to be named: `kinetic` needs no numbers either.
"""

from __future__ import annotations

import jax
import numpy as np

from consilience.errors import PlanError
from consilience.graphs import Graph
from consilience.kernel.parameters import Parameters
from consilience.plans import Plan
from consilience.problems import Problem
from consilience.samplers import Unison, hmc, nuts

MOST_SHARED = 2000


def default_sampler(problem: Problem) -> Unison:
    """The sampler in unison for a problem that is small enough."""
    with jax.enable_x64(True):
        count = Parameters.of(problem, np.float64).num_shared
    if count > MOST_SHARED:
        raise PlanError(
            f"the model has {count:,} shared parameters: up to {MOST_SHARED:,} are sampled in unison without being "
            "told how; for this one name a sampler by gossip, cs.kinetic() in a Plan or --sampler kinetic"
        )
    return hmc() if problem.private else nuts()


def default_plan(problem: Problem, graph: Graph) -> Plan:
    """The plan for a problem on a graph, with nothing else said."""
    return Plan(graph=graph, sampler=default_sampler(problem))
