"""Where the latent sites of a NumPyro model may be, as constraints of a problem."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from consilience.adapters.numpyro_names import dotted
from consilience.adapters.numpyro_tracing import start, trace
from consilience.errors import ProblemError


def constraints_of_sites(model: Callable[..., Any], names: Sequence[str], rows: Sequence[Any]) -> dict[str, Any]:
    """By name, the constraints of latent sites that have one.

    Args:
        model: written for one agent's rows.
        names: of its latent sites.
        rows: to call it with; a support that is not the same for all of them, or depends on other parameters, is
            refused.

    The result has them by their names in the draws.
    """

    def supports(some: Any, key: jax.Array) -> dict[str, Any]:
        found = trace(model, some, start, key)
        return {name: found[name]["fn"].support for name in names}

    with jax.enable_x64(True):  # bounds are kept as they are written
        each = [jax.jit(supports)(some, jax.random.key(number)) for number, some in enumerate(rows)]
    found = {}
    for name in names:
        if not all(_same(each[0][name], other[name]) for other in each[1:]):
            raise ProblemError(
                f"the range of latent site {name!r} depends on other parameters or on rows: sample it on a fixed "
                "range, for example u ~ Uniform(0, 1), and compute low + (high - low) * u as a numpyro.deterministic"
            )
        constraint = _named(each[0][name])
        if constraint is not None:
            found[dotted(name)] = constraint
    return found


def _same(one: Any, other: Any) -> bool:
    """Whether two constraints are of the same kind and have the same bounds."""
    kind: Any = jax.tree.structure(one)
    bounds, others = jax.tree.leaves(one), jax.tree.leaves(other)
    return bool(kind == jax.tree.structure(other)) and all(map(np.array_equal, bounds, others))


def _named(support: Any) -> Any:
    """A constraint as a problem calls it; `None` for what may be anywhere.

    >>> from numpyro.distributions import constraints
    >>> _named(constraints.positive), _named(constraints.real_vector), _named(constraints.simplex)
    ('positive', None, 'simplex')
    """
    from numpyro.distributions import constraints

    inner = support
    while isinstance(inner, constraints.independent):
        inner = inner.base_constraint
    by_entry = {"positive": constraints.positive, "unit_interval": constraints.unit_interval}
    whole = {
        "simplex": constraints.simplex,
        "ordered": constraints.ordered_vector,
        "correlation": constraints.corr_matrix,
        "correlation_cholesky": constraints.corr_cholesky,
    }
    if _same(inner, constraints.real):
        return None
    for name, known in (by_entry | whole).items():
        if _same(known, inner if name in by_entry else support):
            return name
    return jax.tree.map(np.asarray, support)  # bounds in double precision, also where a run has single
