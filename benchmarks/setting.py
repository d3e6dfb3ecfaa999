"""What all contestants share: the Gaussian mixture with tied means, its schedules, and our own ways to run it.

Every agent holds 20 rows of the mixture. `α_k` falls from 0.01 to 0.0001 and `β_k` from 0.36 to 0.24, both as
polynomials in `k`, over however many steps are made; the noise has variance `n`. A draw is kept every 10 steps.
The comparisons on a9a and MNIST have other problems and plans, and share the rest.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import numpy as np

from benchmarks.timing import Contestant, seconds_of
from consilience import Plan, Problem, dula, graphs, sample
from consilience.engines.base import Stepper
from consilience.engines.simulate import Simulation
from consilience.errors import PlanWarning
from consilience.experiments.gmm import GMM
from consilience.kernel.gradients import network_gradients
from consilience.kernel.parameters import Parameters
from consilience.models import tied_mixture
from consilience.runs.loop import ShowProgress
from consilience.sampling import engines
from consilience.sampling.run import Run
from consilience.schedules import FromTo

NUM_AGENTS = 5
NUM_ROWS = 20
STORE_EVERY = 10


def mixture(num_agents: int = NUM_AGENTS, num_rows: int = NUM_ROWS) -> Problem:
    """The experiment's 100 points shared out, or repeated for more agents than they suffice for."""
    return tied_mixture(np.resize(GMM().data, (num_agents, num_rows)))


def mixture_plan(num_steps: int, num_agents: int = NUM_AGENTS, num_chains: int = 1) -> Plan:
    """D-ULA on a ring; beyond 5 agents the step size falls with their number, so that `α_k n` stays the same."""
    scale = min(1.0, NUM_AGENTS / num_agents)
    return Plan(
        graph=graphs.ring(num_agents),
        sampler=dula(
            step_size=FromTo(start=0.01 * scale, end=0.0001 * scale, num_steps=num_steps, exponent=0.55),
            consensus=FromTo(start=0.36, end=0.24, num_steps=num_steps, exponent=0.05),
        ),
        num_steps=num_steps,
        store_every=STORE_EVERY,
        num_chains=num_chains,
    )


def stored(
    problem: Problem,
    plan: Plan,
    progress: ShowProgress | None = None,
    look: Callable[[Run], object] | None = None,
) -> Contestant:
    """Ours as a user runs it: `sample()`, with all draws written to a directory, which `look` may look at.

    The time is the one that the run records, from the first step until the last draw is on disk. The summary
    that follows is not part of it, and is left out here to save time.
    """

    def run() -> float:
        with tempfile.TemporaryDirectory() as directory, warnings.catch_warnings():
            warnings.simplefilter("ignore", PlanWarning)  # the paper's own setting gives two
            with mock.patch.object(engines, "finish_run"):
                made = sample(problem, plan, Path(directory) / "run", progress=progress)
            if look is not None:
                look(made)
            return made.status["timing"]["sampling_seconds"] / plan.num_steps

    return run


def bare(problem: Problem, plan: Plan) -> Contestant:
    """Ours without files, checkpoints and progress: only the engine, in its longest segments."""
    engine = Simulation(problem, plan)
    engine.compile()
    return lambda: seconds_of(lambda: all_steps(engine, plan)) / plan.num_steps


def all_steps(engine: Stepper, plan: Plan) -> None:
    """All steps of a plan, in the engine's longest segments."""
    state, step = engine.initial_state(), 0
    while step < plan.num_steps:
        state, segment = engine.advance(state, step, min(engine.max_steps, plan.num_steps - step))
        jax.block_until_ready(state)
        step = segment.last_step


def require_same_gradient(gradients: Callable[[np.ndarray], np.ndarray], problem: Problem) -> None:
    """Check that a contestant computes the same gradients `∇U_i`, `(num_agents, 2)`, as the engine."""
    positions = np.random.default_rng(0).normal(size=(problem.num_agents, 2)).astype(np.float32)
    expected = engine_gradients(problem, positions, problem.stacked_shards(np.float32))
    np.testing.assert_allclose(gradients(positions), expected, rtol=1e-4, atol=1e-4)


def engine_gradients(problem: Problem, positions: np.ndarray, rows: Any) -> np.ndarray:
    """The engine's `∇U_i` at positions `(num_agents, size)`, from the full shards or a minibatch of each."""
    gradients = network_gradients(problem, Parameters.of(problem, np.dtype("float32")))
    batch_size = len(jax.tree.leaves(rows)[0][0])
    scale = (problem.shard_sizes / batch_size).astype(np.float32)
    return np.asarray(jax.jit(gradients, static_argnums=4)(positions[None], rows, None, scale, False)[0])


def shuffled_epochs(problem: Problem, plan: Plan) -> np.ndarray:
    """`(num_steps, num_agents, batch_size)` row numbers within the shards: shuffled epochs, laid end to end."""
    rng, wanted = np.random.default_rng(plan.seed), plan.num_steps * plan.batch_size
    each = []
    for size in problem.shard_sizes:
        epochs = [rng.permutation(size) for _ in range(-(-wanted // size))]
        each.append(np.concatenate(epochs)[:wanted].reshape(plan.num_steps, plan.batch_size))
    return np.stack(each, 1)
