"""Prices of diamonds: a linear regression with 24 columns that nearly depend on each other.

y ~ Normal(Intercept + (x − x̄)·b, sigma),   x̄ the mean over all rows
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpyro
import numpyro.distributions as dist

from consilience.posteriors.recipes import Data, Model, Recipe, Rows, by_value


def _rows(data: Data) -> Rows:
    sizes = [data[name] for name in ("log_x", "log_y", "log_z")]
    levels = [data[f"{name}_contrasts"][data[name]] for name in ("cut", "color", "clarity")]
    x = np.column_stack([data["carat"], *sizes, *levels, *(data["carat"] * size for size in sizes)])
    return {"x": x - x.mean(0), "y": data["Y"]}


def _model(data: Data) -> Model:
    def prices(x: Any, y: Any) -> None:
        b = numpyro.sample("b", dist.Normal(0, 1).expand([x.shape[1]]))
        middle = numpyro.sample("Intercept", dist.StudentT(3, 8, 10))
        sigma = numpyro.sample("sigma", dist.FoldedDistribution(dist.StudentT(3, 0, 10)))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(middle + x @ b, sigma), obs=y)

    return prices


RECIPES = {"diamonds-diamonds": Recipe(_rows, _model, by_value("cut"))}
"""By name of the posterior."""
