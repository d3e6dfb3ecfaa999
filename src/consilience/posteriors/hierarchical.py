"""Groups with effects of their own, drawn from a common distribution: schools, and counties.

    effect_j = mean + spread · z_j,   z_j ~ Normal(0, 1)

The standardised effects `z` are what is sampled; by the natural split each agent has those of its own groups, and
nobody else's. A row says which group it belongs to, counted from 0 among the groups that its agent knows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpyro
import numpyro.distributions as dist

from consilience.datasets import splits
from consilience.posteriors.recipes import Data, Draws, Groups, Model, Natural, Recipe, Rows


def _school_rows(data: Data) -> Rows:
    return {
        "school": np.arange(int(data["J"])),
        "effect": data["y"].astype(float),
        "error": data["sigma"].astype(float),
    }


def _schools(data: Data) -> Model:
    groups = int(data["J"])

    def schools(school: Any, effect: Any, error: Any) -> None:
        mu, tau = numpyro.sample("mu", dist.Normal(0, 5)), numpyro.sample("tau", dist.HalfCauchy(5))
        with numpyro.plate("schools", groups):
            z = numpyro.sample("z", dist.Normal(0, 1))
        with numpyro.plate("rows", len(effect)):
            numpyro.sample("effect", dist.Normal(mu + tau * z[school], error), obs=effect)

    return schools


def _school_effects(draws: Draws) -> dict[str, Any]:
    return {**draws, "theta": draws["mu"][..., None] + draws["tau"][..., None] * draws["z"]}


def _radon_rows(data: Data) -> Rows:
    return {
        "county": data["county_idx"] - 1,
        "floor": data["floor_measure"].astype(float),
        "log_radon": data["log_radon"].astype(float),
    }


def _radon(data: Data) -> Model:
    groups = int(data["J"])

    def radon(county: Any, floor: Any, log_radon: Any) -> None:
        mean = numpyro.sample("mu_alpha", dist.Normal(0, 10))
        slope = numpyro.sample("beta", dist.Normal(0, 10))
        between = numpyro.sample("sigma_alpha", dist.HalfNormal(1))
        within = numpyro.sample("sigma_y", dist.HalfNormal(1))
        with numpyro.plate("counties", groups):
            z = numpyro.sample("z", dist.Normal(0, 1))
        with numpyro.plate("rows", len(log_radon)):
            middle = mean + between * z[county] + slope * floor
            numpyro.sample("log_radon", dist.Normal(middle, within), obs=log_radon)

    return radon


def _county_effects(draws: Draws) -> dict[str, Any]:
    return {**draws, "alpha": draws["mu_alpha"][..., None] + draws["sigma_alpha"][..., None] * draws["z"]}


_COUNTIES = 17
"""Of an agent: 85 in the order of the alphabet, 5 agents."""


def _by_school(data: Data) -> list[np.ndarray]:
    return splits.by_column(np.arange(int(data["J"])))


def _by_county(data: Data) -> list[np.ndarray]:
    return splits.by_column((data["county_idx"] - 1) // _COUNTIES)


RECIPES = {
    "eight_schools-eight_schools_noncentered": Recipe(
        _school_rows,
        _schools,
        Natural("by school", _by_school),
        Groups("school", "J", per_agent=1, private=("z",), effects=("theta",)),
        _school_effects,
    ),
    "radon_mn-radon_variable_intercept_noncentered": Recipe(
        _radon_rows,
        _radon,
        Natural(f"{_COUNTIES} counties each", _by_county),
        Groups("county", "J", per_agent=_COUNTIES, private=("z",), effects=("alpha",)),
        _county_effects,
    ),
}
"""By name of the posterior."""
