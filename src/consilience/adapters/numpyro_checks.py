"""Is a NumPyro model a product over rows, times a prior that sees none of them? Shown by numbers, on a few rows.

Shapes cannot show that a covariate was centred inside the model, or that a prior's scale comes from the data: every
site still has its row axis, or none. So sites are evaluated on all of a few rows, and on some of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from consilience.adapters.dependence import used_columns
from consilience.adapters.numpyro_names import nested, value_of
from consilience.adapters.numpyro_sites import Sites
from consilience.adapters.numpyro_tracing import Trace, at, log_probability, start, trace
from consilience.errors import ProblemError
from consilience.kernel.parameters import Parameters
from consilience.problems import Problem, cast_floats

_TOLERANCE = 1e-5  # a model may compute in single precision


def require_apart(model: Callable[..., Any], problem: Problem, sites: Sites, rows: Any) -> None:
    """Check that rows do not see each other, that nothing else sees rows, and that the model draws no numbers."""
    count = len(jax.tree.leaves(rows)[0])
    pieces = [np.arange(count)[::-1], np.array([count - 1])]  # what follows a row, and whatever else is there

    @jax.jit
    def densities(parameters: Any, rows: Any, key: jax.Array) -> dict[str, jax.Array]:
        found = at(model, parameters, rows, key)
        return {name: log_probability(site) for name, site in found.items() if site["type"] == "sample"}

    with jax.enable_x64(True):
        parameters, double = _somewhere(problem), cast_floats(rows, jnp.float64)
        whole = jax.device_get(densities(parameters, double, jax.random.key(0)))
        again = densities(parameters, double, jax.random.key(1))
        for name in whole:
            if not _alike(whole[name], again[name]):
                raise ProblemError(_random(name))
        for chosen in pieces:
            some = jax.tree.map(lambda leaf, chosen=chosen: leaf[chosen], double)
            part = jax.device_get(densities(parameters, some, jax.random.key(0)))
            for name in (*sites.latent, *sites.common):
                if not _alike(whole[name].sum(), part[name].sum()):
                    raise ProblemError(_sees_rows(name, name in sites.latent))
            for name, axis in sites.row_axes.items():
                if not _alike(np.take(whole[name], chosen, axis), part[name]):
                    raise ProblemError(_rows_see_each_other(name))


def require_shared_first(
    model: Callable[..., Any], private: Sequence[str], shared: Sequence[str], parameters: Any, rows: Any
) -> None:
    """Check that the prior of what is shared does not depend on what is an agent's own."""
    values = {name: value_of(parameters, name) for name in (*private, *shared)}  # factors have none

    def densities(values: dict[str, Any]) -> dict[str, jax.Array]:
        found = at(model, nested(values), rows)
        return {name: log_probability(found[name]) for name in shared}

    for name, sources in used_columns(densities, values).items():
        own = sorted(sources & set(private))
        if own:
            raise ProblemError(
                f"the density of {name!r}, which all agents share, depends on the private {' and '.join(own)}, which "
                "differs from agent to agent: name it in `private` too, or let the private site depend on the "
                "shared one"
            )


def closes_over_arrays(model: Callable[..., Any], problem: Problem) -> bool:
    """Whether a model computes with arrays that are neither parameters nor rows."""

    def densities(parameters: Any, rows: Any) -> list[jax.Array]:
        return [log_probability(site) for site in at(model, parameters, rows).values() if site["type"] == "sample"]

    rows = jax.tree.map(lambda leaf: leaf[:1], problem.shards[0])
    return bool(jax.make_jaxpr(densities)(jax.eval_shape(problem.inits[0], jax.random.key(0)), rows).consts)


def unseen_by_rows(model: Callable[..., Any], names: Sequence[str], pieces: Sequence[Any]) -> tuple[str, ...]:
    """Those deterministic values that are the same whatever the rows: functions of the parameters alone."""
    if not names:
        return ()

    def run(rows: Any) -> Trace:
        return trace(model, rows, start, jax.random.key(0))

    with jax.enable_x64(True):
        values = jax.jit(lambda rows: {name: site["value"] for name, site in run(rows).items() if name in names})
        first, *others = [jax.device_get(values(cast_floats(rows, jnp.float64))) for rows in pieces]
    return tuple(name for name in names if all(_alike(first[name], other[name]) for other in others))


def _somewhere(problem: Problem) -> Any:
    """Parameters near where agents start, but at no special place: slopes are not zero there."""
    parameters = Parameters.of(problem, jnp.float64)
    own = parameters.groups[0].parameters if parameters.groups else parameters

    def near(start: Any) -> Any:
        w = own.ravel(start)
        return own.unravel(w + 0.3 * jnp.sin(1.0 + jnp.arange(len(w))))

    return jax.jit(near)(cast_floats(problem.inits[0](jax.random.key(2)), jnp.float64))


def _alike(one: Any, other: Any) -> bool:
    return np.shape(one) == np.shape(other) and np.allclose(one, other, _TOLERANCE, _TOLERANCE, equal_nan=True)


def _random(name: str) -> str:
    return (
        f"the density of {name!r} changes from call to call, since the model draws random numbers (numpyro.prng_key, "
        "dropout?): every number that is drawn must be a sample site"
    )


def _sees_rows(name: str, latent: bool) -> str:
    if latent:
        return (
            f"the prior of latent site {name!r} depends on the rows, so that agents with different rows would have "
            "different priors: write numbers that all agents agree on in advance"
        )
    return (
        f"{name!r} adds one number for all rows together (a factor that sums over rows?): give it one value for each "
        "row, without summing, and the sampler sums"
    )


def _rows_see_each_other(name: str) -> str:
    return (
        f"the log-likelihood of a row at observed site {name!r} changes with the other rows (a covariate that is "
        "centred or scaled inside the model, a time series?): agents hold different rows, so compute such numbers "
        "beforehand, the same for all agents, and let a row be a whole series"
    )
