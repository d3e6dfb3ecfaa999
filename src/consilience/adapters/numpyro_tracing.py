"""A NumPyro model run once, with values put in, and what its sites then say.

The functions of NumPyro that are used stand here, in `numpyro_sites` and in `numpyro_outcomes`; a test names them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from consilience.adapters.numpyro_names import value_of
from consilience.adapters.numpyro_rows import called

Site = dict[str, Any]
Trace = dict[str, Site]


def trace(
    model: Callable[..., Any], rows: Any, values: Callable[[Site], Any], key: Any, kept: Trace | None = None
) -> Trace:
    """The sites of a model, by name, in their order.

    Args:
        model: written for one agent's rows.
        rows: with which it is called.
        values: from a site to the value it shall take, or `None` for a draw from its distribution.
        key: for draws.
        kept: sites are put there as they come, so that it is known how far a model came that fails.
    """
    from numpyro import handlers

    # As engines give them, in the precision that is set now. A copy, as JAX remembers what it has made of an array in
    # another precision.
    rows = jax.tree.map(lambda leaf: jnp.asarray(leaf.copy() if isinstance(leaf, np.ndarray) else leaf), rows)
    with handlers.block(), handlers.trace() as found:
        try:
            called(handlers.substitute(handlers.seed(model, key), substitute_fn=values), rows)
        finally:
            if kept is not None:
                kept.update(found)
    return found


def at(model: Callable[..., Any], parameters: Mapping[str, Any], rows: Any, key: Any = None) -> Trace:
    """The sites where the latent ones have the given values; a model without random state draws nothing then."""
    return trace(
        model, rows, lambda site: value_of(parameters, site["name"]) if is_latent(site) else None,
        jax.random.key(0) if key is None else key,
    )  # fmt: skip


def log_probability(site: Site) -> jax.Array:
    """The log-probability of a site's value, entry by entry; masks and scales of NumPyro's handlers are respected."""
    with_intermediates = (site["intermediates"],) if site["intermediates"] else ()
    found = jnp.asarray(site["fn"].log_prob(site["value"], *with_intermediates))
    return found if site["scale"] is None else site["scale"] * found


def is_latent(site: Site) -> bool:
    """Whether a site is sampled: a parameter."""
    return site["type"] == "sample" and not site["is_observed"]


def is_observed(site: Site) -> bool:
    """Whether a site is data, or a `factor`."""
    return site["type"] == "sample" and site["is_observed"]


def start(site: Site) -> Any:
    """Where a latent site starts: about the median of its prior; near the middle where entries belong together.

    The median of simplices, or of correlation matrices, is none.
    """
    from numpyro.infer.initialization import init_to_median, init_to_uniform

    if not is_latent(site):
        return None
    if entries_are_apart(site["fn"].support):
        return init_to_median(site)
    return init_to_uniform(site, radius=0.5)


def entries_are_apart(support: Any) -> bool:
    """Whether a support says of each entry of an array where it may be, whatever the others are."""
    from numpyro.distributions import constraints

    while isinstance(support, constraints.independent):
        support = support.base_constraint
    return support.event_dim == 0
