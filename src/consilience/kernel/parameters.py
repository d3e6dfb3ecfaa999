"""A model's parameters as one flat vector, where agents start, and the potential there.

Inside, parameters travel as one flat vector per agent: one noise draw, one message and one fused update, however
many arrays the model has. `Parameters` converts between the two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from consilience.errors import ProblemError
from consilience.problems import Problem

_RESERVED = {"chain", "agent", "draw", "step", "step_size", "weight"}


@dataclass(frozen=True)
class Parameters:
    """How a model's parameters map to one flat vector, and what its arrays are called."""

    size: int
    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    unravel: Callable[[jax.Array], Any]

    @property
    def offsets(self) -> list[int]:
        """Where each array starts in the flat vector, and the end."""
        return [0, *np.cumsum([int(np.prod(shape)) for shape in self.shapes]).tolist()]

    @classmethod
    def of(cls, problem: Problem, dtype: Any) -> Parameters:
        """The layout of what `problem.init` returns."""
        example = problem.init(jax.random.key(0))
        named, _ = jax.tree_util.tree_flatten_with_path(example)
        if not named:
            raise ProblemError("init returned no arrays: return the model's parameters, any pytree of arrays")
        dtypes: dict[str, Any] = {}
        for path, leaf in named:
            name = jax.tree_util.keystr(path, simple=True, separator=".").replace("/", ".") or "w"
            if name in _RESERVED or name in dtypes:
                why = "is used for something else" if name in _RESERVED else "occurs twice"
                raise ProblemError(f"the parameter name {name!r} {why} in the draws: call it something else")
            if np.size(leaf) == 0:
                raise ProblemError(f"parameter {name!r} from init has shape {np.shape(leaf)}: leave it out")
            if not np.issubdtype(np.asarray(leaf).dtype, np.floating):
                raise ProblemError(
                    f"parameter {name!r} from init has dtype {np.asarray(leaf).dtype}: parameters must be "
                    "floating-point, for example jnp.zeros(shape)"
                )
            dtypes[name] = None if isinstance(leaf, float) else np.asarray(leaf).dtype
        found = {dtype for dtype in dtypes.values() if dtype is not None}
        if len(found) > 1:
            listed = ", ".join(f"{name}: {dtype}" for name, dtype in dtypes.items())
            raise ProblemError(f"init mixes dtypes ({listed}): give all parameters the same one")
        cast = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), example)
        flat, unravel = ravel_pytree(cast)
        shapes = tuple(np.shape(leaf) for _, leaf in named)
        return cls(int(flat.size), tuple(dtypes), shapes, unravel)


def initial_positions(problem: Problem, parameters: Parameters, keys: jax.Array, dtype: Any) -> jax.Array:
    """`keys.shape + (size,)`: where every agent of every chain starts."""

    def start(key: jax.Array) -> jax.Array:
        drawn = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), problem.init(key))
        return ravel_pytree(drawn)[0]

    for _ in keys.shape:
        start = jax.vmap(start)
    return jax.jit(start)(keys)


def potential(
    problem: Problem, parameters: Parameters, w: jax.Array, rows: Any, row_weights: jax.Array | None, scale: Any
) -> jax.Array:
    """`U_i(w)` over the flat vector `w`, up to a constant.

    `row_weights` (or `None` for all ones) multiplies each row's log-likelihood and `scale` their sum: 1 for a full
    shard, `m_i/B` for a minibatch.
    """
    tree = parameters.unravel(w)
    each = problem.log_likelihood(tree, rows)
    total = each.sum() if row_weights is None else (each * row_weights).sum()
    return -scale * total - problem.prior_share * problem.log_prior(tree)
