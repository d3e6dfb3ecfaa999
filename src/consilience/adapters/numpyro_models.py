"""A model written for NumPyro becomes a problem: its sites say what is prior, private and likelihood.

With latent sites `w` (shared) and `z` (named in `private`), at agent `i`

    log_prior    log p(w)        sites of w, and factors that see no rows
    log_private  log p(z|w)      sites of z
    likelihood   log p(x_b|w,z)  observed sites, one value for each row b

Parameters are on the scale on which the model is written; their supports become the problem's constraints.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from consilience.adapters.few_rows import few_rows
from consilience.adapters.numpyro_checks import (
    closes_over_arrays,
    require_apart,
    require_shared_first,
    unseen_by_rows,
)
from consilience.adapters.numpyro_names import dotted, nested
from consilience.adapters.numpyro_outcomes import outcomes_of
from consilience.adapters.numpyro_rows import require_rows, template_of
from consilience.adapters.numpyro_sites import Sites, find_sites
from consilience.adapters.numpyro_supports import constraints_of_sites
from consilience.adapters.numpyro_tracing import at, is_latent, log_probability, start, trace
from consilience.errors import ProblemError
from consilience.problems import Problem


def from_numpyro(
    model: Callable[..., Any], shards: Sequence[Any], *, private: Sequence[str] = (), check: bool = True
) -> Problem:
    """The posterior of a NumPyro model's latent sites, given every agent's rows.

    Args:
        model: written for one agent's rows, any number of them, as its author has it. What is no row, such as a
            number of groups, is fixed beforehand by `functools.partial`.
        shards: with what the model is called at each agent: a dictionary of arrays as `model(**rows)`, a tuple as
            `model(*rows)`. Every array has one leading entry for each row.
        private: latent sites that are an agent's own and never leave it.
        check: also evaluate the model on a few rows, to find rows that see each other and a prior that sees rows;
            what shapes show is refused anyway.

    `numpyro.deterministic` values that are functions of the parameters alone are the problem's `derived`; what the
    observed sites say about rows, with or without their outcome, is in its `outcomes`.

    >>> import numpyro, numpyro.distributions as dist
    >>> def heights(y):
    ...     mean, spread = numpyro.sample("mean", dist.Normal(0, 10)), numpyro.sample("spread", dist.HalfNormal(5))
    ...     with numpyro.plate("rows", len(y)):
    ...         numpyro.sample("y", dist.Normal(mean, spread), obs=y)
    >>> problem = from_numpyro(heights, [{"y": np.array([1.0, 2.0, 4.0])}, {"y": np.array([3.0, 2.5])}])
    >>> problem.num_agents, sorted(problem.init(jax.random.key(0))), problem.constraints
    (2, ['mean', 'spread'], {'spread': 'positive'})
    """
    shards = [jax.tree.map(np.asarray, shard) for shard in shards]
    require_rows(shards)
    single = not jax.config.read("jax_enable_x64")
    with jax.enable_x64(True):
        problem = _problem(model, shards, private, check)
        arrays = closes_over_arrays(model, problem)
    if single and arrays:  # JAX remembers them in double precision, and fails where they are then used in single
        jax.clear_caches()
    return problem


def _problem(model: Callable[..., Any], shards: list[Any], private: Sequence[str], check: bool) -> Problem:
    sites = find_sites(model, shards)
    own = _private_sites(sites, private)
    some = few_rows(shards)
    pieces = [some, jax.tree.map(lambda leaf: leaf[-1:], some)]
    template = template_of(some)
    shared = tuple(name for name in (*sites.latent, *sites.common) if name not in own)
    fixed = unseen_by_rows(model, sites.fixed, pieces)

    @jax.jit
    def init(key: jax.Array) -> dict[str, Any]:
        found = trace(model, template, start, key)
        return nested({name: site["value"] for name, site in found.items() if is_latent(site)})

    def derived(parameters: Mapping[str, Any]) -> dict[str, jax.Array]:
        found = at(model, parameters, template)
        return {dotted(name): found[name]["value"] for name in fixed}

    if own:
        require_shared_first(model, own, shared, jax.eval_shape(init, jax.random.key(0)), template)
    problem = Problem(
        log_likelihood=lambda parameters, rows: _of_each_row(model, sites.row_axes, parameters, rows),
        log_prior=lambda parameters: _of_sites(model, shared, parameters, template),
        init=init,
        shards=shards,
        name=_name(model),
        private=tuple(map(dotted, own)),
        log_private=(lambda parameters: _of_sites(model, own, parameters, template)) if own else None,
        constraints=constraints_of_sites(model, sites.latent, pieces),
        derived=derived if fixed else None,
        outcomes=outcomes_of(model, sites.row_axes, own, init, template),
    )
    if check:
        require_apart(model, problem, sites, some)
    return problem


def _of_each_row(model: Callable[..., Any], row_axes: dict[str, int], parameters: Any, rows: Any) -> jax.Array:
    """`(num_rows,)`: the log-likelihood of each row, of all observed sites together."""
    found, count = at(model, parameters, rows), jax.tree.leaves(rows)[0].shape[0]
    each = [
        jnp.moveaxis(log_probability(found[name]), axis, 0).reshape(count, -1).sum(1)
        for name, axis in row_axes.items()
    ]
    return sum(each[1:], each[0])


def _of_sites(model: Callable[..., Any], names: Sequence[str], parameters: Any, rows: Any) -> jax.Array:
    """The log-density of some sites, of all their entries together."""
    found = at(model, parameters, rows)
    return sum((log_probability(found[name]).sum() for name in names), jnp.zeros(()))


def _private_sites(sites: Sites, private: Sequence[str]) -> tuple[str, ...]:
    if isinstance(private, str):
        raise ProblemError(f"private is the text {private!r}: give a tuple of names, ({private!r},)")
    unknown = [name for name in private if name not in sites.latent]
    if unknown:
        raise ProblemError(
            f"private names {unknown[0]!r}, which is no latent site of the model: it has {', '.join(sites.latent)}"
        )
    return tuple(private)


def _name(model: Any) -> str:
    """What the author calls the model, also within `functools.partial` and NumPyro's handlers.

    >>> from functools import partial
    >>> def many_silos(y, groups): ...
    >>> _name(partial(many_silos, groups=3))
    'many silos'
    """
    while not hasattr(model, "__name__") and (hasattr(model, "func") or hasattr(model, "fn")):
        model = getattr(model, "func", None) or model.fn
    return getattr(model, "__name__", "NumPyro model").replace("_", " ")
