"""Generalised linear models: counts of falcons by year, and who changes to another well."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from consilience.posteriors.linear import flat
from consilience.posteriors.recipes import Data, Model, Recipe, Rows, by_bands


def _years(data: Data) -> Rows:
    return {"year": data["year"], "count": data["C"]}


def _cubic(data: Data) -> Model:
    def counts_of_falcons(year: Any, count: Any) -> None:
        alpha = numpyro.sample("alpha", dist.Uniform(-20, 20))
        slopes = [numpyro.sample(f"beta{power}", dist.Uniform(-10, 10)) for power in (1, 2, 3)]
        log_rate = alpha + sum(slope * year**power for power, slope in enumerate(slopes, 1))
        with numpyro.plate("rows", len(count)):
            numpyro.sample("count", dist.Poisson(jnp.exp(log_rate)), obs=count)

    return counts_of_falcons


def _wells(data: Data) -> Rows:
    x = np.column_stack([data["dist"] / 100, data["arsenic"], data["educ"] / 4])
    return {"x": x, "switched": data["switched"]}


def _logistic(data: Data) -> Model:
    def switches(x: Any, switched: Any) -> None:
        alpha = numpyro.sample("alpha", dist.ImproperUniform(dist.constraints.real, (), ()))
        beta = numpyro.sample("beta", flat(x.shape[1]))
        with numpyro.plate("rows", len(switched)):
            numpyro.sample("switched", dist.Bernoulli(logits=alpha + x @ beta), obs=switched)

    return switches


RECIPES = {
    "GLM_Poisson_Data-GLM_Poisson_model": Recipe(_years, _cubic, by_bands("year", 5)),
    "wells_data-wells_dae_model": Recipe(_wells, _logistic, by_bands("arsenic", 5)),
}
"""By name of the posterior."""
