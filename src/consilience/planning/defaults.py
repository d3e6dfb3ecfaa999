"""The plan where nobody says anything: a sampler that tunes itself, until it has converged.

Up to 2,000 shared parameters in unison: NUTS if all parameters are shared, HMC if some are private. Both need every
agent to hold all shared parameters of all chains, and a sum of that many numbers over the network for each leapfrog
step. Larger models are sampled by gossip, with `kinetic`, which needs no numbers either.
"""

from __future__ import annotations

import jax
import numpy as np

from consilience.graphs import Graph
from consilience.kernel.parameters import Parameters
from consilience.plans import Plan
from consilience.problems import Problem
from consilience.samplers import Sampler, hmc, kinetic, nuts

MOST_SHARED = 2000


def default_sampler(problem: Problem) -> Sampler:
    """In unison for a problem that is small enough, by gossip for a larger one."""
    with jax.enable_x64(True):
        count = Parameters.of(problem, np.float64).num_shared
    if count > MOST_SHARED:
        return kinetic()
    return hmc() if problem.private else nuts()


def default_plan(problem: Problem, graph: Graph) -> Plan:
    """The plan for a problem on a graph, with nothing else said."""
    return Plan(graph=graph, sampler=default_sampler(problem))
