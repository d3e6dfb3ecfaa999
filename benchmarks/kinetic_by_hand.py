"""A step of `kinetic` against the same update written by hand, on regressions of `by_hand.py`.

One exchange with the neighbours on a ring, numbers given, the model's own coordinates. By hand means a `lax.scan`
over steps with the noise of ten of them made at once, shards padded to the longest, a draw kept every tenth step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.by_hand import Cell, gradients_by_hand, problem_of, unequal
from benchmarks.setting import bare
from benchmarks.table import Line
from benchmarks.timing import Contestant, best_of_each, seconds_of
from consilience import Plan, Problem, graphs, kinetic
from consilience.engines.simulate import Simulation
from consilience.samplers.mixing import chebyshev

CELLS = (
    Cell("linear", (300,) * 5, 6, 4),
    Cell("logistic", unequal(7, 300), 6, 1),
    Cell("logistic", (1_000,) * 10, 30, 4),
    Cell("poisson", unequal(20, 1_000), 12, 4),
)
_STEP_SIZE, _EVERY = 1e-4, 10
_TARGET, _REPETITIONS, _SECONDS = 1.2, 7, 0.1


def steps() -> Iterator[Line]:
    """A step of each cell."""
    for cell in CELLS:
        yield Line(f"{cell}: step of kinetic / by hand", *_side_by_side(cell), _TARGET)


def _plan(cell: Cell, num_steps: int) -> Plan:
    return Plan(
        graph=graphs.ring(len(cell.sizes)), sampler=kinetic(_STEP_SIZE, 1, whitening="none", temperature=0.0),
        num_steps=num_steps, num_chains=cell.num_chains, store_every=_EVERY, dtype="float32",
    )  # fmt: skip


def _side_by_side(cell: Cell) -> tuple[float, float]:
    """Seconds for a step of all chains, ours and by hand."""
    problem = problem_of(cell)
    _require_same(cell, problem)
    start = _start(problem, _plan(cell, _EVERY))
    once = by_hand(cell, problem, 10 * _EVERY, start)
    once()
    num_steps = _EVERY * max(10, int(_SECONDS / once()) // _EVERY)
    plan = _plan(cell, num_steps)
    plan = plan.replace(sampler=plan.sampler.model_copy(update={"temperature": 1.0}))
    contestants: dict[str, Contestant] = {
        "ours": bare(problem, plan), "by hand": by_hand(cell, problem, num_steps, start)
    }  # fmt: skip
    best = best_of_each(contestants, _REPETITIONS)
    return best["ours"], best["by hand"]


def _start(problem: Problem, plan: Plan) -> Any:
    engine = Simulation(problem, plan)
    return jnp.asarray(engine.positions(engine.initial_state()))


def walk_by_hand(cell: Cell, problem: Problem, num_steps: int, temperature: float) -> Any:
    """The program, from positions `(chains, agents, size)` and a key to the draws kept."""
    gradients, agents, h = gradients_by_hand(cell, problem), len(cell.sizes), _STEP_SIZE
    graph = graphs.ring(agents)
    mixing = chebyshev(graph, 1)
    mix = np.eye(agents) - mixing.rate * graph.laplacian.toarray()
    matrix = jnp.asarray(mix + mixing.kept * (np.eye(agents) - mix), jnp.float32)
    kept = math.exp(-h)
    deviation = math.sqrt((1 - kept**2) * agents * temperature)

    def mixed(values: Any) -> Any:
        return jnp.einsum("ij,cjp->cip", matrix, values)

    def step(state: Any, noise: Any) -> Any:
        u, v, s = state
        pushed = v - s - h * agents * gradients(u)
        z = kept * pushed + deviation * noise
        heard = mixed(z)
        return (mixed(u + h / 2 * (pushed + z)), heard, s + (z - heard) / 2), None

    def ten(state: Any, key: Any) -> Any:
        state, _ = jax.lax.scan(step, state, jax.random.normal(key, (_EVERY, *state[0].shape)))
        return state, state[0]

    def walk(start: Any, key: Any) -> Any:
        return jax.lax.scan(
            ten, (start, 0 * start, 0 * start), jax.random.split(key, num_steps // _EVERY)
        )[1]  # fmt: skip

    return jax.jit(walk)


def by_hand(cell: Cell, problem: Problem, num_steps: int, start: Any) -> Contestant:
    """Seconds for a step."""
    key = jax.random.key(0)
    program = walk_by_hand(cell, problem, num_steps, 1.0).lower(start, key).compile()
    return lambda: seconds_of(lambda: jax.block_until_ready(program(start, key))) / num_steps


def _require_same(cell: Cell, problem: Problem) -> None:
    """Check that without noise both go the same way."""
    plan = _plan(cell, 5 * _EVERY)
    engine = Simulation(problem, plan)
    start = engine.positions(engine.initial_state()) + 0.1
    theirs = walk_by_hand(cell, problem, plan.num_steps, 0.0)(jnp.asarray(start), jax.random.key(0))
    _, segment = engine.advance(engine.placed(start), 0, min(engine.max_steps, plan.num_steps))
    np.testing.assert_allclose(segment.draws, theirs[: len(segment.draws)], rtol=1e-3, atol=1e-4)
