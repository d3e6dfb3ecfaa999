"""Comparisons of `mesh` with itself and with `simulate`: a9a with 1,000 agents on a ring, the bare engines.

Every contestant is a process of its own, because JAX counts devices once, and because one of them may use one core
alone; they take turns as always.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

from benchmarks.table import Line, Skipped
from benchmarks.timing import best_of_each
from consilience.datasets import load
from consilience.errors import DataError

_REPETITIONS = 8
_TWO = "a9a, 1,000 agents: mesh on 2 devices / on 1, on one core"
_OVERHEAD = "a9a, 1,000 agents, one core: mesh on 1 device / simulate"


class Worker:
    """A contestant in another process."""

    def __init__(self, kind: str, devices: int, cores: int) -> None:
        command = [sys.executable, "-m", "benchmarks.mesh_worker", kind, str(devices), str(cores)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._read()

    def __call__(self) -> float:
        assert self.process.stdin is not None
        print("go", file=self.process.stdin, flush=True)
        return float(self._read())

    def _read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def mesh() -> Iterator[Line | Skipped]:
    """Two devices against one that is pinned to one core, and what the mesh itself costs."""
    try:
        load("a9a", "train")
    except DataError as error:
        yield Skipped(_TWO, str(error))
        yield Skipped(_OVERHEAD, str(error))
        return
    if (os.cpu_count() or 1) < 2:
        yield Skipped(_TWO, "this machine has one core")
    else:
        best = _raced({"two": ("mesh", 2, 2), "one": ("mesh", 1, 1)})
        yield Line(_TWO, best["two"], best["one"], 1 / 1.75, shown_target="1/1.75")
    best = _raced({"mesh": ("mesh", 1, 1), "simulate": ("simulate", 1, 1)})
    yield Line(_OVERHEAD, best["mesh"], best["simulate"], 1.1)


def _raced(contestants: dict[str, tuple[str, int, int]]) -> dict[str, float]:
    workers = {name: Worker(*entries) for name, entries in contestants.items()}
    try:
        return best_of_each(dict(workers), _REPETITIONS)
    finally:
        for worker in workers.values():
            worker.close()
