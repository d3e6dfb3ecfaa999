"""Comparisons on a9a, Bayesian logistic regression in minibatches of 10: with PyTorch, and of dense rows with sparse.

Problem and plan are those of the paper's experiment with 5 agents, with one repetition or a few and other lengths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.util import find_spec

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.setting import NUM_AGENTS, bare, engine_gradients, shuffled_epochs, stored
from benchmarks.table import Line, Skipped
from benchmarks.timing import best_of_each
from consilience import Plan, Problem
from consilience.datasets import Labelled, load
from consilience.errors import DataError
from consilience.experiments import EXPERIMENTS
from consilience.models.softplus import softplus

_OUR_STEPS = 52_000  # ten times the experiment's, in which the first and the last write to disk weigh a lot
_TORCH_STEPS = 2_000
_ROWS_STEPS = {1: 20_000, 10: 4_000}
_REPETITIONS = 4

_TORCH = "a9a, 5 agents: one step / PyTorch eager"
_ROWS = "a9a, {} chain(s): dense rows / sparse rows"


def a9a() -> Iterator[Line | Skipped]:
    """One repetition of 5 agents, draws stored, against PyTorch."""
    if not find_spec("torch"):
        yield Skipped(_TORCH, "PyTorch is not installed (pip install torch==2.13.0)")
        return
    try:
        table = load("a9a", "train")
    except DataError as error:
        yield Skipped(_TORCH, str(error))
        return
    from benchmarks import torch_a9a

    plan = _plan(_TORCH_STEPS)
    problem = EXPERIMENTS["a9a"].problem_of(plan)
    contestants = {"ours": stored(problem, _plan(_OUR_STEPS))}
    for threads in (1, 2):
        contestants[f"torch {threads}"] = torch_a9a.contestant(problem, plan, table, threads)
    best = best_of_each(contestants, _REPETITIONS)
    fastest = min(best["torch 1"], best["torch 2"])
    yield Line(_TORCH, best["ours"], fastest, 1 / 20, shown_target="1/20")


def dense_rows() -> Iterator[Line | Skipped]:
    """Rows of 123 numbers, as in the experiment, against the places of their 14 ones: the bare engine, no files."""
    try:
        table = load("a9a", "train")
    except DataError as error:
        for num_chains in _ROWS_STEPS:
            yield Skipped(_ROWS.format(num_chains), str(error))
        return
    for num_chains, num_steps in _ROWS_STEPS.items():
        plan = _plan(num_steps, num_chains)
        dense = EXPERIMENTS["a9a"].problem_of(plan)
        sparse = replace(dense, log_likelihood=_sparse_log_likelihood(table))
        require_same_gradient(lambda w, rows, problem=sparse: engine_gradients(problem, w, rows), dense, plan)
        best = best_of_each({"dense": bare(dense, plan), "sparse": bare(sparse, plan)}, _REPETITIONS)
        dense_time, sparse_time = (best[name] / num_chains for name in ("dense", "sparse"))
        yield Line(_ROWS.format(num_chains), dense_time, sparse_time, 1)


def require_same_gradient(
    gradients: Callable[[np.ndarray, np.ndarray], np.ndarray], problem: Problem, plan: Plan
) -> None:
    """Check that gradients `(num_agents, 123)`, a function of weights and of rows of the table, are the engine's.

    Where no row of a minibatch has a feature, the prior's part stands alone: 1/5, far above the tolerance.
    """
    positions = 0.1 * np.random.default_rng(0).normal(size=(problem.num_agents, 123)).astype(np.float32)
    rows = rows_of_table(problem, plan.replace(num_steps=plan.store_every))[0]
    expected = engine_gradients(problem, positions, rows)
    np.testing.assert_allclose(gradients(positions, rows), expected, rtol=1e-4, atol=1e-2)


def rows_of_table(problem: Problem, plan: Plan) -> np.ndarray:
    """`(num_steps, num_agents, batch_size)` rows of the table that the agents' minibatches hold."""
    shuffled = shuffled_epochs(problem, plan)
    return np.stack([shard[shuffled[:, agent]] for agent, shard in enumerate(problem.shards)], 1)


def _plan(num_steps: int, num_chains: int = 1) -> Plan:
    """The experiment's, with another number of steps: a draw is kept as often, every 20 steps."""
    return EXPERIMENTS["a9a"].plan(NUM_AGENTS).replace(num_steps=num_steps, num_chains=num_chains)


def _sparse_log_likelihood(table: Labelled) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """From the places of every row's ones; rows with fewer than 14 are filled up with a place whose weight is 0."""
    num_rows, num_features = table.inputs.shape
    row, feature = np.nonzero(table.inputs)
    if not (table.inputs[row, feature] == 1).all():
        raise ValueError("a9a has features other than 0 and 1, which a list of places cannot hold")
    slot = np.arange(len(row)) - np.searchsorted(row, row)
    padded = np.full((num_rows, slot.max() + 1), num_features, np.int32)
    padded[row, slot] = feature
    places, labels = jnp.asarray(padded), jnp.asarray(table.labels)

    def log_likelihood(w: jax.Array, rows: jax.Array) -> jax.Array:
        logits = jnp.append(w, 0)[places[rows]].sum(-1)
        return labels[rows].astype(w.dtype) * logits - softplus(logits)

    return log_likelihood
