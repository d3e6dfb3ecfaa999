"""The Gaussian mixture with tied means of the paper's first experiment.

    θ_1 ~ N(0, 10),   θ_2 ~ N(0, 1),   x ~ ½ N(θ_1, 2) + ½ N(θ_1 + θ_2, 2)

With `r = x − θ_1` and `d = θ_2 (2r − θ_2)/(2·2)` the log-likelihood of a row is, up to a constant,
`−r²/(2·2) + log(1 + e^d)`. The likelihood is the same at `(θ_1, θ_2)` and `(θ_1 + θ_2, −θ_2)`, so the
posterior has two modes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from consilience.models.softplus import softplus
from consilience.problems import Problem

VARIANCES = (10.0, 1.0)
"""Prior variances of `θ_1` and `θ_2`."""
NOISE_VARIANCE = 2.0


def tied_mixture(shards: Sequence[Any]) -> Problem:
    """The mixture's posterior, given each agent's observations (1-D arrays).

    >>> tied_mixture([jnp.zeros(20)] * 5).num_agents
    5
    """
    return Problem(log_likelihood, log_prior, init, shards, name="Gaussian mixture with tied means")


def log_likelihood(parameters: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    """`log(½ N(x; θ_1, 2) + ½ N(x; θ_1 + θ_2, 2))` for each row, up to a constant."""
    theta_2 = parameters["theta_2"]
    residual = x - parameters["theta_1"]
    gap = theta_2 * (2 * residual - theta_2) / (2 * NOISE_VARIANCE)
    return -(residual**2) / (2 * NOISE_VARIANCE) + softplus(gap)


def log_prior(parameters: dict[str, jax.Array]) -> jax.Array:
    """Independent normal priors, up to a constant."""
    first, second = VARIANCES
    return -(parameters["theta_1"] ** 2) / (2 * first) - parameters["theta_2"] ** 2 / (2 * second)


def init(key: jax.Array) -> dict[str, jax.Array]:
    """A draw from the prior."""
    first, second = jax.random.normal(key, (2,)) * jnp.sqrt(jnp.array(VARIANCES))
    return {"theta_1": first, "theta_2": second}
