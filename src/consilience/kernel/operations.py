"""What a function is made of, read from its operations without computing any."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax

_PRODUCTS = {"dot_general", "conv_general_dilated"}


def multiplies_matrices(function: Callable[..., Any], *shapes: Any) -> bool:
    """Whether a function of arrays with such shapes has a product of vectors or matrices in it.

    >>> row = jax.ShapeDtypeStruct((1, 3), "float32")
    >>> multiplies_matrices(lambda w, x: x @ w, jax.ShapeDtypeStruct((3,), "float32"), row)
    True
    >>> multiplies_matrices(lambda w, x: (w - x) ** 2, jax.ShapeDtypeStruct((), "float32"), row)
    False
    """
    return any(name in _PRODUCTS for name in _names(jax.make_jaxpr(function)(*shapes).jaxpr))


def _names(jaxpr: Any) -> Iterator[str]:
    """The names of all operations, those inside others too."""
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for inside in jax.tree.leaves(list(equation.params.values()), is_leaf=_has_equations):
            if _has_equations(inside):
                yield from _names(getattr(inside, "jaxpr", inside))


def _has_equations(value: Any) -> bool:
    return hasattr(value, "eqns") or hasattr(getattr(value, "jaxpr", None), "eqns")
