"""Differential equations seen with errors: hares and lynxes, and a drug that is absorbed and eliminated.

A row is one time. Every agent solves the equation over all times and looks at those of its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from consilience.posteriors.recipes import Data, Model, Recipe, Rows, in_blocks
from consilience.posteriors.runge_kutta import solve

YEARLY_STEPS, STEPS_BETWEEN_SAMPLES = 8, 16
"""Of the solver. The logarithm of a solution is then off by less than 1e-4; that of the drug by up to 1e-3 where its
elimination is saturated at once (K_m < 0.1, a twentieth of the posterior). A solver that adapts its steps says so
(tests/posteriors/test_differential_equations.py). The errors with which it was seen are 0.1 and more."""
_SMALLEST = 1e-10


def _years(data: Data) -> Rows:
    """The first row is year 0."""
    return {
        "year": np.concatenate([[0], data["ts"]]).astype(int),
        "seen": np.concatenate([data["y_init"][None], data["y"]]).astype(float),
    }


def populations(theta: Any, start: Any, years: int, steps: int = YEARLY_STEPS) -> Any:
    """`(years + 1, 2)`: the logarithms of prey and predators, after whole years.

    (log u)' = θ_1 − θ_2 v,   (log v)' = −θ_3 + θ_4 u
    """

    def slope(time: Any, logs: Any) -> Any:
        prey, predators = jnp.exp(logs)
        return jnp.stack([theta[0] - theta[1] * predators, -theta[2] + theta[3] * prey])

    return solve(slope, jnp.log(start), 1.0, years, steps)


def _lotka_volterra(data: Data) -> Model:
    years = int(data["ts"][-1])

    def hares_and_lynxes(year: Any, seen: Any) -> None:
        middle = jnp.array([1.0, 0.05, 1.0, 0.05])
        theta = numpyro.sample("theta", dist.TruncatedNormal(middle, jnp.array([0.5, 0.05, 0.5, 0.05]), low=0.0))
        start = numpyro.sample("z_init", dist.LogNormal(jnp.log(10.0), 1).expand([2]))
        sigma = numpyro.sample("sigma", dist.LogNormal(-1, 1).expand([2]))
        logs = populations(theta, start, years)
        with numpyro.plate("rows", len(seen)):
            numpyro.sample("seen", dist.LogNormal(logs[year], sigma).to_event(1), obs=seen)

    return hares_and_lynxes


def _samples(data: Data) -> Rows:
    interval = float(data["times"][0])
    return {"number": np.round(data["times"] / interval).astype(int), "seen": data["C_hat"]}


def concentrations(
    rates: Sequence[Any], dose: float, volume: float, interval: float, count: int, steps: int = STEPS_BETWEEN_SAMPLES
) -> Any:
    """`(count + 1,)`: a drug's concentration after multiples of the interval; the rates are k_a, K_m and V_m.

    C' = exp(−k_a t) D k_a/V − (V_m/V) C/(K_m + C),   C(0) = 0
    """
    absorbed, half, most = rates

    def slope(time: Any, level: Any) -> Any:
        return jnp.exp(-absorbed * time) * dose * absorbed / volume - most / volume * level / (half + level)

    return solve(slope, jnp.zeros_like(absorbed), interval, count, steps)


def _elimination(data: Data) -> Model:
    dose, volume, interval = (float(data[name].flat[0]) for name in ("D", "V", "times"))
    count = len(data["times"])

    def drug(number: Any, seen: Any) -> None:
        rates = [numpyro.sample(name, dist.HalfCauchy(1)) for name in ("k_a", "K_m", "V_m")]
        sigma = numpyro.sample("sigma", dist.HalfCauchy(1))
        levels = concentrations(rates, dose, volume, interval, count)
        with numpyro.plate("rows", len(seen)):
            middle = jnp.log(jnp.maximum(levels[number], _SMALLEST))
            numpyro.sample("seen", dist.LogNormal(middle, sigma), obs=seen)

    return drug


RECIPES = {
    "hudson_lynx_hare-lotka_volterra": Recipe(
        _years, _lotka_volterra, in_blocks(3, "blocks of years", lambda data: len(data["ts"]) + 1)
    ),
    "one_comp_mm_elim_abs-one_comp_mm_elim_abs": Recipe(
        _samples,
        _elimination,
        in_blocks(2, "blocks of time", lambda data: len(data["times"])),
        without_sd=("K_m", "V_m"),
    ),
}
"""By name of the posterior."""
