"""Programs that run once or a few times on little data: what they cost is their compilation, so that is kept short.

XLA takes most of its time to optimise. Without that a program is ready in a quarter to a third of the time. Whoever
computes for long, or on much, takes `jax.jit` as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

_OPTIONS: dict[str, str | bool] = {"xla_cpu_use_fusion_emitters": False}
_LITTLE_WORK = 10**8


def compiled_quickly(function: Callable[..., Any], same_bits: bool = False) -> Callable[..., Any]:
    """`jax.jit` of a function, compiled with next to no optimisation.

    Numbers are rounded elsewhere than in an optimised program, unless they are to have the `same_bits`; that takes
    about twice as long. An XLA that does not know the options compiles as usual.

    >>> float(compiled_quickly(lambda x: x + 1)(1.0))
    2.0
    """
    level: dict[str, Any] = {"xla_backend_optimization_level": 1 if same_bits else 0}
    quick, usual = jax.jit(function, compiler_options=_OPTIONS | level), jax.jit(function)

    def call(*arguments: Any) -> Any:
        if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(arguments)):
            return usual(*arguments)  # a part of another program
        try:
            return quick(*arguments)
        except jax.errors.JaxRuntimeError as error:
            if "No such compile option" not in str(error):
                raise
            return usual(*arguments)

    return call


def for_work(work: float, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function compiled quickly if it does little work (a count of operations, about), and as usual otherwise."""
    return compiled_quickly(function) if work <= _LITTLE_WORK else jax.jit(function)
