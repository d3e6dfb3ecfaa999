"""Linear regressions: y ~ Normal(x·beta, sigma), with the priors of each.

A row is `(x, y)`. Columns are as the file has them, unscaled, unless the model in words says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpyro
import numpyro.distributions as dist

from consilience.datasets import splits
from consilience.posteriors.recipes import Data, Model, Natural, Recipe, Rows, by_bands, by_value

Prior = Callable[[int], Any]


def flat(size: int) -> dist.Distribution:
    """The improper uniform density on so many real numbers."""
    return dist.ImproperUniform(dist.constraints.real, (size,), ())


def flat_positive() -> dist.Distribution:
    """The improper uniform density on the positive numbers."""
    return dist.ImproperUniform(dist.constraints.positive, (), ())


def regression(x: Any, y: Any, *, weights: Prior = flat, spread: Callable[[], Any] = flat_positive) -> None:
    """The model, with a prior of the weights given their number, and one of the noise."""
    beta = numpyro.sample("beta", weights(x.shape[1]))
    sigma = numpyro.sample("sigma", spread())
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(x @ beta, sigma), obs=y)


def _with(**priors: Any) -> Callable[[Data], Model]:
    return lambda data: partial(regression, **priors)


def design(*columns: np.ndarray) -> np.ndarray:
    """`(rows, 1 + columns)`: columns behind an intercept."""
    return np.column_stack([np.ones(len(columns[0])), *columns]).astype(float)


def _standardised(column: np.ndarray) -> np.ndarray:
    return (column - column.mean()) / column.std(ddof=1)


def _earnings(data: Data) -> Rows:
    return {"x": design(data["height"]), "y": data["earn"].astype(float)}


def _log_earnings(data: Data) -> Rows:
    height, male = _standardised(data["height"]), data["male"]
    return {"x": design(height, male, height * male), "y": np.log(data["earn"])}


def _score_by_iq(data: Data) -> Rows:
    return {"x": design(data["mom_iq"]), "y": data["kid_score"].astype(float)}


def _score_by_both(data: Data) -> Rows:
    school, iq = data["mom_hs"], data["mom_iq"]
    return {"x": design(school, iq, school * iq), "y": data["kid_score"].astype(float)}


def _score_standardised(data: Data) -> Rows:
    school, iq = _standardised(data["mom_hs"]) / 2, _standardised(data["mom_iq"]) / 2
    return {"x": design(school, iq, school * iq), "y": data["kid_score"].astype(float)}


_SIZES = ("diam1", "diam2", "canopy_height", "total_height", "density")


def _mesquite(data: Data) -> Rows:
    return {"x": design(*(data[name] for name in _SIZES), data["group"]), "y": data["weight"].astype(float)}


def _log_mesquite(data: Data) -> Rows:
    return {"x": design(*(np.log(data[name]) for name in _SIZES), data["group"]), "y": np.log(data["weight"])}


def _election(data: Data) -> Rows:
    older = [data["age_discrete"] == level for level in (2, 3, 4)]
    others = [data[name] for name in ("educ1", "gender", "income")]
    return {"x": design(data["real_ideo"], data["race_adj"], *older, *others), "y": data["partyid7"].astype(float)}


def _simulated(data: Data) -> Rows:
    return {"x": data["X"], "y": data["y"]}


def _temperatures(data: Data) -> Rows:
    return {"x": data["x"].astype(float), "y": data["y"]}


def _trend(data: Data) -> Model:
    middle, spread = ([float(data[f"{which}{name}"]) for name in ("alpha", "beta")] for which in ("pmu", "ps"))

    def trend(x: Any, y: Any) -> None:
        alpha = numpyro.sample("alpha", dist.Normal(middle[0], spread[0]))
        beta = numpyro.sample("beta", dist.Normal(middle[1], spread[1]))
        sigma = numpyro.sample("sigma", flat_positive())
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(alpha + beta * x, sigma), obs=y)

    return trend


_HALF_CAUCHY = {"spread": lambda: dist.HalfCauchy(2.5)}
_NORMAL = {"weights": lambda size: dist.Normal(0, 10).expand([size]), "spread": lambda: dist.HalfNormal(10)}

RECIPES = {
    "earnings-earn_height": Recipe(_earnings, _with(), by_value("male")),
    "earnings-logearn_interaction_z": Recipe(_log_earnings, _with(), by_bands("height", 5)),
    "kidiq-kidscore_interaction": Recipe(_score_by_both, _with(**_HALF_CAUCHY), by_value("mom_hs")),
    "kidiq-kidscore_momiq": Recipe(_score_by_iq, _with(**_HALF_CAUCHY), by_bands("mom_iq", 3)),
    "kidiq_with_mom_work-kidscore_interaction_z": Recipe(_score_standardised, _with(), by_value("mom_work")),
    "kilpisjarvi_mod-kilpisjarvi": Recipe(_temperatures, _trend, by_bands("x", 2)),
    "mesquite-logmesquite": Recipe(_log_mesquite, _with(), by_value("group")),
    "mesquite-mesquite": Recipe(_mesquite, _with(), by_value("group")),
    "nes2000-nes": Recipe(_election, _with(), by_value("age_discrete")),
    # The file knows nothing by which agents could differ: one random split, always the same.
    "sblrc-blr": Recipe(
        _simulated,
        _with(**_NORMAL),
        Natural("5 random blocks, always the same", lambda data: splits.equal(int(data["N"]), 5, seed=0)),
    ),
}
"""By name of the posterior."""
