"""An agent's draws as a model's parameters, a few at a time, from a run's data set."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from consilience.errors import InputError
from consilience.kernel.quickly import compiled_quickly
from consilience.problems import Problem

if TYPE_CHECKING:
    import xarray

_CHUNK_BYTES = 2**26
_FEW_NUMBERS = 10**7  # of rows, read once for each draw: that takes less time than to optimise a program


def parameter_draws(draws: Any, agent: int, at_once: int = 64) -> Iterator[Any]:
    """The draws of one agent, all chains together, as nested dictionaries of arrays `(draws, …)`.

    Args:
        draws: a run's draws, an `xarray.Dataset` whose variables are named like `layer_1.weight`.
        agent: which agent.
        at_once: how many draws of each chain to read at once.

    A private parameter of which the agent has fewer entries than others has its own number of them. A node holds the
    draws of its own agent alone; shared draws of a run in unison are every agent's.
    """
    own = _of_agent(draws, agent)
    for some in _pieces(own, at_once):
        tree: dict[str, Any] = {}
        for name, values in some.items():
            *path, last = name.split(".")
            place = tree
            for part in path:
                place = place.setdefault(part, {})
            place[last] = values
        yield tree


def model_draws(problem: Problem, draws: xarray.Dataset) -> Iterator[Any]:
    """One agent's draws, all chains together, as the problem's own parameters: its pytree with arrays `(draws, …)`.

    Args:
        problem: whose parameters they are.
        draws: an agent's draws, with dimensions `(chain, draw, …)`.
    """
    structure: Any = jax.tree.structure(jax.eval_shape(problem.inits[0], jax.random.key(0)))
    names = draws.attrs["parameters"]
    if structure.num_leaves != len(names):
        raise InputError(
            f"the run has the parameters {', '.join(names)}, and the problem has {structure.num_leaves} arrays: give "
            "the problem that the run sampled"
        )
    each = sum(draws[name].dtype.itemsize * int(np.prod(draws[name].shape[2:])) for name in names)
    at_once = max(1, _CHUNK_BYTES // (each * draws.sizes["chain"]))
    for some in _pieces(draws, at_once):
        yield jax.tree.unflatten(structure, list(some.values()))


def thinned(draws: xarray.Dataset, most: int) -> xarray.Dataset:
    """At most so many draws of all chains together, evenly chosen."""
    length = draws.sizes["draw"]
    wanted = max(1, min(length, most // draws.sizes["chain"]))
    return draws.isel(draw=np.linspace(0, length - 1, wanted).round().astype(int)) if wanted < length else draws


def is_double(draws: xarray.Dataset) -> bool:
    """Whether draws are in double precision, and so what is computed of them has to be."""
    return any(draws[name].dtype == np.float64 for name in draws.attrs["parameters"])


def over_draws(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of one draw as one of many, `(draws, …)`: compiled, one draw after the other, as memory is bounded.

    Its first argument has the leading axis; the others are the same for all draws.
    """

    def whole(draws: Any, *others: Any) -> Any:
        return jax.lax.map(lambda draw: function(draw, *others), draws)

    quick, fast = compiled_quickly(whole, same_bits=True), jax.jit(whole)

    def run(draws: Any, *others: Any) -> Any:
        numbers = len(jax.tree.leaves(draws)[0]) * sum(np.size(leaf) for leaf in jax.tree.leaves(others))
        return (quick if numbers <= _FEW_NUMBERS else fast)(draws, *others)

    return run


def _of_agent(draws: xarray.Dataset, agent: int) -> xarray.Dataset:
    if "agent" not in draws.dims:
        return draws
    numbers = draws["agent"].to_numpy().tolist()
    if agent not in numbers:
        few = ", ".join(map(str, numbers[:8])) + (", …" if len(numbers) > 8 else "")
        raise InputError(
            f"these are the draws of agent {few}, and there are none of agent {agent}: name one that is here (a node "
            "holds its own agent's draws; `consilience report` merges those of all nodes)"
        )
    return draws.sel(agent=agent)


def _pieces(own: xarray.Dataset, at_once: int) -> Iterator[dict[str, np.ndarray]]:
    """Arrays `(chains · some draws, …)` by name, so many draws of each chain at once."""
    private = own.attrs.get("private", [])
    for start in range(0, own.sizes["draw"], at_once):
        some = own.isel(draw=slice(start, start + at_once))
        found = {}
        for name in own.attrs["parameters"]:
            values = np.asarray(some[name])
            values = values.reshape(-1, *values.shape[2:])
            found[name] = _without_filling(values) if name in private and values.ndim > 1 else values
        yield found


def _without_filling(values: np.ndarray) -> np.ndarray:
    """Draws `(draws, entries, …)` up to the last entry that the agent has; others are never a number.

    >>> _without_filling(np.array([[1.0, 2.0, np.nan], [3.0, 4.0, np.nan]])).tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    there = ~np.isnan(values).reshape(*values.shape[:2], -1).all((0, 2))
    return values[:, : int(np.flatnonzero(there).max(initial=-1)) + 1]
