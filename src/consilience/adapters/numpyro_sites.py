"""Which sites a NumPyro model has, and what each is for: found from shapes, without touching a row.

The model is traced for `k` and for `k + 1` rows under `jax.eval_shape`. An axis that grows is the row axis, and what
has none says something about all rows together. A model whose likelihood is not a product over rows is refused here,
by the name of the site, with what to do instead; what shapes cannot show is found by `numpyro_checks`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from consilience.adapters.numpyro_names import require_places
from consilience.adapters.numpyro_tracing import (
    Site,
    Trace,
    is_latent,
    is_observed,
    log_probability,
    start,
    trace,
)
from consilience.errors import ProblemError

_ROWS = 11
_STATE = {
    "param": "a numpyro.param, which has no prior: make it a sample site with one",
    "mutable": "mutable state: compute it beforehand and pass it to the model",
    "prng_key": "a source of random numbers in the model (dropout?): all numbers that it draws must be sample sites",
}


@dataclass(frozen=True)
class Sites:
    """What the sites of a model are for.

    Attributes:
        latent: parameters, in the model's order.
        row_axes: observed sites with one value for each row, and on which axis of their log-probability.
        common: observed sites and factors that see no rows, which belong to the prior.
        fixed: `numpyro.deterministic` values without a row axis.
    """

    latent: tuple[str, ...]
    row_axes: dict[str, int]
    common: tuple[str, ...]
    fixed: tuple[str, ...]


def find_sites(model: Callable[..., Any], shards: Sequence[Any]) -> Sites:
    """The sites of a model, or an error that says which of them cannot be had."""
    sites, fewer = _shapes(model, shards, _ROWS)
    others, more = _shapes(model, shards, _ROWS + 1)
    if set(sites) != set(others):
        name = min(set(sites) ^ set(others))
        raise ProblemError(
            f"site {name!r} is there or not depending on the number of rows (a loop over rows?): take all rows at "
            "once, "
            'in `with numpyro.plate("rows", len(y))`'
        )
    for name, site in sites.items():
        _require_kind(name, site)
    grown = {name: _grown(fewer[name], more[name]) for name in fewer}
    require_places(name for name, site in sites.items() if is_latent(site))
    for name in filter(lambda name: is_latent(sites[name]), sites):
        _require_shared_or_private(name, sites[name], grown[name])
    row_axes = {}
    for name in filter(lambda name: is_observed(sites[name]), sites):
        value_grows = np.shape(sites[name]["value"]) != np.shape(others[name]["value"])
        axis = _row_axis(name, sites[name], fewer[name], grown[name], value_grows)
        if axis is not None:
            row_axes[name] = axis
    if not row_axes:
        raise ProblemError(
            "no observed site of the model has one value for each row: give the data as `obs` of a sample site, and "
            "do not sum over rows"
        )
    return Sites(
        latent=tuple(name for name, site in sites.items() if is_latent(site)),
        row_axes=row_axes,
        common=tuple(name for name, site in sites.items() if is_observed(site) and name not in row_axes),
        fixed=tuple(name for name, site in sites.items() if site["type"] == "deterministic" and not grown[name]),
    )


def _shapes(model: Callable[..., Any], shards: Sequence[Any], count: int) -> tuple[Trace, dict[str, tuple[int, ...]]]:
    """The sites for so many rows, and the shapes of values, and of the log-probabilities of what is observed."""
    kept: Trace = {}

    def shape_of(site: Site) -> Any:
        return log_probability(site) if is_observed(site) else site["value"]

    def run(rows: Any) -> dict[str, Any]:
        found = trace(model, rows, lambda site: None if _is_discrete(site) else start(site), jax.random.key(0), kept)
        return {
            name: shape_of(site) for name, site in found.items()
            if site["type"] in ("sample", "deterministic") and site["value"] is not None
        }  # fmt: skip

    rows = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((count, *np.shape(leaf)[1:]), _dtype(leaf)), shards[0])
    try:
        found = jax.eval_shape(run, rows)
    except ProblemError:
        raise
    except Exception as error:
        raise ProblemError(_failure(kept, count, [len(jax.tree.leaves(one)[0]) for one in shards], error)) from error
    return kept, {name: value.shape for name, value in found.items()}


def _dtype(leaf: Any) -> Any:
    return jax.dtypes.canonicalize_dtype(np.asarray(leaf).dtype)


def _failure(kept: Trace, count: int, sizes: Sequence[int], error: Exception) -> str:
    """Why a model could not be traced with another number of rows than it is used to."""
    for name, site in kept.items():
        if site["type"] in _STATE:
            return f"{name!r} is {_STATE[site['type']]}"
        if site["type"] == "plate":
            _require_kind(name, site)
            if site["args"][0] not in (count, 1) and site["args"][0] in {*sizes, sum(sizes)}:
                return (
                    f"plate {name!r} has the fixed size {site['args'][0]}, but agents hold other numbers of rows: "
                    "take the size from the rows, for example len(y)"
                )
        elif is_latent(site) and count in np.shape(site["value"]):
            return _one_for_each_row(name)
    first = str(error).strip().splitlines()[0] if str(error).strip() else "no message"
    if isinstance(error, jax.errors.ConcretizationTypeError | jax.errors.TracerArrayConversionError):
        return (
            f"the model looks at the values of rows in Python {_last(kept)} ({type(error).__name__}): a shape, a "
            "number of groups or a branch may not depend on data; give it to the model with functools.partial"
        )
    return (
        f"the model cannot be called with {count} rows; {_last(kept)} there was a {type(error).__name__}: {first}. "
        "It is called with one agent's shard, of any number of rows: model(**rows) for a dictionary, model(*rows) "
        "for a tuple. All rows that it uses must come so: it may close over none; plates of rows take their size "
        "from them"
    )


def _last(kept: Trace) -> str:
    return f"after site {list(kept)[-1]!r}" if kept else "before its first site"


def _grown(fewer: tuple[int, ...], more: tuple[int, ...]) -> list[int]:
    """The axes that have grown with the number of rows."""
    if len(fewer) != len(more):
        return list(range(max(len(fewer), len(more))))
    return [axis for axis, (one, other) in enumerate(zip(fewer, more, strict=True)) if one != other]


def _is_discrete(site: Site) -> bool:
    return is_latent(site) and site["fn"].support.is_discrete


def _require_kind(name: str, site: Site) -> None:
    if site["type"] in _STATE:
        raise ProblemError(f"{name!r} is {_STATE[site['type']]}")
    if site["type"] == "plate" and site["args"][1] not in (None, site["args"][0]):
        raise ProblemError(
            f"plate {name!r} takes {site['args'][1]} of {site['args'][0]} entries: leave out subsample_size; "
            "minibatches are the sampler's, by batch_size in the plan"
        )


def _require_shared_or_private(name: str, site: Site, grown: list[int]) -> None:
    if grown:
        raise ProblemError(_one_for_each_row(name))
    if _is_discrete(site):
        raise ProblemError(
            f"latent site {name!r} is discrete and has no gradient: sum over its values, for example by "
            "numpyro.distributions.MixtureSameFamily"
        )


def _one_for_each_row(name: str) -> str:
    if name.endswith("_unobserved"):  # so NumPyro calls what `obs_mask` makes
        return (
            f"latent site {name!r} stands for missing outcomes, one of each row (obs_mask): leave these rows out of "
            "the likelihood by numpyro.handlers.mask, or out of the data"
        )
    return (
        f"latent site {name!r} has one value for each row (a state of a time series, a Gaussian process, an effect "
        "or a missing value of each row?): integrate it out of the likelihood, or let a row be a whole group or "
        "series with a leading entry of its own"
    )


def _row_axis(name: str, site: Site, shape: tuple[int, ...], grown: list[int], value_grows: bool) -> int | None:
    """The row axis of an observed site's log-probability, or `None` if it is about no rows."""
    if len(grown) > 1:
        raise ProblemError(
            f"observed site {name!r} has a log-probability of shape {shape} for {_ROWS} rows, so that every row "
            "meets every other: one of its arrays has shape (n,) and another (n, 1); give both the same"
        )
    if grown and shape[grown[0]] != _ROWS:
        raise ProblemError(
            f"observed site {name!r} has {shape[grown[0]]} values for {_ROWS} rows (a time series?): its likelihood "
            "must be a product over rows; let a row be a whole series"
        )
    if grown:
        return grown[0]
    if value_grows and type(site["fn"]).__name__ == "Independent":
        raise ProblemError(
            f"observed site {name!r} sums over rows by `to_event`: leave the row axis out of it and put the site "
            "into "
            'numpyro.plate("rows", len(y))'
        )
    if value_grows:
        raise ProblemError(
            f"observed site {name!r} is one {type(site['fn']).__name__} of all rows (a time series, a Gaussian "
            "process?): its likelihood is no product over rows, and agents cannot share it; let a row be a whole "
            "series"
        )
    return None
