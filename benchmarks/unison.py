"""Samplers in unison in one process: a leapfrog step of ours against BlackJAX's on the pooled rows.

Both make the same moves of NUTS, float64, 4 chains side by side, with the step size and the mass that our warm-up
found. Theirs has all rows in one table and no agents. The unit is one leapfrog step of all chains together.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.table import Line
from consilience import Plan, Problem, graphs, nuts
from consilience.engines.unison import OneProcess, Replicas

NUM_AGENTS, NUM_CHAINS, NUM_WEIGHTS = 5, 4, 20
_WARMUP, _MOVES, _REPETITIONS = 300, 60, 15
_MAX_DEPTH = 10
_TARGET = 1.15
_EQUAL, _UNEQUAL = (0.2,) * NUM_AGENTS, (0.04, 0.12, 0.2, 0.28, 0.36)


def leapfrogs() -> Iterator[Line]:
    """Logistic regression with 20 weights, rows in equal shards and in unequal ones."""
    for num_rows, shares in ((200, _EQUAL), (2_000, _EQUAL), (20_000, _EQUAL), (2_000, _UNEQUAL)):
        with jax.enable_x64(True):
            ours, theirs = _side_by_side(*logistic_rows(num_rows), shares)
        how = "" if shares == _EQUAL else ", unequal"
        yield Line(f"NUTS, 5 agents, {num_rows:,} rows{how}: leapfrog / pooled", ours, theirs, _TARGET)


def logistic_rows(num_rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Features `(rows, 20)` and outcomes 0 or 1."""
    rng = np.random.default_rng(seed)
    weights = 0.5 * np.random.default_rng(1).normal(size=NUM_WEIGHTS)
    features = rng.normal(size=(num_rows, NUM_WEIGHTS))
    return features, (rng.random(num_rows) < 1 / (1 + np.exp(-features @ weights))).astype(float)


def log_likelihood(weights: Any, rows: Any) -> Any:
    """Of each row."""
    features, outcomes = rows
    logits = features @ weights
    return outcomes * logits - jnp.logaddexp(0.0, logits)


def log_prior(weights: Any) -> Any:
    """Standard normal."""
    return -0.5 * weights @ weights


def logistic(shards: Sequence[tuple[np.ndarray, np.ndarray]]) -> Problem:
    """Logistic regression with a standard normal prior."""
    return Problem(log_likelihood, log_prior, lambda key: jnp.zeros(NUM_WEIGHTS), shards)


def warmed_up(replicas: Replicas) -> Any:
    """The replica after the warm-up."""
    state, step = replicas.initial_state(), 0
    while step < replicas.plan.burn_in:
        moves = min(replicas.max_steps, replicas.plan.burn_in - step)
        state, _ = replicas.moved(state, step, moves)
        step += moves
    return state


def _side_by_side(features: np.ndarray, outcomes: np.ndarray, shares: Sequence[float]) -> tuple[float, float]:
    """Seconds for a leapfrog step of all chains, ours and theirs: medians of runs that take turns.

    Chains of NUTS make trajectories of different lengths, so runs are not repetitions of the same work, and the
    fewest seconds of them would be those of the luckiest. Turns change the order.
    """
    places = np.cumsum([round(share * len(features)) for share in shares])[:-1]
    shards = list(zip(np.split(features, places), np.split(outcomes, places), strict=True))
    plan = Plan(
        graph=graphs.star(NUM_AGENTS), sampler=nuts(max_depth=_MAX_DEPTH), num_chains=NUM_CHAINS,
        num_warmup=_WARMUP, num_draws=_MOVES * _REPETITIONS,
    )  # fmt: skip
    replicas = Replicas(logistic(shards), plan, OneProcess(NUM_AGENTS), 0)
    state = warmed_up(replicas)
    rows = (jnp.asarray(features), jnp.asarray(outcomes))
    program = jax.jit(_pooled).lower(rows, state, jax.random.key(0)).compile()
    seconds: dict[str, list[float]] = {"ours": [], "theirs": []}
    for turn in range(_REPETITIONS):
        for who in sorted(seconds, reverse=turn % 2 == 1):
            began = time.perf_counter()
            if who == "ours":
                _, buffers = replicas.moved(state, _WARMUP + turn * _MOVES, _MOVES)
                took, made = time.perf_counter() - began, buffers.measured["leapfrogs"][:_MOVES]
            else:
                made = jax.block_until_ready(program(rows, state, jax.random.key(turn)))
                took = time.perf_counter() - began
            seconds[who].append(took / _of_all_chains(np.asarray(made)))
    return statistics.median(seconds["ours"]), statistics.median(seconds["theirs"])


def _pooled(rows: Any, state: Any, key: Any) -> Any:
    """BlackJAX's NUTS on all rows: the leapfrog steps of each move and chain."""
    import blackjax

    kernel, now = blackjax.nuts.build_kernel(), state.adaptation

    def log_density(weights: Any) -> Any:
        return log_likelihood(weights, rows).sum() + log_prior(weights)

    def move(states: Any, key: Any) -> Any:
        def one_chain(key: Any, one: Any) -> Any:
            return kernel(key, one, log_density, now.step_size, now.inverse_mass, _MAX_DEPTH)

        states, info = jax.vmap(one_chain)(jax.random.split(key, NUM_CHAINS), states)
        return states, (info.num_integration_steps, states.position)

    start = jax.vmap(lambda weights: blackjax.nuts.init(weights, log_density))(state.shared)
    return jax.lax.scan(move, start, jax.random.split(key, _MOVES))[1][0]


def _of_all_chains(leapfrogs: np.ndarray) -> int:
    """Steps that chains made side by side, from those of each, `(moves, chains)`: in a doubling the longest's."""
    first = 2 ** np.arange(_MAX_DEPTH)
    return int(np.clip(leapfrogs[..., None] - (first - 1), 0, first).max(1).sum())
