"""Equinox modules become problems: the posterior of their floating-point arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from consilience.adapters.apply_functions import from_apply
from consilience.errors import ProblemError
from consilience.problems import Problem


def from_equinox(module: Any, *, shards: Sequence[tuple[Any, Any]], **options: Any) -> Problem:
    """The posterior of an Equinox module's floating-point arrays, given each agent's `(inputs, targets)`.

    Args:
        module: a function of one input, as Equinox has it; it is mapped over rows.
        shards: each agent's `(inputs, targets)`.
        options: `likelihood`, `prior_scale`, `noise`, `name`, as for `from_apply`.
    """
    try:
        import equinox
    except ImportError as error:
        raise ProblemError("from_equinox needs Equinox, which is not installed: pip install equinox") from error
    if not callable(module):
        raise ProblemError(f"expected an Equinox module that can be called, received a {type(module).__name__}")
    special = (equinox.nn.Dropout, equinox.nn.StateIndex)
    for path, leaf in jax.tree_util.tree_leaves_with_path(module, is_leaf=lambda part: isinstance(part, special)):
        place = jax.tree_util.keystr(path, simple=True, separator=".")
        if isinstance(leaf, equinox.nn.Dropout) and leaf.p > 0 and not leaf.inference:
            raise ProblemError(
                f"{place} is dropout in training mode, which draws random numbers, so the module is no function of "
                "its weights: use equinox.nn.inference_mode(module); the posterior takes the place of dropout"
            )
        if isinstance(leaf, equinox.nn.StateIndex):
            raise ProblemError(
                f"{place} is state that changes when the module is called (batch normalisation?), so that rows see "
                "each other: use a normalisation within a row, such as equinox.nn.LayerNorm"
            )
    weights, rest = equinox.partition(module, equinox.is_inexact_array)

    def apply(weights: Any, inputs: Any) -> Any:
        return jax.vmap(equinox.combine(weights, rest))(inputs)

    return from_apply(apply, weights, shards=shards, **{"name": type(module).__name__, **options})
