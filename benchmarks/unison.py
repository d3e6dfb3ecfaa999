"""Samplers in unison in one process: a leapfrog step of ours against BlackJAX's on the pooled rows.

Both make the same moves of NUTS, float64, 4 chains side by side, with the step size and the mass that our warm-up
found. Theirs has all rows in one table and no agents. The unit is one leapfrog step of all chains together. NumPyro
does the same, and a loop of leapfrogs by hand makes no tree at all.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
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
_BY_HAND = 7  # leapfrog steps of a move, about as many as NUTS makes
_TARGET = 1.15
_EQUAL, _UNEQUAL = (0.2,) * NUM_AGENTS, (0.04, 0.12, 0.2, 0.28, 0.36)


def leapfrogs() -> Iterator[Line]:
    """Logistic regression with 20 weights, rows in equal shards and in unequal ones."""
    for num_rows, shares in ((200, _EQUAL), (2_000, _EQUAL), (20_000, _EQUAL), (2_000, _UNEQUAL)):
        with jax.enable_x64(True):
            took = _side_by_side(*logistic_rows(num_rows), shares)
        how = f"NUTS, 5 agents, {num_rows:,} rows" + ("" if shares == _EQUAL else ", unequal")
        yield Line(f"{how}: leapfrog / pooled", took["ours"], took["BlackJAX"], _TARGET)
        yield Line(f"{how}: leapfrog / NumPyro, pooled", took["ours"], took["NumPyro"], 1)
        yield Line(f"{how}: leapfrog / by hand, no tree", took["ours"], took["by hand"], 1.2)


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


def _side_by_side(features: np.ndarray, outcomes: np.ndarray, shares: Sequence[float]) -> dict[str, float]:
    """Seconds for a leapfrog step of all chains of each contestant: medians of runs that take turns.

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

    def ours(turn: int) -> Any:
        return replicas.moved(state, _WARMUP + turn * _MOVES, _MOVES)[1].measured["leapfrogs"][:_MOVES]

    contestants = {
        "ours": ours, "BlackJAX": _compiled(_pooled, rows, state), "by hand": _compiled(_leapfrogs, rows, state),
        "NumPyro": _compiled(_numpyro, rows, state),
    }  # fmt: skip
    seconds: dict[str, list[float]] = {who: [] for who in contestants}
    for turn in range(_REPETITIONS):
        for who in sorted(contestants, reverse=turn % 2 == 1):
            began = time.perf_counter()
            made = contestants[who](turn)
            took = time.perf_counter() - began
            seconds[who].append(took / _of_all_chains(np.asarray(made)))
    return {who: statistics.median(all_) for who, all_ in seconds.items()}


def _compiled(function: Callable[..., Any], rows: Any, state: Any) -> Callable[[int], Any]:
    program = jax.jit(function).lower(rows, state, jax.random.key(0)).compile()
    return lambda turn: jax.block_until_ready(program(rows, state, jax.random.key(turn)))


def _leapfrogs(rows: Any, state: Any, key: Any) -> Any:
    """Leapfrog steps by hand, 7 for each move: the limit, since nothing is decided."""
    now = state.adaptation

    def slopes(weights: Any) -> Any:
        features, outcomes = rows
        return weights - (outcomes - jax.nn.sigmoid(weights @ features.T)) @ features

    def leapfrog(carry: Any, _: Any) -> Any:
        weights, momentum, slope = carry
        momentum = momentum - now.step_size / 2 * slope
        moved = momentum @ now.inverse_mass if now.inverse_mass.ndim == 2 else momentum * now.inverse_mass
        weights = weights + now.step_size * moved
        slope = slopes(weights)
        return (weights, momentum - now.step_size / 2 * slope, slope), None

    def move(weights: Any, key: Any) -> Any:
        momentum = jax.random.normal(key, weights.shape)
        (weights, _, _), _ = jax.lax.scan(leapfrog, (weights, momentum, slopes(weights)), None, _BY_HAND)
        return weights, weights

    _, kept = jax.lax.scan(move, state.shared, jax.random.split(key, _MOVES))
    return jnp.where(jnp.isfinite(kept).all(-1), _BY_HAND, 0)  # so that nothing is left out as unused


def _numpyro(rows: Any, state: Any, key: Any) -> Any:
    """NumPyro's NUTS on all rows: the leapfrog steps of each move and chain."""
    from numpyro.infer.hmc import hmc

    now = state.adaptation

    def potential(weights: Any) -> Any:
        return -log_likelihood(weights, rows).sum() - log_prior(weights)

    def one_chain(key: Any, weights: Any) -> Any:
        start, kernel = hmc(potential, algo="NUTS")
        first = start(
            weights, num_warmup=0, step_size=now.step_size, inverse_mass_matrix=now.inverse_mass,
            adapt_step_size=False, adapt_mass_matrix=False, dense_mass=now.inverse_mass.ndim == 2,
            max_tree_depth=_MAX_DEPTH, rng_key=key,
        )  # fmt: skip

        def move(one: Any, _: Any) -> Any:
            one = kernel(one)
            return one, one.num_steps

        return jax.lax.scan(move, first, None, _MOVES)[1]

    return jax.vmap(one_chain)(jax.random.split(key, NUM_CHAINS), state.shared).T


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
