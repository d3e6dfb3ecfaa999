"""Rows that somebody wants predictions for: are they what the model was given?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from consilience.errors import InputError
from consilience.problems import Outcomes


def require_rows(rows: Any, example: Any, outcomes: Outcomes, parameters: Any) -> None:
    """Check new rows against an agent's shard, as far as both have the same arrays; rows may lack the outcome.

    Args:
        rows: the new ones.
        example: an agent's rows.
        outcomes: what the model says about rows.
        parameters: one draw of its parameters.
    """
    leaves = jax.tree.leaves(rows)
    if not leaves:
        raise InputError("there are no rows to predict: give arrays with one leading entry for each row")
    for leaf in leaves:
        kind = np.asarray(leaf).dtype
        if kind.kind not in "fiub":
            raise InputError(f"rows hold values of type {kind}: numbers are needed, code categories as the data was")
    lengths = sorted({np.shape(leaf)[0] if np.ndim(leaf) else -1 for leaf in leaves})
    if lengths[0] < 0:
        raise InputError("rows hold a scalar: every array needs one leading entry for each row")
    if len(lengths) > 1:
        raise InputError(f"the arrays of the rows have {' and '.join(map(str, lengths))} entries: give all the same")
    if lengths == [0]:
        raise InputError("there are no rows to predict: the arrays are empty")
    _require_alike(rows, example, "the rows")
    _require_taken(rows, outcomes, parameters)


def _require_alike(rows: Any, example: Any, where: str) -> None:
    if isinstance(rows, Mapping) and isinstance(example, Mapping):
        unknown = [name for name in rows if name not in example]
        if unknown:
            raise InputError(
                f"{where} have {str(unknown[0])!r}, which the data did not: it has {', '.join(map(str, example))}"
            )
        for name, value in rows.items():
            _require_alike(value, example[name], f"{where}' {name!r}")
    elif isinstance(rows, tuple | list) and isinstance(example, tuple | list):
        if len(rows) > len(example):
            raise InputError(f"{where} are {len(rows)} arrays, and the data {len(example)}")
        for place, (value, own) in enumerate(zip(rows, example, strict=False)):
            _require_alike(value, own, f"{where}' array {place}")
    elif not isinstance(example, Mapping | tuple | list) and np.shape(rows)[1:] != np.shape(example)[1:]:
        raise InputError(
            f"{where} have shape {np.shape(rows)}, and the data {('rows', *np.shape(example)[1:])}: "
            "after the first axis they must be the same"
        )


def _require_taken(rows: Any, outcomes: Outcomes, parameters: Any) -> None:
    """Check that the model can be called with the rows, before anything is compiled."""
    try:
        found = jax.eval_shape(outcomes.expected, parameters, jax.tree.map(np.asarray, rows))
    except InputError:
        raise
    except Exception as error:  # the model is the user's, and may fail in any way
        first = "".join(str(error).strip().splitlines()[:1])
        raise InputError(
            f"the model cannot take these rows ({type(error).__name__}: {first}): give all that it uses, in the form "
            "of an agent's shard; only the outcome may be missing"
        ) from error
    count = len(jax.tree.leaves(rows)[0])
    for name in outcomes.kinds:
        if found[name].shape[:1] != (count,):
            raise InputError(f"the model expects {found[name].shape} values of {name} for {count} rows: one for each")
