"""Comparisons of ours with itself: many chains against one, many agents against few. The bare engine, no files."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.setting import bare, mixture, mixture_plan
from benchmarks.table import Line
from benchmarks.timing import best_of_each

_CHAINS = 64
_FEW_AGENTS, _MANY_AGENTS = 100, 10_000
_REPETITIONS = 8


def chains() -> Iterator[Line]:
    """64 chains in one program: time for one step of one chain."""
    best = best_of_each(
        {
            "one": bare(mixture(), mixture_plan(200_000)),
            "many": bare(mixture(), mixture_plan(20_000, num_chains=_CHAINS)),
        },
        _REPETITIONS,
    )
    yield Line(
        f"{_CHAINS} chains: one step of one chain / one chain alone", best["many"] / _CHAINS, best["one"], 0.45
    )


def agents() -> Iterator[Line]:
    """A ring of 10,000 agents against one of 100: time for one step of one agent."""
    steps = {_FEW_AGENTS: 20_000, _MANY_AGENTS: 400}
    best = best_of_each(
        {str(n): bare(mixture(n), mixture_plan(num_steps, n)) for n, num_steps in steps.items()}, _REPETITIONS
    )
    many, few = (best[str(n)] / n for n in (_MANY_AGENTS, _FEW_AGENTS))
    yield Line(f"ring of {_MANY_AGENTS:,}: one step of one agent / ring of {_FEW_AGENTS}", many, few, 2)
