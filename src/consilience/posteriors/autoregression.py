"""An autoregression as a product over rows: each row carries the values before it, the first of which are given.

y_t ~ Normal(alpha + Σ_k beta_k y_{t−k}, sigma),   t = K+1 … T
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpyro
import numpyro.distributions as dist

from consilience.posteriors.recipes import Data, Model, Recipe, Rows, in_blocks


def lagged(series: np.ndarray, lags: int) -> np.ndarray:
    """`(len(series) − lags, lags)`: the values before each, the latest first.

    >>> lagged(np.array([1.0, 2.0, 3.0, 4.0]), 2).tolist()
    [[2.0, 1.0], [3.0, 2.0]]
    """
    return np.column_stack([series[lags - lag : len(series) - lag] for lag in range(1, lags + 1)])


def _rows(data: Data) -> Rows:
    lags = int(data["K"])
    return {"before": lagged(data["y"], lags), "y": data["y"][lags:]}


def _model(data: Data) -> Model:
    def autoregression(before: Any, y: Any) -> None:
        alpha = numpyro.sample("alpha", dist.Normal(0, 10))
        beta = numpyro.sample("beta", dist.Normal(0, 10).expand([before.shape[1]]))
        sigma = numpyro.sample("sigma", dist.HalfCauchy(2.5))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(alpha + before @ beta, sigma), obs=y)

    return autoregression


RECIPES = {"arK-arK": Recipe(_rows, _model, in_blocks(5, "blocks of time", lambda data: int(data["T"] - data["K"])))}
"""By name of the posterior."""
