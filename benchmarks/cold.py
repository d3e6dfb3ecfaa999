"""From a cold start: seconds from the start of a process until its results are there, and until it has ended."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.table import Line
from benchmarks.timing import best_of_each

_LIMIT = 5.0
_REPETITIONS = 3
_BARE = "import jax; print(float(jax.jit(lambda x: x + 1)(1.0)))"
_REGRESSION = """
import numpy as np
import consilience as cs
rng = np.random.default_rng(0)
shards = [(rng.normal(size=(300, 6)), rng.normal(size=300)) for _ in range(5)]
plan = cs.Plan(graph=cs.graphs.ring(5), sampler=cs.dula(1e-4, 0.2), num_steps=1000)
run = cs.sample(cs.models.linear_regression(shards), plan)
print(run.summary["num_draws"])
"""


def cold() -> Iterator[Line]:
    """A command, a call, and what no program that uses JAX can do without."""
    results: list[float] = []

    def command() -> float:
        with tempfile.TemporaryDirectory() as directory:
            words = ["run", "gmm", "--agents", "2", "--steps", "1000", "--out", str(Path(directory) / "run")]
            first, last = _seconds(["-m", "consilience.cli.main", *words], until="Sinkhorn distance")
        results.append(first)
        return last

    best = best_of_each(
        {
            "command": command,
            "call": lambda: _seconds(["-c", _REGRESSION])[1],
            "bare": lambda: _seconds(["-c", _BARE])[1],
        },
        _REPETITIONS,
    )
    yield Line("cold: run gmm --agents 2, until its results / 5 s", min(results), _LIMIT, 1)
    yield Line("cold: run gmm --agents 2, until the end / 5 s", best["command"], _LIMIT, 1)
    yield Line("cold: run gmm --agents 2 / import jax, one jit", best["command"], best["bare"], 7)
    yield Line("cold: sample() of a regression / import jax, one jit", best["call"], best["bare"], 7)


def _seconds(words: Sequence[str], until: str = "") -> tuple[float, float]:
    """Seconds until a process prints a line that begins so, and until it has ended; nothing is kept compiled."""
    kept = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    began, seen = time.perf_counter(), float("inf")
    with subprocess.Popen(
        [sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=kept
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(until):
                seen = min(seen, time.perf_counter() - began)
    if process.returncode:
        raise RuntimeError(f"a process failed: {' '.join(words)[:200]}")
    return seen, time.perf_counter() - began
