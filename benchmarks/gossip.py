"""Corrected kinetic sampling by gossip, nothing tuned: rounds for an effective draw, and whether agents are right.

Rounds are exchanges after the warm-up times chains (which share a message), effective draws those of the worst
parameter at the worst agent (bulk). D-ULA beside it has the numbers of `suggest`, with the rounds that the exact law
knows it needs once they have settled; and the best constant ones that the exact law knows of.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import jax
import numpy as np

from benchmarks.table import Line, Skipped
from benchmarks.unequal import CASES, Case
from benchmarks.unison_draws import dula_rounds, memory
from consilience import Plan, Problem, dula, graphs, kinetic
from consilience.diagnostics.convergence import effective_draws, mean_error
from consilience.engines.simulate import simulation
from consilience.planning.suggestions import suggest
from consilience.theory import GaussianNetwork

MOST_AWAY, MOST_WIDE = 0.1, 0.1
"""The error of an agent's mean in posterior deviations, and that of its variance as a share, that are allowed."""
MONTE_CARLO = 4
"""Standard errors that are allowed on top."""
ENOUGH = 5_000
"""Effective draws at the worst agent from which on errors of a tenth can be told."""
_DRAWS, _MOST_DRAWS = 1_500, 24_000
_FEWER = 1 / 300
_BUDGET = 1_000_000_000  # steps, with which `suggest` makes its last step as small as its promise needs


class Measured(NamedTuple):
    """What a run with nothing tuned did."""

    rounds: float
    """For an effective draw at the worst agent."""
    effective: float
    away: float
    """The largest error of a mean, in posterior deviations."""
    wide: float
    """The largest error of a variance, as a share."""
    away_beyond: float
    """The same beyond four standard errors; 0 if within."""
    wide_beyond: float
    exchanges: int

    @property
    def is_right(self) -> bool:
        """Whether every agent is within what is allowed, with enough draws to tell."""
        told = self.effective >= ENOUGH
        return told and self.away_beyond <= MOST_AWAY and self.wide_beyond <= MOST_WIDE


def rounds() -> Iterator[Line | Skipped]:
    """Three regressions on four graphs."""
    chord = graphs.from_edges(6, [(i, (i + 1) % 6) for i in range(6)] + [(0, 3)])
    settings = (
        ("complete of 7", graphs.complete(7), 10),
        ("barbell of 7", graphs.barbell(7), 60),
        ("ring of 6 with a chord", chord, 35),
        ("star of 20", graphs.star(20), 80),
    )
    for name, graph, most in settings:
        for model in ("linear", "logistic", "poisson"):
            case = CASES[model](graph.num_agents)
            found = measured(case, graph)
            yield Line(f"{name}, {model}: rounds an effective draw / limit", found.rounds, most, 1, unit="")
            if model == "linear":
                with jax.enable_x64(True):
                    suggested, theirs = suggested_rounds(case.problem, graph), dula_rounds(case.problem, graph)
                what = f"{name}, {model}: rounds an effective draw / D-ULA"
                yield Line(f"{what} by suggest", found.rounds, suggested, _FEWER, unit="", shown_target="1/300")
                yield (
                    Line(f"{what} at its best", found.rounds, theirs, 1, unit="")
                    if np.isfinite(theirs)
                    else Skipped(what, "no constant step size of D-ULA tried is near enough to the posterior")
                )


def suggested_rounds(problem: Problem, graph: graphs.Graph) -> float:
    """Rounds of D-ULA for an effective draw at the worst agent, at the step size on which `suggest` ends.

    With so large a budget that is where it promises means within 0.1 standard deviations and at most 5 % of variance
    by disagreement at every agent: about the error that `kinetic` is allowed.
    """
    sampler = suggest(problem, graph, _BUDGET).practical.plan.sampler
    settled = dula(float(sampler.step_size(_BUDGET - 1)), float(sampler.consensus(_BUDGET - 1)))
    return memory(GaussianNetwork.of(problem, graph), settled)


def grid() -> Iterator[Line]:
    """Five models on four graphs with 3, 7 and 20 agents: errors beyond four standard errors, against a tenth."""
    for model, make in CASES.items():
        for num_agents in (3, 7, 20):
            case = make(num_agents)
            for kind in ("path", "ring", "star", "complete"):
                found = measured(case, graphs.named(kind, num_agents))
                what = (
                    f"{model}, {kind} of {num_agents} ({found.effective:,.0f} eff., {found.rounds:.0f} rounds each)"
                )
                beyond = max(found.away_beyond / MOST_AWAY, found.wide_beyond / MOST_WIDE)
                yield Line(what, beyond if found.effective >= ENOUGH else np.inf, 1, 1, unit="")


def measured(case: Case, graph: graphs.Graph, seed: int = 0) -> Measured:
    """Sample until the worst agent has enough effective draws, or a great many draws are made."""
    plan = Plan(graph=graph, sampler=kinetic(), num_draws=_MOST_DRAWS, seed=seed)
    with jax.enable_x64(True):
        stepper = simulation(case.problem, plan)
        state, step, parts, wanted = stepper.initial_state(), 0, [], _DRAWS
        while step < plan.num_steps:
            reached = plan.burn_in + wanted * plan.store_every
            state, segment = stepper.advance(state, step, min(stepper.max_steps, max(1, reached - step)))
            step = segment.last_step
            parts.append(segment.draws)
            if step >= reached:
                draws = np.concatenate(parts).transpose(2, 1, 0, 3)  # agents, chains, draws, parameters
                effective = min(float(effective_draws(own).min()) for own in draws)
                if effective >= 1.1 * ENOUGH:
                    break
                wanted = min(_MOST_DRAWS, int(np.ceil(wanted * min(4.0, 1.25 * ENOUGH / effective))) + 1)
    exchanges = int(state.tuning.exchanges)
    per_draw = exchanges * plan.store_every * draws.shape[1] * draws.shape[2] / effective
    return Measured(per_draw, effective, *errors(case, draws), exchanges)


def errors(case: Case, draws: np.ndarray) -> tuple[float, float, float, float]:
    """Of draws `(agents, chains, draws, size)`: the largest of means and variances, and the same beyond chance."""
    known = case.reference()
    scaled = (draws - known.mean) / np.sqrt(known.variance)
    found = []
    for columns, expected, factor in ((scaled, 0.0, 1.0), (scaled**2, 1.0, 1.4)):
        off = np.abs(columns.mean((1, 2)) - expected)
        if expected:  # the variance about the agent's own mean
            off = np.abs(scaled.var((1, 2)) - 1)
        chance = np.stack([mean_error(own) for own in columns]) + factor * known.error
        found.append((float(off.max()), float((off - MONTE_CARLO * chance).clip(0).max())))
    return found[0][0], found[1][0], found[0][1], found[1][1]
