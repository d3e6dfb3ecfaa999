"""How outcomes are distributed around what the formula predicts: log-likelihood of each row, link, own parameters.

`eta` is the linear predictor, `(rows,)`; densities are complete, with the terms that depend on the outcome alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from consilience.errors import DataError

Rows = Mapping[str, Any]


@dataclass(frozen=True)
class Family:
    """A distribution of outcomes.

    Attributes:
        name: what `family` says in study.toml.
        link: the function of the mean that is linear: `identity`, `logit` or `log`.
        log_likelihood: `(eta, parameters, rows) -> (rows,)`.
        simulate: `(key, eta, parameters, rows) -> (rows,)`, an outcome drawn for each row.
        outcome: what its outcome is: `number`, `binary` or `count`.
        extra: names of its own parameters, all positive.
        ratio: what the exponential of a coefficient is called, if it means something.
    """

    name: str
    link: str
    log_likelihood: Callable[[jax.Array, Mapping[str, jax.Array], Rows], jax.Array]
    simulate: Callable[[jax.Array, jax.Array, Mapping[str, jax.Array], Rows], jax.Array]
    outcome: str
    extra: tuple[str, ...] = field(default=())
    ratio: str | None = None

    def mean(self, eta: jax.Array) -> jax.Array:
        """The mean of an outcome (of one trial), from the linear predictor."""
        return {"identity": lambda x: x, "logit": jax.nn.sigmoid, "log": jnp.exp}[self.link](eta)


def family_named(name: str) -> Family:
    """A family by its name.

    >>> family_named("bernoulli").ratio
    'odds ratio'
    """
    if name not in FAMILIES:
        raise DataError(f"unknown family {name!r}: choose one of {', '.join(FAMILIES)}")
    return FAMILIES[name]


def require_counts(name: str, values: np.ndarray) -> None:
    """Check that a column holds whole numbers from 0 on."""
    wrong = int(((values < 0) | (values != np.floor(values))).sum())
    if wrong:
        raise DataError(f"{name}: {wrong:,} rows are no whole numbers from 0 on, which this family counts")


def _gaussian(eta: jax.Array, own: Mapping[str, jax.Array], rows: Rows) -> jax.Array:
    return -0.5 * ((rows["y"] - eta) / own["sigma"]) ** 2 - jnp.log(own["sigma"]) - 0.5 * jnp.log(2 * jnp.pi)


def _student(eta: jax.Array, own: Mapping[str, jax.Array], rows: Rows) -> jax.Array:
    freedom, sigma = own["freedom"], own["sigma"]
    constant = gammaln((freedom + 1) / 2) - gammaln(freedom / 2) - 0.5 * jnp.log(freedom * jnp.pi) - jnp.log(sigma)
    return constant - (freedom + 1) / 2 * jnp.log1p(((rows["y"] - eta) / sigma) ** 2 / freedom)


def _bernoulli(eta: jax.Array, own: Mapping[str, jax.Array], rows: Rows) -> jax.Array:
    return rows["y"] * eta - jax.nn.softplus(eta)


def _binomial(eta: jax.Array, own: Mapping[str, jax.Array], rows: Rows) -> jax.Array:
    y, trials = rows["y"], rows["trials"]
    ways = gammaln(trials + 1) - gammaln(y + 1) - gammaln(trials - y + 1)
    return ways + y * eta - trials * jax.nn.softplus(eta)


def _poisson(eta: jax.Array, own: Mapping[str, jax.Array], rows: Rows) -> jax.Array:
    return rows["y"] * eta - jnp.exp(eta) - gammaln(rows["y"] + 1)


def _negative_binomial(eta: jax.Array, own: Mapping[str, jax.Array], rows: Rows) -> jax.Array:
    """With mean `μ = exp(eta)` and variance `μ + μ²/alpha`."""
    y, alpha = rows["y"], own["alpha"]
    share = eta - jnp.log(alpha)  # log μ/alpha
    return (
        gammaln(y + alpha) - gammaln(alpha) - gammaln(y + 1) + y * share - (y + alpha) * jax.nn.softplus(share)
    )  # fmt: skip


def _draw_gaussian(key: jax.Array, eta: jax.Array, own: Mapping[str, jax.Array], rows: Rows) -> jax.Array:
    return eta + own["sigma"] * jax.random.normal(key, eta.shape, eta.dtype)


def _draw_student(key: jax.Array, eta: jax.Array, own: Mapping[str, jax.Array], rows: Rows) -> jax.Array:
    return eta + own["sigma"] * jax.random.t(key, own["freedom"], eta.shape, eta.dtype)


def _draw_bernoulli(key: jax.Array, eta: jax.Array, own: Mapping[str, jax.Array], rows: Rows) -> jax.Array:
    return jax.random.bernoulli(key, jax.nn.sigmoid(eta)).astype(eta.dtype)


def _draw_binomial(key: jax.Array, eta: jax.Array, own: Mapping[str, jax.Array], rows: Rows) -> jax.Array:
    return jax.random.binomial(key, jnp.asarray(rows["trials"], eta.dtype), jax.nn.sigmoid(eta), dtype=eta.dtype)


def _draw_poisson(key: jax.Array, eta: jax.Array, own: Mapping[str, jax.Array], rows: Rows) -> jax.Array:
    return jax.random.poisson(key, jnp.exp(eta)).astype(eta.dtype)


def _draw_negative_binomial(key: jax.Array, eta: jax.Array, own: Mapping[str, jax.Array], rows: Rows) -> jax.Array:
    """A Poisson whose rate is gamma distributed, with shape `alpha` and mean `exp(eta)`."""
    rates, counts = jax.random.split(key)
    times = jax.random.gamma(rates, own["alpha"], eta.shape, eta.dtype) / own["alpha"]
    return jax.random.poisson(counts, times * jnp.exp(eta)).astype(eta.dtype)


_ALL = (
    Family("gaussian", "identity", _gaussian, _draw_gaussian, "number", ("sigma",)),
    Family("student-t", "identity", _student, _draw_student, "number", ("sigma", "freedom")),
    Family("bernoulli", "logit", _bernoulli, _draw_bernoulli, "binary", ratio="odds ratio"),
    Family("binomial", "logit", _binomial, _draw_binomial, "count", ratio="odds ratio"),
    Family("poisson", "log", _poisson, _draw_poisson, "count", ratio="rate ratio"),
    Family(
        "negative-binomial", "log", _negative_binomial, _draw_negative_binomial, "count", ("alpha",), "rate ratio"
    ),
)
FAMILIES: dict[str, Family] = {one.name: one for one in _ALL}
