"""Step sizes of D-ULA that are inside both theorems, which makes them so small that they seldom get anywhere."""

from __future__ import annotations

import numpy as np

from consilience.graphs import Graph
from consilience.samplers import DULA, dula
from consilience.samplers.consensus import MARGIN, consensus_reason, default_consensus
from consilience.schedules import Polynomial
from consilience.theory.analysis import Analysis
from consilience.theory.divergence_bound import largest_step_scale
from consilience.theory.prediction import theorem_inputs

_EXPONENT = 0.55


def proven_sampler(analysis: Analysis, graph: Graph, gamma: float | None = None) -> DULA:
    """Step sizes inside both theorems: `a = C_a^{1/3}/n^γ` for the given `γ > 2`, by default just above 2."""
    n, pull = graph.num_agents, default_consensus(graph)
    inputs = theorem_inputs(analysis.constants, analysis.network, dula(1e-12, pull), analysis.start)
    share = MARGIN if gamma is None or n == 1 else n ** (2 - gamma)
    a = share * largest_step_scale(inputs, n, _EXPONENT)
    return dula(Polynomial(scale=a, exponent=_EXPONENT), pull)


def proven_reasons(sampler: DULA, analysis: Analysis, graph: Graph, num_steps: int) -> tuple[str, ...]:
    """Why its step sizes are these, in words."""
    constants = analysis.constants
    elapsed = float(np.sum(sampler.step_size(np.arange(min(num_steps, 10**7)))))
    times = elapsed * float(constants.log_sobolev.value)
    kind = constants.log_sobolev.kind
    return (
        consensus_reason(graph, proven=True) + ", and it does not fall (δ_1 = 0), which Condition 1 allows",
        f"δ_2 = {_EXPONENT}: just above 1/2 + δ_1, so that the step size falls as slowly as it may",
        f"a = {sampler.step_size(0):.3g}: {MARGIN} of (C_a)^(1/3)/n², so that γ > 2, with "
        f"L = {constants.smoothness.value:.4g} and ρ_U = {constants.log_sobolev.value:.4g} "
        f"({kind}{'' if kind == 'exact' else ', so the proof is as good as that'})",
        f"the budget of {num_steps:,} steps holds {times:.2g} relaxation times",
    )
