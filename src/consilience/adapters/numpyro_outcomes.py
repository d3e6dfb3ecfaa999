"""What a NumPyro model says about outcomes: its observed sites, asked for means and draws instead of densities.

Rows whose outcome is not known are completed by a made-up one, which gives the model the right shapes and is used for
nothing else: from the operations of the model it is known whether anything depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from consilience.adapters.dependence import used_columns
from consilience.adapters.numpyro_names import nested, value_of
from consilience.adapters.numpyro_rows import completed
from consilience.adapters.numpyro_tracing import Site, at, is_latent, trace
from consilience.errors import InputError
from consilience.problems import Outcomes

_DRAWS_FOR_A_MEAN = 400
_NO_OUTCOMES = ("Unit", "Delta")  # a factor, and a density that is written by hand: nothing can be drawn from them
_WRAPPERS = ("Independent", "ExpandedDistribution", "MaskedDistribution")

Named = Mapping[str, jax.Array]


def outcomes_of(
    model: Callable[..., Any],
    row_axes: Mapping[str, int],
    private: Sequence[str],
    init: Callable[[jax.Array], Any],
    template: Any,
) -> Outcomes | None:
    """What the observed sites of a model say about rows; `None` if nothing can be drawn from any of them.

    Args:
        model: written for one agent's rows.
        row_axes: the observed sites with one value for each row, and on which axis of their log-probability.
        private: latent sites that are an agent's own.
        init: where an agent starts.
        template: one row that is nobody's.
    """
    key = jax.random.key(0)
    kinds = _kinds(model, row_axes, jax.eval_shape(init, key), template)
    axes = {name: row_axes[name] for name in kinds}
    if not kinds:
        return None

    def observed(rows: Any) -> Named:
        found = at(model, init(key), rows)
        return {name: jnp.moveaxis(_value(found[name]), axis, 0) for name, axis in axes.items()}

    def expected(parameters: Any, rows: Any) -> Named:
        found = at(model, parameters, rows)
        return {name: jnp.moveaxis(_mean(found[name]), axis, 0) for name, axis in axes.items()}

    def simulate(key: jax.Array, parameters: Any, rows: Any) -> Named:
        keys = dict(zip(axes, jax.random.split(key, len(axes)), strict=True))

        def value(site: Site) -> Any:
            if site["name"] in keys and not is_latent(site):  # what follows in the model sees what is drawn
                return _spread(site).sample(keys[site["name"]])
            return value_of(parameters, site["name"]) if is_latent(site) else None

        found = trace(model, rows, value, key)
        return {name: jnp.moveaxis(_value(found[name]), axis, 0) for name, axis in axes.items()}

    def draw_private(key: jax.Array, parameters: Any) -> Any:
        def value(site: Site) -> Any:
            known = is_latent(site) and site["name"] not in private
            return value_of(parameters, site["name"]) if known else None

        found = trace(model, template, value, key)
        return nested({name: site["value"] for name, site in found.items() if is_latent(site)})

    return Outcomes(
        kinds=kinds,
        expected=_of_columns(expected, template, lambda rows: expected(init(key), rows), "its mean"),
        simulate=_of_columns(simulate, template, lambda rows: simulate(key, init(key), rows), "a draw of it"),
        observed=_of_columns(observed, template, observed, "its value"),
        draw_private=draw_private if private else None,
    )


def _kinds(model: Callable[..., Any], names: Iterable[str], parameters: Any, template: Any) -> dict[str, str]:
    """What each observed site is that something can be drawn from; nothing is computed."""
    found: dict[str, str] = {}

    def look(parameters: Any) -> None:
        sites = at(model, parameters, template)
        found.update({name: _kind(sites[name]) for name in names if _is_outcome(sites[name])})

    jax.eval_shape(look, parameters)
    return found


def _of_columns(function: Callable[..., Named], template: Any, of_rows: Callable[[Any], Named], what: str) -> Any:
    """A function whose last argument is rows, for rows that lack columns on which nothing depends."""
    used = used_columns(of_rows, template)

    def complete(*arguments: Any) -> Named:
        *others, rows = arguments
        rows, lacking = completed(rows, template)
        for name, columns in used.items():
            if lacking & columns:
                missing = ", ".join(repr(one) for one in sorted(lacking & columns, key=str))
                raise InputError(f"the rows lack {missing}: outcome {name!r} needs it, for {what}")
        return function(*others, rows)

    return complete


def _is_outcome(site: Site) -> bool:
    if type(_innermost(site["fn"])).__name__ in _NO_OUTCOMES:
        return False
    try:
        jax.eval_shape(lambda: _spread(site).sample(jax.random.key(0)))
    except NotImplementedError:
        return False
    return True


def _innermost(distribution: Any) -> Any:
    while type(distribution).__name__ in _WRAPPERS:
        distribution = distribution.base_dist
    return distribution


def _kind(site: Site) -> str:
    from numpyro.distributions import constraints

    support = site["fn"].support
    while isinstance(support, constraints.independent):
        support = support.base_constraint
    if _class_probabilities(site["fn"]) is not None:
        return "class"
    if support == constraints.boolean:
        return "binary"
    return "count" if support.is_discrete else "number"


def _class_probabilities(distribution: Any) -> Any:
    from numpyro.distributions import CategoricalLogits, CategoricalProbs

    inner = _innermost(distribution)
    return inner.probs if isinstance(inner, CategoricalLogits | CategoricalProbs) else None


def _batch_shape(site: Site) -> tuple[int, ...]:
    """That of the distribution and of the value together, with one entry for each log-probability."""
    fn, shape = site["fn"], jnp.shape(site["value"])
    return jnp.broadcast_shapes(fn.batch_shape, shape[: len(shape) - len(fn.event_shape)])


def _spread(site: Site) -> Any:
    """A site's distribution with one entry for each row, also where it is written once for all of them."""
    shape = _batch_shape(site)
    return site["fn"] if shape == site["fn"].batch_shape else site["fn"].expand(shape)


def _mean(site: Site) -> jax.Array:
    """The mean of a site's distribution; of a class its probabilities, on a last axis."""
    probabilities = _class_probabilities(site["fn"])
    if probabilities is not None:
        shape = (*_batch_shape(site), *site["fn"].event_shape, probabilities.shape[-1])
        return jnp.broadcast_to(probabilities, shape)
    spread = _spread(site)
    try:
        return jnp.broadcast_to(spread.mean, spread.shape())
    except NotImplementedError:  # no formula is known: the mean of draws, always the same ones
        keys = jax.random.split(jax.random.key(0), _DRAWS_FOR_A_MEAN)
        total = jax.lax.scan(
            lambda sum_, key: (sum_ + spread.sample(key), None), jnp.zeros(spread.shape()), keys
        )[0]  # fmt: skip
        return total / _DRAWS_FOR_A_MEAN


def _value(site: Site) -> jax.Array:
    """A site's value, with one entry for each row also where it is given once for several."""
    return jnp.broadcast_to(site["value"], (*_batch_shape(site), *site["fn"].event_shape))
