"""A warm-up of a corrected sampler, made to learn about a problem: where its posterior lies and how it is curved.

It is the warm-up that a run of that sampler begins with, with all agents in this process.
"""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any, NamedTuple

import jax

from consilience.engines.simulate import Simulation
from consilience.engines.warmed import Warmed, WarmedStepper
from consilience.errors import SamplingWarning
from consilience.graphs import Graph
from consilience.kernel.curvature import largest_curvature
from consilience.plans import Plan
from consilience.problems import Problem
from consilience.samplers import Corrected, Landscape, kinetic
from consilience.warmup.landscape import landscape

_FEWEST_DRAWS = 4


class Explored(NamedTuple):
    """What a warm-up found."""

    found: dict[str, Any]
    """As a run's summary has it, under `adaptation`."""
    landscape: Landscape


def explore(problem: Problem, graph: Graph, base: Plan | None = None) -> Explored:
    """Warm up on a graph; with the rows, minibatches and seed of a plan, and its sampler if that warms up.

    Of a problem whose chains have data of their own it is the first chain's.
    """
    plan = exploring_plan(graph, base)
    alone = dataclasses.replace(problem, replicas=None)
    with jax.enable_x64(plan.dtype == "float64"), warnings.catch_warnings():
        if base is None or base.sampler != plan.sampler:
            warnings.simplefilter("ignore", SamplingWarning)  # they are about a sampler that nobody asked for
        stepper = WarmedStepper(Simulation(alone, plan))
        state = _warmed_up(stepper)
        start = largest_curvature(alone, plan.seed, plan.dtype)
        return Explored(stepper.found(state), landscape(stepper.warmup, state.tuning, state.began, start))


def exploring_plan(graph: Graph, base: Plan | None = None) -> Plan:
    """The plan whose warm-up is made."""
    if base is None:
        return Plan(graph=graph, sampler=kinetic(), num_draws=_FEWEST_DRAWS)
    if isinstance(base.sampler, Corrected) and base.sampler.tunes_itself:
        return base.replace(graph=graph, num_draws=_FEWEST_DRAWS)
    return Plan(
        graph=graph, sampler=kinetic(), num_draws=_FEWEST_DRAWS, seed=base.seed, batch_size=base.batch_size,
        batches=base.batches,
    )  # fmt: skip


def _warmed_up(stepper: WarmedStepper) -> Warmed:
    state, step = stepper.initial_state(), 0
    while step == 0 or not state.stage.is_done:
        state, segment = stepper.advance(state, step, stepper.max_steps)
        step = segment.last_step
    return state
