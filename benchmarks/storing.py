"""What storing, checkpoints and progress cost together: `sample()` against the bare engine, the same steps."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.setting import bare, mixture, mixture_plan, stored
from benchmarks.table import Line
from benchmarks.timing import best_of_each
from consilience.runs.loop import Progress
from consilience.sampling.run import Run

_STEPS = 22_000_000  # long enough for a checkpoint, which is due every 10 seconds
_REPETITIONS = 3


def storing() -> Iterator[Line]:
    """A run of about ten seconds with everything that a user's run has, against its computation alone."""
    shown: list[Progress] = []
    checkpoints: list[int] = []

    def count_checkpoints(run: Run) -> None:
        checkpoints.append(len(list(run.path.glob("checkpoints/[0-9]*"))))

    problem, plan = mixture(), mixture_plan(_STEPS)
    contestants = {"bare": bare(problem, plan), "stored": stored(problem, plan, shown.append, count_checkpoints)}
    best = best_of_each(contestants, _REPETITIONS)
    what = f"storing, {max(checkpoints)} checkpoint(s), progress: run / bare engine"
    yield Line(what, best["stored"], best["bare"], 1.05)
