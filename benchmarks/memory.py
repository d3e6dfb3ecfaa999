"""How much memory a long run takes beyond a short one: 10⁷ steps, 10⁶ draws stored, in a fresh process.

The process samples 20,000 steps first, so that everything is loaded and compiled, then notes its resident memory.
The growth is the largest resident size ever reached in the long run, less that.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

from benchmarks.table import Line

_STEPS = 10_000_000
_SHORT_STEPS = 20_000
_LIMIT = 300.0
_STATUS = Path("/proc/self/status")


def memory() -> Iterator[Line]:
    """The growth of a process over a long run, without and with the summary that follows it."""
    process = subprocess.run([sys.executable, "-m", __name__], check=True, stdout=subprocess.PIPE, text=True)
    sampling, whole = map(float, process.stdout.split())
    yield Line("memory: growth over 10⁷ steps stored every 10 / limit", sampling, _LIMIT, 1, unit="MB")
    yield Line("memory: the same, and the summary of the run", whole, _LIMIT, 1, unit="MB")


def _measure() -> tuple[float, float]:
    """Growth in megabytes at the end of sampling, and at the end of all."""
    from benchmarks.setting import mixture, mixture_plan
    from consilience import sample
    from consilience.errors import PlanWarning

    warnings.simplefilter("ignore", PlanWarning)
    peaks = []
    with tempfile.TemporaryDirectory() as directory:
        sample(mixture(), mixture_plan(_SHORT_STEPS), Path(directory) / "short")
        before = _resident("VmRSS")
        sample(mixture(), mixture_plan(_STEPS), Path(directory) / "long", progress=lambda _: peaks.append(peak()))
    return peaks[-1] - before, peak() - before


def peak() -> float:
    """The most megabytes that this process has had resident."""
    return _resident("VmHWM")


def _resident(entry: str) -> float:
    """Megabytes resident now (`VmRSS`) or at most so far (`VmHWM`).

    Linux passes the peak that `getrusage` knows on from a process to its children, who so begin with the peak of
    whoever started them; `VmHWM` is the process's own. Elsewhere the peak of `getrusage` stands for both.
    """
    if _STATUS.exists():
        lines = dict(line.split(":", 1) for line in _STATUS.read_text().splitlines())
        return int(lines[entry].split()[0]) * 1024 / 1e6
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


if __name__ == "__main__":
    print(*_measure())
