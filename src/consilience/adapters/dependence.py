"""Which inputs can change an output of a function: read from the function's operations, without computing any.

An output that no chain of operations connects with an input cannot depend on it. The other way round it may still be
constant, for example if it is multiplied by 0: this errs on the side of seeing a dependence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax


def used_columns(function: Callable[[Any], Mapping[str, Any]], inputs: Any) -> dict[str, frozenset[Any]]:
    """By name of the output, the entries of `inputs` (keys of a dictionary, places in a tuple) that it may depend on.

    Args:
        function: from inputs to outputs by name.
        inputs: arrays, or their shapes.

    >>> rows = {"x": 1.0, "y": 2.0}
    >>> found = used_columns(lambda rows: {"sum": rows["x"] + 1.0, "size": 0.0 + rows["y"].size}, rows)
    >>> sorted(found["sum"]), sorted(found["size"])
    (['x'], [])
    """
    closed, shapes = jax.make_jaxpr(function, return_shape=True)(inputs)
    columns = [_first(path) for path, _ in jax.tree_util.tree_leaves_with_path(inputs)]
    reached: dict[Any, frozenset[Any]] = {
        variable: frozenset([column]) for variable, column in zip(closed.jaxpr.invars, columns, strict=True)
    }

    def behind(variables: Any) -> frozenset[Any]:
        known = [
            reached[one] for one in variables if not hasattr(one, "val") and one in reached
        ]  # literals have `val`
        return frozenset().union(*known)

    for equation in closed.jaxpr.eqns:
        sources = behind(equation.invars)
        reached.update(dict.fromkeys(equation.outvars, sources))
    each = iter(closed.jaxpr.outvars)
    return {
        name: frozenset().union(*(behind([next(each)]) for _ in jax.tree.leaves(shapes[name])))
        for name in sorted(shapes)
    }


def _first(path: tuple[Any, ...]) -> Any:
    """The outermost key or place of a leaf; `None` if the inputs are a single array."""
    if not path:
        return None
    return getattr(path[0], "key", getattr(path[0], "idx", getattr(path[0], "name", None)))
