"""Where parameters may be, and the maps to the unconstrained scale on which samplers move; all maps are NumPyro's.

NumPyro is loaded only where a problem has constraints.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from consilience.errors import ProblemError

_NAMED = {
    "positive": "positive",
    "unit_interval": "unit_interval",
    "simplex": "simplex",
    "ordered": "ordered_vector",
    "correlation": "corr_matrix",
    "correlation_cholesky": "corr_cholesky",
}
_ROWS_AT_ONCE = 4096
_NUMBERS_AT_ONCE = 2**22


class Constraint:
    """Where one array of a model may be.

    Args:
        name: of the parameter.
        kind: what the problem says about it.
        shape: of the array.

    Attributes:
        free_shape: the shape of the array on the unconstrained scale.

    >>> weights = Constraint("weights", "simplex", (3,))
    >>> weights.free_shape, np.round(np.asarray(weights.inside(np.zeros(2)), float), 3).tolist()
    ((2,), [0.333, 0.333, 0.333])
    """

    def __init__(self, name: str, kind: Any, shape: tuple[int, ...]) -> None:
        from numpyro.distributions.transforms import biject_to

        self.name, self.kind, self.shape = name, kind, shape
        self._allowed = _numpyro_constraint(name, kind)
        try:
            self._transform = biject_to(self._allowed)
            self.free_shape = tuple(self._transform.inverse_shape(shape))
        except Exception as error:
            raise ProblemError(
                f"parameter {name!r} of shape {shape} cannot have the constraint {kind!r} "
                f"({type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no map'})"
            ) from error
        self._many = jax.jit(jax.vmap(self.inside))

    def inside(self, free: Any) -> jax.Array:
        """The constrained array, from one on the unconstrained scale."""
        return self._transform(free)

    def free(self, inside: Any) -> jax.Array:
        """The array on the unconstrained scale, from a constrained one."""
        return self._transform.inv(inside)

    def log_jacobian(self, free: Any) -> jax.Array:
        """The logarithm of the volume that a unit of the unconstrained scale has on the constrained one."""
        return self._transform.log_abs_det_jacobian(free, self.inside(free)).sum()

    def require(self, values: Any, whose: str = "") -> None:
        """Check that initial values `(…, *shape)` are inside, and not on the border, which is infinitely far away."""
        with jax.enable_x64(True):
            each = np.asarray(values, float).reshape(-1, *self.shape)
            finite = jax.vmap(lambda value: self._allowed(value).all() & jnp.isfinite(self.free(value)).all())
            kept = np.asarray(jax.jit(finite)(each))
        if not kept.all():
            value = np.array2string(each[int(np.argmin(kept))], threshold=6, precision=4)
            raise ProblemError(
                f"the initial value of {self.name!r}{whose} breaks its constraint {self.kind!r}, or lies on its "
                f"border: init returned {value}"
            )

    def many_inside(self, free: np.ndarray) -> np.ndarray:
        """Constrained arrays `(count, *shape)` from `(count, *free_shape)`, a piece at a time."""
        rows = max(1, min(_ROWS_AT_ONCE, _NUMBERS_AT_ONCE // max(1, math.prod(self.shape))))
        found = np.empty((len(free), *self.shape), free.dtype)
        with jax.enable_x64(free.dtype == np.float64), jax.default_device(jax.local_devices(backend="cpu")[0]):
            for first in range(0, len(free), rows):
                piece = free[first : first + rows]
                filled = np.zeros((rows, *self.free_shape), free.dtype)  # of one size: it is compiled once
                filled[: len(piece)] = piece
                found[first : first + rows] = np.asarray(self._many(filled))[: len(piece)]
        return found


def matching(names: Sequence[str], wanted: Sequence[str], what: str) -> dict[str, str]:
    """The parameters that are meant, each with the name that means it; a name also means all below it.

    >>> matching(["effects.a", "effects.b", "scale"], ["effects"], "private")
    {'effects.a': 'effects', 'effects.b': 'effects'}
    """
    found: dict[str, str] = {}
    for one in wanted:
        meant = [name for name in names if name == one or name.startswith(f"{one}.")]
        if not meant:
            raise ProblemError(f"{what} names {one!r}, but the parameters are {', '.join(names)}: name one of them")
        twice = [name for name in meant if name in found]
        if twice:
            raise ProblemError(f"{what} names {twice[0]!r} twice, as {found[twice[0]]!r} and {one!r}: name it once")
        found |= dict.fromkeys(meant, one)
    return found


def constraints_of(constraints: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Constraint]:
    """The constraints of a model's arrays, by their names."""
    meant = matching(list(shapes), list(constraints), "constraints")
    return {name: Constraint(name, constraints[one], shapes[name]) for name, one in meant.items()}


def _numpyro_constraint(name: str, kind: Any) -> Any:
    from numpyro.distributions import constraints

    if isinstance(kind, str) and kind in _NAMED:
        return getattr(constraints, _NAMED[kind])
    if isinstance(kind, tuple) and len(kind) == 3 and kind[0] == "interval":
        _, low, high = kind
        if not np.all(np.asarray(low) < np.asarray(high)):
            raise ProblemError(
                f"the interval of {name!r} ends at {high} and begins at {low}: give the lower end first"
            )
        return constraints.interval(low, high)
    if isinstance(kind, constraints.Constraint):
        return kind
    raise ProblemError(
        f"the constraint of {name!r} is {kind!r}, which is none: take one of {', '.join(_NAMED)}, "
        '("interval", low, high) or a constraint of NumPyro'
    )
