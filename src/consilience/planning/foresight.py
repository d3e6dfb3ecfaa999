"""What errors the numbers of `kinetic` and `langevin` will leave at every agent, before anything runs.

The warm-up's numbers are not known yet; Newton's normal approximation of the posterior, with which it begins, says
about what they will be. With them the exact law says which errors of mean and variance stay (`warmup/prediction.py`).
A run tells the same again from what its warm-up really found, beside what its draws show.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from consilience.errors import UnstableError
from consilience.kernel.parameters import Parameters, initial_positions
from consilience.kernel.randomness import Purpose, agent_keys
from consilience.plans import Plan
from consilience.problems import Problem
from consilience.samplers import Corrected, Finding
from consilience.warmup.network import Network
from consilience.warmup.prediction import NOT_AT_NODES, left_out
from consilience.warmup.stages import WarmUp

_MUCH = 0.1  # posterior deviations of a mean, or share of a variance
_LITTLE = 1e-3
_REMEDY = "leave step_size and exchanges to the warm-up"


def errors_left(plan: Plan, problem: Problem | None) -> list[Finding]:
    """What is left by step size and exchanges at the worst agent; nothing for samplers of which it is not asked.

    >>> from consilience import graphs, kinetic, models
    >>> problem = models.linear_regression([([[1.0]], [1.0]), ([[1.0]], [3.0])])
    >>> plan = Plan(graph=graphs.path(2), sampler=kinetic(), num_draws=100)
    >>> [finding.topic for finding in errors_left(plan, problem)]
    ['errors left']
    """
    if not isinstance(plan.sampler, Corrected) or plan.num_agents == 1:
        return []
    try:
        found = left_out(f"{NOT_AT_NODES}; the plan names no problem with all data") if problem is None else (
            foreseen(plan, problem)
        )  # fmt: skip
    except UnstableError as error:
        message = f"draws would leave every bound, by the exact law of a normal posterior: {error}"
        return [Finding("error", "errors left", message, _REMEDY)]
    if "left_out" in found:
        return [Finding("ok", "errors left", f"not known before it runs: {found['left_out']}")]
    mean, wide = max(found["mean_error"]), max(found["variance_error"], key=abs)
    minibatches = "" if plan.batch_size is None else ", the noise of minibatches aside"
    message = (
        f"means {'< 0.001' if mean < _LITTLE else f'{mean:.2g}'} sd off, variances {100 * wide:+.1f} % at the worst "
        f"agent, by the exact law of a normal posterior{minibatches} (step size {found['step_size']:.3g}, "
        f"exchanges in a step {found['exchanges']})"
    )
    if max(mean, abs(wide)) > _MUCH:
        return [Finding("warning", "errors left", message, _REMEDY)]
    return [Finding("ok", "errors left", message)]


def foreseen(plan: Plan, problem: Problem) -> dict[str, Any]:
    """The numbers that the warm-up will find, about, and the errors they leave by agent; or why that is not told."""
    assert isinstance(plan.sampler, Corrected)
    agents = np.arange(plan.num_agents)
    network = Network(agents, plan.num_agents, lambda values: values.sum(0))
    with jax.enable_x64(True):
        parameters = Parameters.of(problem, np.float64)
        warmup = WarmUp(problem, plan, parameters, network)
        reason = warmup.why_not_predicted()
        if reason is not None:
            return left_out(reason)
        keys = agent_keys(plan.seed, Purpose.INIT, np.arange(1), np.zeros_like(agents))
        start = np.asarray(initial_positions(problem, parameters, keys, np.dtype(np.float64)), np.float64)
    tuning = warmup.foreseen(start.reshape(plan.num_agents, parameters.size))
    numbers = {"step_size": float(tuning.step_size), "exchanges": int(tuning.exchanges)}
    return {**numbers, **warmup.predicted(tuning)}
