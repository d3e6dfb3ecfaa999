"""Rows as a NumPyro model takes them: an agent's, one that is nobody's, and new ones without an outcome.

A shard is what the model is called with: a dictionary of arrays as `model(**rows)`, a tuple as `model(*rows)`,
anything else as `model(rows)`. Its entries are called columns here, whatever their shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from consilience.errors import InputError, ProblemError
from consilience.problems import require_shards


def called(model: Callable[..., Any], rows: Any) -> Any:
    """What a model returns for some rows.

    >>> called(lambda x, y: x + y, {"x": 1, "y": 2}), called(max, (1, 2)), called(abs, -3)
    (3, 2, 3)
    """
    if isinstance(rows, Mapping):
        return model(**rows)
    return model(*rows) if isinstance(rows, tuple | list) else model(rows)


def require_rows(shards: Sequence[Any]) -> None:
    """Check that shards hold rows and nothing else."""
    for agent, shard in enumerate(shards):
        for path, leaf in jax.tree_util.tree_leaves_with_path(shard):
            if np.ndim(leaf) == 0:
                raise ProblemError(
                    f"the shard of agent {agent} holds {jax.tree_util.keystr(path, simple=True)!r}, which is no "
                    "array of rows: give the model what is the same for all rows by functools.partial"
                )
    require_shards(shards)


def template_of(rows: Any) -> Any:
    """One row that is nobody's: what sees no rows is computed with it, so that no data is kept in the prior."""
    return jax.tree.map(lambda leaf: np.ones_like(np.asarray(leaf)[:1]), rows)


def completed(rows: Any, template: Any) -> tuple[Any, frozenset[Any]]:
    """Rows with all columns that the model takes, and which of them were lacking and are made up.

    Columns that the model does not take are left out.

    >>> found, lacking = completed({"x": np.zeros(2), "other": np.zeros(2)}, {"x": np.ones(1), "y": np.ones(1)})
    >>> found["y"].tolist(), sorted(found), sorted(lacking)
    ([1.0, 1.0], ['x', 'y'], ['y'])
    """
    if not isinstance(template, Mapping | tuple | list):
        return rows, frozenset()
    if isinstance(template, Mapping):
        if not isinstance(rows, Mapping):
            wanted = ", ".join(map(str, template))
            raise InputError(f"expected rows as a dictionary of arrays ({wanted}), received a {type(rows).__name__}")
        given = {name: rows.get(name) for name in template}
    else:
        some = list(rows) if isinstance(rows, tuple | list) else [rows]
        given = dict(enumerate([*some, *[None] * (len(template) - len(some))][: len(template)]))
    present = [leaf for value in given.values() for leaf in jax.tree.leaves(value)]
    if not present:
        raise InputError(
            "the rows hold no column that the model takes: give one at least, so that their number is known"
        )
    count = np.shape(present[0])[0]
    lacking = frozenset(name for name, value in given.items() if value is None)
    for name in lacking:
        given[name] = jax.tree.map(lambda leaf: np.ones((count, *leaf.shape[1:]), leaf.dtype), template[name])
    return (given if isinstance(template, Mapping) else tuple(given.values())), lacking
