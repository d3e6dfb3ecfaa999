"""What a step of `kinetic` costs beside one of D-ULA: the mixture with 5 agents, the bare engine, one exchange each.

Both have the same chain, rows, precision and draws kept. `kinetic` has numbers given by hand, so that both are a step
and nothing else; its step after a warm-up also changes coordinates, which is a line of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import jax

from benchmarks.setting import bare, mixture, mixture_plan
from benchmarks.table import Line
from benchmarks.timing import Contestant, best_of_each, seconds_of
from consilience import Plan, Problem, kinetic
from consilience.engines.program import Stored
from consilience.engines.simulate import Simulation

_STEPS, _REPETITIONS = 400_000, 6


def steps() -> Iterator[Line]:
    """Time for a step of all agents of one chain."""
    problem, theirs = mixture(), mixture_plan(_STEPS)
    by_hand = Plan(
        graph=theirs.graph, sampler=kinetic(0.05, 1, whitening="none"), num_steps=_STEPS,
        store_every=theirs.store_every, dtype="float32",
    )  # fmt: skip
    best = best_of_each(
        {"dula": bare(problem, theirs), "by hand": bare(problem, by_hand), "warmed": _warmed(problem, theirs)},
        _REPETITIONS,
    )
    yield Line("mixture, 5 agents: a step of kinetic / of D-ULA", best["by hand"], best["dula"], 1.5)
    yield Line("mixture, 5 agents: the same, whitened / of D-ULA", best["warmed"], best["dula"], 1.5)


def _warmed(problem: Problem, theirs: Plan) -> Contestant:
    """Steps in coordinates and with numbers that are arguments of the program, as after a warm-up."""
    plan = Plan(
        graph=theirs.graph, sampler=kinetic(), num_draws=_STEPS // theirs.store_every, num_chains=1, dtype="float32",
        store_every=theirs.store_every,
    )  # fmt: skip
    engine = Simulation(problem, plan)
    engine.compile()
    tuning = engine.blank_tuning._replace(step_size=0.05)

    def run() -> None:
        state, step = engine.initial_state(), 0
        while step < _STEPS:
            state, segment = engine.walked(state, tuning, step, min(engine.max_steps, _STEPS - step), Stored.of(plan))
            jax.block_until_ready(state)
            step = segment.last_step

    return lambda: seconds_of(run) / _STEPS
