"""Does a plan converge, how fast, and how many steps does it need? Asked before the machine-day is spent.

A Gaussian problem is answered exactly. Any other is answered by the bounds with estimated constants, by the normal
approximation at its mode, and by a pilot: many short chains that measure agreement, the disagreement of gradients
(`μ_g` of Assumption 3) and, with two parameters, the divergence from the posterior.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import numpy as np

from consilience.diagnostics import consensus_error, kl_divergence
from consilience.engines.simulate import Simulation
from consilience.errors import ProblemError
from consilience.planning.checks import check, require_stable
from consilience.planning.suggestions import nearest_proven
from consilience.plans import Plan
from consilience.problems import Problem
from consilience.samplers import Finding
from consilience.theory import (
    Analysis,
    Potentials,
    Prediction,
    analyse,
    is_quadratic,
    measured_disagreement,
    predict,
    require_dula,
    require_small,
)
from consilience.theory.constants import posterior_grid, require_curved
from consilience.theory.prediction import even_steps

_FEWEST_STEPS, _MOST_STEPS = 1_000_000, 4_000_000
_PILOT_STEPS = 5_000
_PILOT_CHAINS = 400
_FEWEST_CHAINS = 16
_GRADIENT_CHAINS = 64
_PILOT_WORK = 4e9  # chains × agents × rows × parameters × steps
_REFERENCE_DRAWS = 4096
_FLOOR_SETS = 8
_RUN_DRAWS = 400


class Pilot(NamedTuple):
    """What many short chains measured."""

    steps: np.ndarray
    """`(times,)` after how many steps."""
    consensus_error: np.ndarray
    """`(times,)`: `E‖w̃_k‖²`, averaged over chains."""
    averages: np.ndarray
    """`(times, chains, size)`: `w̄_k`."""
    gradient_disagreement: float
    """The smallest `μ_g` that holds at the times looked at."""
    divergence: np.ndarray | None
    """`(times,)`: `KL(p_k ‖ p*)` by nearest neighbours, for two parameters."""
    divergence_floor: float = 0.0
    """What as many exact draws score at most: smaller divergences cannot be told from 0."""


@dataclass(frozen=True)
class Assessment:
    """What can be said about a plan beforehand.

    Attributes:
        plan: the plan.
        findings: stable? inside the conditions?
        analysis: constants of the problem.
        prediction: bounds, tight bounds, exact values.
        pilot: what was measured, for a problem that is not Gaussian.
        proven: the same for the nearest plan inside the theorems, if this one is outside.
    """

    plan: Plan
    findings: list[Finding]
    analysis: Analysis
    prediction: Prediction
    pilot: Pilot | None
    proven: Assessment | None = None

    @property
    def inside(self) -> Assessment:
        """The assessment whose closed forms exist: this one, or that of the nearest proven plan."""
        return self.proven or self

    @property
    def plan_documents(self) -> dict[str, str]:
        """The plans it is about as TOML documents, by title."""
        documents = {"plan.toml": self.plan.to_toml()}
        if self.proven is not None:
            documents["nearest plan inside the theorems"] = self.proven.plan.to_toml()
        return documents

    @property
    def horizon(self) -> int:
        """How many steps were looked at."""
        return int(self.prediction.steps[-1])


def assess(problem: Problem, plan: Plan, show: Callable[[str], None] = lambda _: None) -> Assessment:
    """Ask the theory about a plan, and a pilot if the problem is not Gaussian.

    Args:
        problem: what to infer.
        plan: how; it must be stable.
        show: called with what is looked at next.
    """
    require_dula(plan.sampler)
    if problem.replicas is not None:  # repetitions with data of their own: the theory is about the first
        problem, plan = dataclasses.replace(problem, replicas=None), plan.replace(num_chains=1)
    show("checking the plan")
    findings = check(plan, problem)
    require_stable(findings)
    potentials, pilot = Potentials(problem), None
    require_small(potentials)
    if not is_quadratic(potentials):
        show("looking at the mode")
        require_curved(potentials)
        show("running a pilot")
        pilot = run_pilot(potentials, plan)
    show("finding the constants of the problem")
    analysis = analyse(potentials, plan.graph, None if pilot is None else pilot.averages[-1])
    show("evaluating the bounds")
    assessment = _assessed(plan, findings, analysis, pilot)
    if assessment.prediction.divergence_bound is not None:
        return assessment
    inner = nearest_proven(plan, analysis).plan
    show("evaluating the nearest plan inside the theorems")
    pilot = None if analysis.gaussian else run_pilot(potentials, inner)
    return dataclasses.replace(assessment, proven=_assessed(inner, check(inner), analysis, pilot))


class Sampled(NamedTuple):
    """What a finished run measured, which takes the place of a pilot."""

    steps: np.ndarray
    """`(times,)` after how many steps."""
    consensus_error: np.ndarray
    """`(times,)`: `‖w̃_k‖²`, averaged over chains."""
    averages: np.ndarray
    """`(draws, size)`: draws of `w̄`."""


def assess_run(plan: Plan, problem: Problem, sampled: Sampled) -> Assessment:
    """Ask the theory about the plan of a finished run; the run itself is the pilot."""
    if problem.replicas is not None:
        raise ProblemError("the chains are repetitions with data of their own, the theory is about one problem")
    sampler, potentials = require_dula(plan.sampler), Potentials(problem)
    require_small(potentials)
    chosen = np.linspace(0, len(sampled.averages) - 1, min(len(sampled.averages), _RUN_DRAWS)).round().astype(int)
    analysis = analyse(potentials, plan.graph, sampled.averages[chosen].astype(float))
    pilot = Pilot(sampled.steps, sampled.consensus_error, sampled.averages[None], 0.0, None)
    prediction = predict(analysis, sampler, min(plan.num_steps, _MOST_STEPS), exact_seconds=1.0)
    return Assessment(plan, check(plan), analysis, prediction, pilot)


def _assessed(plan: Plan, findings: list[Finding], analysis: Analysis, pilot: Pilot | None) -> Assessment:
    steps = int(np.clip(plan.num_steps, _FEWEST_STEPS, _MOST_STEPS))
    measured = None if pilot is None else pilot.gradient_disagreement
    return Assessment(plan, findings, analysis, predict(analysis, plan.sampler, steps, measured), pilot)


def run_pilot(potentials: Potentials, plan: Plan) -> Pilot:
    """Run many short chains of a plan and measure at steps that are even on the logarithmic scale."""
    chains, num_steps = _pilot_size(potentials, plan)
    short = plan.replace(num_chains=chains, num_steps=num_steps, burn_in=0, store_every=num_steps)
    steps = np.append(0, even_steps(num_steps, a_decade=12))
    with jax.enable_x64(plan.dtype == "float64"):
        engine = Simulation(potentials.problem, short)
        state, step, positions = engine.initial_state(), 0, []
        for k in steps:
            while step < k:
                count = min(int(k) - step, engine.max_steps)
                state, step = engine.advance(state, step, count)[0], step + count
            positions.append(np.asarray(jax.vmap(jax.vmap(plan.gossip.position))(state), float))
    where = np.stack(positions)
    averages = where[1:].mean(2)
    return Pilot(
        steps[1:],
        consensus_error(where[1:]).mean(1),
        averages,
        measured_disagreement(
            potentials.own_gradients(where[:, :_GRADIENT_CHAINS]), steps, require_dula(plan.sampler)
        ),
        *(_divergences(potentials, averages) if potentials.size == 2 else (None, 0.0)),
    )


def _pilot_size(potentials: Potentials, plan: Plan) -> tuple[int, int]:
    rows = int(plan.batch_size or potentials.problem.shard_sizes.max())
    step_work = plan.num_agents * rows * potentials.size
    steps = min(plan.num_steps, _PILOT_STEPS)
    chains = int(np.clip(_PILOT_WORK / (step_work * steps), _FEWEST_CHAINS, _PILOT_CHAINS))
    return chains, min(steps, max(100, int(_PILOT_WORK / (step_work * chains))))


def _divergences(potentials: Potentials, averages: np.ndarray) -> tuple[np.ndarray, float]:
    grid = posterior_grid(potentials)
    reference = grid.draw(_REFERENCE_DRAWS, seed=0)
    exact = [kl_divergence(grid.draw(averages.shape[1], seed=1 + i), reference) for i in range(_FLOOR_SETS)]
    return np.array([kl_divergence(draws, reference) for draws in averages]), float(np.abs(exact).max())
