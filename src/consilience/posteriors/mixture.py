"""A mixture of two normal components in one dimension, summed over to which component a row belongs.

    y ~ theta · Normal(mu_1, sigma_1) + (1 − theta) · Normal(mu_2, sigma_2),   mu_1 < mu_2

The order of the means is part of the model, so components cannot change their labels.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from consilience.datasets import splits
from consilience.posteriors.recipes import Data, Model, Natural, Recipe, Rows


def _rows(data: Data) -> Rows:
    return {"y": data["y"]}


def _model(data: Data) -> Model:
    def two_components(y: Any) -> None:
        mu = numpyro.sample("mu", dist.ImproperUniform(dist.constraints.ordered_vector, (), (2,)))
        numpyro.factor("means", dist.Normal(0, 2).log_prob(mu).sum())
        with numpyro.plate("components", 2):
            sigma = numpyro.sample("sigma", dist.HalfNormal(2))
        theta = numpyro.sample("theta", dist.Beta(5, 5))
        shares = dist.Categorical(probs=jnp.stack([theta, 1 - theta]))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.MixtureSameFamily(shares, dist.Normal(mu, sigma)), obs=y)

    return two_components


RECIPES = {
    "low_dim_gauss_mix-low_dim_gauss_mix": Recipe(
        _rows, _model, Natural("by the sign of y", lambda data: splits.by_column(data["y"] > 0))
    ),
}
"""By name of the posterior."""
