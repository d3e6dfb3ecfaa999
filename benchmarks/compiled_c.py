"""Contestant: `mixture.c`, compiled on the spot by the system's C compiler for this machine. It is the limit."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.setting import STORE_EVERY, require_same_gradient
from benchmarks.timing import Contestant, seconds_of
from consilience import Plan, Problem
from consilience.schedules import FromTo

_SOURCE = Path(__file__).with_name("mixture.c")
_OPTIONS = ("-O3", "-march=native", "-ffast-math", "-shared", "-fPIC")


class _Schedule(ctypes.Structure):
    """The C program's form of `FromTo`."""

    _fields_ = (("start", ctypes.c_float), ("offset", ctypes.c_float), ("exponent", ctypes.c_float))

    @classmethod
    def of(cls, schedule: FromTo) -> _Schedule:
        return cls(schedule.start, schedule.offset, schedule.exponent)


def compiler() -> str | None:
    """Where the C compiler is, if there is one."""
    return shutil.which("cc")


def contestant(problem: Problem, plan: Plan) -> Contestant:
    """The compiled loop over all steps of the plan, which keeps a draw every 10 steps."""
    library = _compiled()
    data = np.ascontiguousarray(np.stack(problem.shards), np.float32)
    shape = (problem.num_agents, 2)

    def gradients(positions: np.ndarray) -> np.ndarray:
        out = np.empty(shape, np.float32)
        library.gradients(_pointer(data), _pointer(positions), _pointer(out))
        return out

    def sample() -> None:
        positions, draws = np.zeros(shape, np.float32), np.empty((plan.num_stored, *shape), np.float32)
        library.sample(
            _pointer(data),
            _pointer(positions),
            _pointer(draws),
            ctypes.c_int64(plan.num_steps),
            ctypes.c_int64(STORE_EVERY),
            ctypes.c_uint64(plan.seed),
            _Schedule.of(plan.sampler.step_size),
            _Schedule.of(plan.sampler.consensus),
        )

    require_same_gradient(gradients, problem)
    return lambda: seconds_of(sample) / plan.num_steps


def _compiled() -> ctypes.CDLL:
    with tempfile.TemporaryDirectory() as directory:
        library = Path(directory) / "mixture.so"
        subprocess.run([str(compiler()), *_OPTIONS, str(_SOURCE), "-o", str(library), "-lm"], check=True)
        return ctypes.CDLL(str(library))


def _pointer(array: np.ndarray) -> ctypes.c_void_p:
    return array.ctypes.data_as(ctypes.c_void_p)
