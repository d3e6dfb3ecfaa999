"""How the time of a step and memory grow: `kinetic` and `nuts` with agents, parameters, rows and chains.

Logistic regression on a ring; of `kinetic` a step with one exchange, of `nuts` a leapfrog step of all chains in
trajectories of seven. Each curve is a process of its own, which takes its sizes in order, so that the most memory it
ever had is that of the size it is at. `python -m benchmarks.growth FILE.png` draws the curves.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from benchmarks.memory import peak
from benchmarks.table import Line, Told

SIZES: dict[str, tuple[int, ...]] = {
    "agents": (10, 100, 1_000, 10_000),
    "parameters": (10, 100, 1_000, 10_000, 100_000, 1_000_000),
    "rows": (10, 100, 1_000, 10_000, 100_000),
    "chains": (1, 4, 16, 64, 256),
}
SAMPLERS = ("kinetic", "nuts")
_SECONDS, _REPETITIONS = 0.2, 3
_TRAJECTORY = 3  # doublings
_WARMUP = 20  # the fewest there are, of which one move is made
_MOST = 1.1  # an exponent that counts as linear
_FITTED = 3  # of the largest sizes


class Sizes(NamedTuple):
    """Of a problem."""

    agents: int = 8
    parameters: int = 10
    rows: int = 4
    chains: int = 1


class Point(NamedTuple):
    """What one size took."""

    size: int
    seconds: float
    megabytes: float
    """The most memory of the process so far."""


def growth() -> Iterator[Line | Told]:
    """Every size, and the exponent of each curve at its upper end."""
    for sampler in SAMPLERS:
        for axis in SIZES:
            points = curve(sampler, axis)
            for point in points:
                yield Told(
                    f"{sampler}, {point.size:,} {axis}", f"{point.seconds * 1e6:,.3g} µs, {point.megabytes:,.0f} MB"
                )
            yield Line(f"{sampler}, {axis}: exponent of a step's time / 1", exponent(points), 1, _MOST, unit="")


def exponent(points: list[Point]) -> float:
    """The slope of the logarithm of time over that of size, at the largest sizes."""
    size, seconds = np.log([(point.size, point.seconds) for point in points[-_FITTED:]]).T
    return float(np.polyfit(size, seconds, 1)[0])


def curve(sampler: str, axis: str) -> list[Point]:
    """All sizes of an axis, from a process of its own."""
    command = [sys.executable, "-m", "benchmarks.growth", sampler, axis]
    made = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return [Point(*json.loads(line)) for line in made.stdout.splitlines()]


def _measured(sampler: str, axis: str) -> Iterator[Point]:
    for size in SIZES[axis]:
        base = Sizes(agents=2) if axis == "rows" else Sizes()
        sizes = base._replace(**{axis: size})
        seconds = (_kinetic if sampler == "kinetic" else _nuts)(sizes)
        yield Point(size, seconds, peak())


def _problem(sizes: Sizes, dtype: Any) -> Any:
    import jax.numpy as jnp

    from consilience import Problem

    rng = np.random.default_rng(0)
    shape = (sizes.agents, sizes.rows, sizes.parameters)
    features = rng.standard_normal(shape, np.float32).astype(dtype, copy=False)
    features *= sizes.parameters**-0.5
    outcomes = rng.integers(0, 2, shape[:2]).astype(dtype)

    def log_likelihood(w: Any, rows: Any) -> Any:
        linear = rows[0] @ w
        return rows[1] * linear - jnp.logaddexp(0.0, linear)

    shards = list(zip(features, outcomes, strict=True))
    return Problem(log_likelihood, lambda w: -0.5 * w @ w, lambda key: jnp.zeros(sizes.parameters, dtype), shards)


def _kinetic(sizes: Sizes) -> float:
    """Seconds for a step of all chains."""
    import jax

    from consilience import Plan, graphs, kinetic
    from consilience.engines.simulate import Simulation

    plan = Plan(
        graph=graphs.ring(sizes.agents), sampler=kinetic(1e-4, 1, whitening="none"), num_steps=10**6,
        num_chains=sizes.chains, store_every=1_000, dtype="float32",
    )  # fmt: skip
    engine = Simulation(_problem(sizes, np.float32), plan)
    engine.compile()
    state = engine.initial_state()
    return _of_one(lambda steps: jax.block_until_ready(engine.advance(state, 0, steps)[0]), engine.max_steps)


def _nuts(sizes: Sizes) -> float:
    """Seconds for a leapfrog step of all chains."""
    import jax

    from consilience import Plan, graphs, nuts
    from consilience.engines.unison import OneProcess, Replicas

    with jax.enable_x64(True):
        plan = Plan(
            graph=graphs.ring(sizes.agents), sampler=nuts(max_depth=_TRAJECTORY), num_chains=sizes.chains,
            num_warmup=_WARMUP, num_draws=1_000,
        )  # fmt: skip
        replicas = Replicas(_problem(sizes, np.float64), plan, OneProcess(sizes.agents), 0)
        state, _ = replicas.moved(replicas.initial_state(), 0, 1)
        small = state.adaptation.step_size * 0 + 1e-6  # no trajectory turns back
        state = state._replace(adaptation=state.adaptation._replace(step_size=small))
        _, buffers = replicas.moved(state, _WARMUP, 1)
        leapfrogs = 2**_TRAJECTORY - 1
        assert (buffers.measured["leapfrogs"][:1] == leapfrogs).all()
        return _of_one(lambda moves: replicas.moved(state, _WARMUP, moves), replicas.max_steps) / leapfrogs


def _of_one(run: Callable[[int], object], most: int) -> float:
    """Seconds for one of many, the best of some repetitions."""
    count = 1
    while True:
        began = time.perf_counter()
        run(count)
        took = time.perf_counter() - began
        if took > _SECONDS or count == most:
            break
        count = min(most, max(2 * count, int(count * _SECONDS / took) + 1))
    best = took
    for _ in range(_REPETITIONS - 1):
        began = time.perf_counter()
        run(count)
        best = min(best, time.perf_counter() - began)
    return best / count


def draw(path: str, curves: dict[tuple[str, str], list[Point]]) -> None:
    """A panel for each axis: time over size, and memory below it."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(2, len(SIZES), figsize=(11, 5), sharex="col", layout="constrained")
    for (sampler, axis), points in curves.items():
        above, below = panels[:, list(SIZES).index(axis)]
        size, seconds, megabytes = zip(*points, strict=True)
        above.loglog(size, seconds, "o-", label=f"{sampler}, exponent {exponent(points):.2f}")
        below.loglog(size, megabytes, "o-")
        above.legend(fontsize="small")
        below.set_xlabel(axis)
    panels[0, 0].set_ylabel("seconds for a step")
    panels[1, 0].set_ylabel("most memory, MB")
    figure.savefig(path, dpi=80)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        draw(sys.argv[1], {(sampler, axis): curve(sampler, axis) for sampler in SAMPLERS for axis in SIZES})
    else:
        for found in _measured(*sys.argv[1:]):
            print(json.dumps(found), flush=True)
