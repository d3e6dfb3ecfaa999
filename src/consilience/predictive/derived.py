"""Quantities that a problem derives from its parameters, for every draw of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from consilience.errors import InputError
from consilience.kernel.parameters import Parameters
from consilience.problems import Problem

if TYPE_CHECKING:
    import xarray


def derived_draws(problem: Problem, draws: xarray.Dataset) -> xarray.Dataset:
    """What `problem.derived` gives for every draw, with the draws' dimensions `(chain, draw, …)`.

    Args:
        problem: whose `derived` to compute.
        draws: a run's draws, or one agent's (`run.agents[0]`); with an `agent` dimension, so has the result.
    """
    import xarray

    if problem.derived is None:
        raise InputError("the problem derives nothing: give it `derived`, a function of its parameters")
    if "agent" in draws.dims:
        each = [derived_draws(problem, draws.isel(agent=place)) for place in range(draws.sizes["agent"])]
        return xarray.concat(each, dim=draws["agent"])
    names = Parameters.of(problem, jnp.float32).names
    structure = jax.tree.structure(jax.eval_shape(problem.inits[0], jax.random.key(0)))
    leading = (draws.sizes["chain"], draws.sizes["draw"])
    with jax.enable_x64(any(draws[name].dtype == np.float64 for name in names)):
        values = [np.asarray(draws[name]).reshape(-1, *draws[name].shape[2:]) for name in names]
        found = jax.jit(jax.vmap(problem.derived))(jax.tree.unflatten(structure, values))
    return xarray.Dataset({name: _variable(name, np.asarray(value), leading) for name, value in found.items()})


def _variable(name: str, values: np.ndarray, leading: tuple[int, int]) -> Any:
    axes = [f"{name}_dim_{axis}" for axis in range(values.ndim - 1)]
    return ("chain", "draw", *axes), values.reshape(*leading, *values.shape[1:])
