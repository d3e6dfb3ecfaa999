"""Quantities that a problem derives from its parameters, for every draw of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from consilience.errors import InputError
from consilience.predictive.draws import is_double, model_draws, over_draws
from consilience.problems import Problem

if TYPE_CHECKING:
    import xarray

_TRIED = 32


def derived_draws(problem: Problem, draws: xarray.Dataset) -> xarray.Dataset:
    """What `problem.derived` gives for every draw, with the draws' dimensions `(chain, draw, …)`.

    Where parameters are agents' own, so is what depends on them: `(chain, agent, draw, …)`.

    Args:
        problem: whose `derived` to compute.
        draws: a run's draws, or one agent's (`run.agents[0]`).
    """
    import xarray

    if problem.derived is None:
        raise InputError("the problem derives nothing: give it `derived`, a function of its parameters")
    of_agents = draws.sizes.get("agent")
    with jax.enable_x64(is_double(draws)):
        each = [
            _of_one(problem, draws if of_agents is None else draws.isel(agent=place))
            for place in range(of_agents or 1)
        ]
        shared = [name for name in draws.attrs["parameters"] if "agent" not in draws[name].dims]
        private = _changing(problem, draws, each[0]) if draws.attrs.get("private") else set()
    own = set() if of_agents is None else private if shared else set(each[0])
    found = {name: _beside([one[name] for one in each]) if name in own else each[0][name] for name in each[0]}
    return xarray.Dataset(
        {name: _variable(name, values, name in own) for name, values in found.items()},
        coords={name: draws[name] for name in ("chain", "agent", "draw") if name in draws.coords},
        attrs={"parameters": list(found), "private": [name for name in found if name in private]},
    )


def _of_one(problem: Problem, draws: xarray.Dataset) -> dict[str, np.ndarray]:
    """Of one agent's draws: arrays `(chains, draws, …)` by name."""
    program = over_draws(problem.derived)  # type: ignore[arg-type]
    chains = draws.sizes["chain"]
    pieces = [
        {name: _by_chain(values, chains) for name, values in program(some).items()}
        for some in model_draws(problem, draws)
    ]
    return {name: np.concatenate([piece[name] for piece in pieces], 1) for name in pieces[0]}


def _by_chain(values: Any, chains: int) -> np.ndarray:
    found = np.asarray(values)
    return found.reshape(chains, -1, *found.shape[1:])


def _changing(problem: Problem, draws: xarray.Dataset, first: dict[str, np.ndarray]) -> set[str]:
    """What depends on private parameters: it changes if these alone do."""
    some = draws.isel(draw=slice(0, _TRIED))
    some = (some.isel(agent=0) if "agent" in some.dims else some).load()
    moved = some.assign({name: some[name].roll(draw=1, roll_coords=False) for name in draws.attrs["private"]})
    other = _of_one(problem, moved)
    return {name for name in first if not np.array_equal(other[name], first[name][:, :_TRIED], equal_nan=True)}


def _beside(each: list[np.ndarray]) -> np.ndarray:
    """All agents' arrays `(chains, agents, draws, …)`; what an agent has fewer of is not a number."""
    shape = np.max([values.shape for values in each], 0)
    found = np.full((len(each), *shape), np.nan, np.result_type(each[0], np.float32))
    for place, values in enumerate(each):
        inside: Any = (place, *(slice(size) for size in values.shape))
        found[inside] = values
    return np.moveaxis(found, 0, 1)


def _variable(name: str, values: np.ndarray, of_agents: bool) -> Any:
    leading = ("chain", "agent", "draw") if of_agents else ("chain", "draw")
    return (*leading, *(f"{name}_dim_{axis}" for axis in range(values.ndim - len(leading)))), values
