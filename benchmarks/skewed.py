"""a9a over agents whose labels differ, in minibatches: `kinetic` and D-ULA, nothing tuned, after as many rounds.

Logistic regression with the paper's Laplace prior on the 30 features that vary most, all 32,561 rows. Each label's
rows go to ten agents on a ring in shares from a Dirichlet law. Errors are those of every agent's draws against a long
run of NUTS on all rows, averaged over agents and parameters.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.table import Line, Skipped
from consilience import Plan, Problem, dula, graphs, kinetic
from consilience.datasets import load, splits
from consilience.engines.base import Stepper
from consilience.engines.simulate import simulation
from consilience.errors import DataError, SamplingWarning
from consilience.experiments.references import (
    PosteriorError,
    Reference,
    pooled_logistic,
    pooled_reference,
    posterior_error,
)
from consilience.models import logistic_regression
from consilience.planning.suggestions import suggest
from consilience.warmup.stages import SETTLING_STEPS

_FEATURES, _AGENTS, _CONCENTRATION, _BATCH = 30, 10, 0.3, 32
_ROUNDS, _CHAINS = 9_000, 32  # chance is a part of the errors: 8 chains alone make 5 % in variances of it
_REFERENCE_DRAWS = 600
_MOST_AWAY, _MOST_WIDE = 0.06, 0.05
_NAME = "a9a by label, 10 agents, 9,000 rounds"


def errors() -> Iterator[Line | Skipped]:
    """Of `kinetic` against what is allowed, and of D-ULA by `suggest` against `kinetic`'s."""
    try:
        features, labels = _table()
    except DataError as error:
        yield Skipped(_NAME, str(error))
        return
    graph = graphs.ring(_AGENTS)
    problem = logistic_regression([(features[own], labels[own]) for own in _shards(labels)], "laplace")
    known = pooled_reference(pooled_logistic(features, labels), _REFERENCE_DRAWS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)
        draws, exchanges = _of_kinetic(problem, graph)
        ours = posterior_error(draws, known)
        theirs = _of_dula(problem, graph, known)
    yield Line(f"{_NAME}: kinetic's means, sd (K = {exchanges}) / limit", ours[0], _MOST_AWAY, 1, unit="")
    yield Line(f"{_NAME}: kinetic's variances, share / limit", ours[1], _MOST_WIDE, 1, unit="")
    yield Line(f"{_NAME}: errors of means, kinetic / D-ULA", ours[0], theirs[0], 1, unit="")
    yield Line(f"{_NAME}: errors of variances, kinetic / D-ULA", ours[1], theirs[1], 1, unit="")


def _table() -> tuple[np.ndarray, np.ndarray]:
    whole = load("a9a", "train")
    shares = whole.inputs.mean(0)
    chosen = np.sort(np.argsort(shares * (1 - shares))[-_FEATURES:])
    return whole.inputs[:, chosen].astype(float), whole.labels


def _shards(labels: np.ndarray) -> list[np.ndarray]:
    """Of the first seed with which every agent has a minibatch."""
    seed = 0
    while True:
        try:
            rows = splits.by_label(labels, _AGENTS, _CONCENTRATION, seed)
        except DataError:  # an agent without rows
            rows = []
        if rows and min(map(len, rows)) >= _BATCH:
            return rows
        seed += 1


def _of_kinetic(problem: Problem, graph: graphs.Graph) -> tuple[np.ndarray, int]:
    """The draws that the rounds allow, warm-up included, and how many exchanges a step has."""
    plan = Plan(
        graph=graph, sampler=kinetic(), num_draws=_ROUNDS, store_every=1, num_chains=_CHAINS, batch_size=_BATCH
    )
    stepper = simulation(problem, plan)
    state, step, parts, left = stepper.initial_state(), 0, [], 1
    while left > 0:
        state, segment = stepper.advance(state, step, min(stepper.max_steps, left if parts else 1_000))
        step = segment.last_step
        parts += [segment.draws] * state.stage.is_done
        left = _steps_left(state, plan, step)
    return np.concatenate(parts).transpose(1, 2, 0, 3), int(state.tuning.exchanges)


def _steps_left(state: Any, plan: Plan, step: int) -> int:
    """How many more steps the rounds allow."""
    if not state.stage.is_done:
        return 1
    used = int(state.stage.rounds) + int(state.tuning.exchanges) * (step - plan.burn_in + SETTLING_STEPS)
    return (_ROUNDS - used) // int(state.tuning.exchanges)


def _of_dula(problem: Problem, graph: graphs.Graph, known: Reference) -> PosteriorError:
    """By the numbers that `suggest` gives it, with as many chains."""
    base = Plan(graph=graph, sampler=dula(1.0, 0.1), num_steps=_ROUNDS, num_chains=_CHAINS, batch_size=_BATCH)
    plan = suggest(problem, graph, _ROUNDS, base, choose=("burn_in", "store_every")).practical.plan
    draws = _all(simulation(problem, plan), plan)
    return posterior_error(draws, known, plan.sampler.weights(plan.step_of_draw(np.arange(draws.shape[2]))))


def _all(stepper: Stepper, plan: Plan) -> np.ndarray:
    """The draws of a plan, `(chains, agents, draws, size)`."""
    state, step, parts = stepper.initial_state(), 0, []
    while step < plan.num_steps:
        state, segment = stepper.advance(state, step, min(stepper.max_steps, plan.num_steps - step))
        parts.append(segment.draws)
        step = segment.last_step
    return np.concatenate(parts).transpose(1, 2, 0, 3)
