"""Comparisons with other programs that do the same mathematical work: NumPy, PyTorch, C and BlackJAX."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from benchmarks.setting import NUM_AGENTS, NUM_ROWS, mixture, mixture_plan, stored
from benchmarks.table import Line, Skipped
from benchmarks.timing import best_of_each

_OUR_STEPS = 4_000_000  # the first and the last write to disk take a tenth of a second, however long the run is
_COMPILED_STEPS = 1_000_000
_NUMPY_STEPS = 20_000
_TORCH_STEPS = 2_000
_REPETITIONS = 4
_ALL_ROWS = NUM_AGENTS * NUM_ROWS

_NUMPY = "mixture, 5 agents: one step / NumPy loop"
_TORCH = "mixture, 5 agents: one step / PyTorch eager"
_C = "mixture, 5 agents: one step / C loop (the limit)"
_SGLD = "mixture, 1 agent: one step / BlackJAX sgld in a scan"
_SGLD_OURS = "mixture, 1 agent: one step / the same with our gradient"


def mixture_of_five() -> Iterator[Line | Skipped]:
    """One chain of 5 agents, draws stored, against NumPy, PyTorch and C."""
    from benchmarks import compiled_c, numpy_loop

    problem, torch_found, c_found = mixture(), find_spec("torch"), compiled_c.compiler()
    contestants = {
        "ours": stored(problem, mixture_plan(_OUR_STEPS)),
        "numpy": numpy_loop.contestant(problem, mixture_plan(_NUMPY_STEPS)),
    }
    if c_found:
        contestants["c"] = compiled_c.contestant(problem, mixture_plan(_COMPILED_STEPS))
    if torch_found:
        from benchmarks import torch_eager

        for threads in (1, 2):
            contestants[f"torch {threads}"] = torch_eager.contestant(problem, mixture_plan(_TORCH_STEPS), threads)
    best = best_of_each(contestants, _REPETITIONS)
    yield Line(_NUMPY, best["ours"], best["numpy"], 1 / 10, shown_target="1/10")
    if torch_found:
        fastest = min(best["torch 1"], best["torch 2"])
        yield Line(_TORCH, best["ours"], fastest, 1 / 80, shown_target="1/80")
    else:
        yield Skipped(_TORCH, "PyTorch is not installed (pip install torch==2.13.0)")
    if c_found:
        yield Line(_C, best["ours"], best["c"], 6)
    else:
        yield Skipped(_C, "no C compiler (cc) was found")


def centralized() -> Iterator[Line | Skipped]:
    """One agent with all rows, draws stored, against BlackJAX."""
    if not find_spec("blackjax"):
        for what in (_SGLD, _SGLD_OURS):
            yield Skipped(what, "BlackJAX is not installed (pip install blackjax)")
        return
    from benchmarks import blackjax_sgld

    problem, plan = mixture(1, _ALL_ROWS), mixture_plan(_COMPILED_STEPS, 1)
    contestants = {
        "ours": stored(problem, mixture_plan(_OUR_STEPS, 1)),
        "usual": blackjax_sgld.contestant(problem, plan, blackjax_sgld.usual_gradient(problem)),
        "engine": blackjax_sgld.contestant(problem, plan, blackjax_sgld.engine_gradient(problem)),
    }
    best = best_of_each(contestants, _REPETITIONS)
    yield Line(_SGLD, best["ours"], best["usual"], 1)
    yield Line(_SGLD_OURS, best["ours"], best["engine"], 1)
