"""Comparison on MNIST: LeNet-5 with 5 agents in minibatches of 256, against PyTorch. The bare engine, no files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import jax
import numpy as np
from jax.flatten_util import ravel_pytree

from benchmarks.setting import NUM_AGENTS, bare, engine_gradients
from benchmarks.table import Line, Skipped
from benchmarks.timing import best_of_each
from consilience import Plan, Problem, dula, graphs
from consilience.datasets import load
from consilience.errors import DataError
from consilience.kernel.parameters import Parameters
from consilience.models import classifier, lenet5
from consilience.schedules import Polynomial

_BATCH = 256
_SIDE = 32
_STEPS = 20
_THREADS = 2
_REPETITIONS = 4
_CHECKED_ROWS = 32
_TOLERANCE = 1e-3

_WHAT = "LeNet-5, 5 agents: one step / PyTorch eager"


def lenet() -> Iterator[Line | Skipped]:
    """Five networks with 12,000 images each: time for one step of all of them."""
    if not find_spec("torch"):
        yield Skipped(_WHAT, "PyTorch is not installed (pip install torch==2.13.0)")
        return
    try:
        problem, plan = _mnist(), _plan()
    except DataError as error:
        yield Skipped(_WHAT, str(error))
        return
    from benchmarks import torch_lenet

    contestants = {"ours": bare(problem, plan), "torch": torch_lenet.contestant(problem, plan, _THREADS)}
    best = best_of_each(contestants, _REPETITIONS)
    yield Line(_WHAT, best["ours"], best["torch"], 0.75)


def require_same_gradient(gradients: Callable[[np.ndarray, Any], np.ndarray], problem: Problem) -> None:
    """Check that gradients `(num_agents, size)`, a function of weights and minibatches, are the engine's.

    Each of the network's arrays is compared by itself, so that none hides behind a larger one. The images are noise:
    on a constant background every pool is a tie, which either program may give to another pixel.
    """
    rng = np.random.default_rng(0)
    parameters = Parameters.of(problem, np.dtype("float32"))
    weights = initial_weights(problem)
    images = rng.random((NUM_AGENTS, _CHECKED_ROWS, _SIDE, _SIDE), np.float32)
    rows = images, rng.integers(0, 10, (NUM_AGENTS, _CHECKED_ROWS)).astype(np.int32)
    expected = engine_gradients(problem, weights, rows)
    difference = gradients(weights, rows) - expected
    for part in parameters.parts:
        own, wanted = (values[:, part.start : part.stop] for values in (difference, expected))
        error = np.linalg.norm(own, axis=1) / np.linalg.norm(wanted, axis=1)
        np.testing.assert_array_less(error, _TOLERANCE, f"the gradients by {part.name} differ")


def initial_weights(problem: Problem) -> np.ndarray:
    """`(num_agents, size)` weights as the network starts with, in the engine's order."""
    return np.stack([ravel_pytree(problem.init(jax.random.key(agent)))[0] for agent in range(problem.num_agents)])


def _mnist() -> Problem:
    """The 60,000 training images, enlarged to 32 × 32 and split in order."""
    train = load("mnist", "train")
    enlarged = jax.jit(lambda images: jax.image.resize(images, (len(images), _SIDE, _SIDE), "linear"))
    shards = [
        (np.array(enlarged(images)), labels)  # a copy, as PyTorch wants arrays that it may write to
        for images, labels in zip(np.split(train.inputs, NUM_AGENTS), np.split(train.labels, NUM_AGENTS), strict=True)
    ]
    return classifier(lenet5(), shards, "uniform")


def _plan() -> Plan:
    """The paper's schedules, with half its step size, which is stable for every seed tried."""
    return Plan(
        graph=graphs.ring(NUM_AGENTS),
        sampler=dula(
            Polynomial(scale=0.00016, offset=230, exponent=0.55), Polynomial(scale=0.48, offset=230, exponent=0.05)
        ),
        num_steps=_STEPS,
        store_every=5,
        batch_size=_BATCH,
    )
