"""Flax modules, of Linen and of NNX, become problems: the posterior of their parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from consilience.adapters.apply_functions import from_apply
from consilience.errors import ProblemError
from consilience.problems import Problem

RANDOM = (
    "draws random numbers when it is called (dropout?), so it is no function of its weights: switch that off; the "
    "posterior takes the place of dropout"
)
CHANGES = (
    "changes its own state when it is called (batch normalisation in training mode?), so that rows see each other: "
    "use stored averages, or a normalisation within a row such as LayerNorm"
)


def from_flax(
    module: Any, *, shards: Sequence[tuple[Any, Any]], variables: Any = None, seed: int = 0, **options: Any
) -> Problem:
    """The posterior of a Flax module's parameters, given each agent's `(inputs, targets)`.

    Args:
        module: of `flax.linen`, or a `flax.nnx` module with its parameters.
        shards: each agent's `(inputs, targets)`.
        variables: of a Linen module; made by its `init` if not given. Collections other than `params` stay as they
            are.
        seed: for that `init`.
        options: `likelihood`, `prior_scale`, `noise`, `name`, as for `from_apply`.
    """
    nnx = _flax().nnx
    if isinstance(module, nnx.Module):
        apply, parameters = _nnx(module)
    else:
        apply, parameters = _linen(module, shards, variables, seed)
    return from_apply(apply, parameters, shards=shards, **{"name": type(module).__name__, **options})


def _flax() -> Any:
    try:
        import flax
        import flax.linen
        import flax.nnx
    except ImportError as error:
        raise ProblemError("from_flax needs Flax, which is not installed: pip install flax") from error
    return flax


def _linen(module: Any, shards: Sequence[Any], variables: Any, seed: int) -> tuple[Callable[[Any, Any], Any], Any]:
    flax = _flax()
    if not isinstance(module, flax.linen.Module):
        raise ProblemError(f"expected a module of flax.linen or flax.nnx, received a {type(module).__name__}")

    def refusing(function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except flax.errors.InvalidRngError as error:
            raise ProblemError(f"the module {type(module).__name__} {RANDOM} (deterministic=True)") from error
        except flax.errors.ModifyScopeVariableError as error:
            raise ProblemError(f"the module {type(module).__name__} {CHANGES} (use_running_average=True)") from error

    if variables is None:
        inputs = jax.tree.map(lambda leaf: np.asarray(leaf)[:1], shards[0][0])
        variables = refusing(module.init, {"params": jax.random.key(seed)}, inputs)
    fixed = {name: value for name, value in variables.items() if name != "params"}
    return (
        lambda weights, inputs: refusing(module.apply, {"params": weights, **fixed}, inputs),
        variables["params"],
    )


def _nnx(module: Any) -> tuple[Callable[[Any, Any], Any], Any]:
    nnx = _flax().nnx
    graph, parameters, rest = nnx.split(module, nnx.Param, ...)

    def apply(weights: Any, inputs: Any) -> Any:
        state, others = jax.tree.map(lambda leaf: leaf, (parameters, rest))  # copies: they are changed in place
        nnx.replace_by_pure_dict(state, weights)
        merged = nnx.merge(graph, state, others)
        before = dict(nnx.to_flat_state(nnx.state(merged, nnx.Not(nnx.Param))))
        values = {place: variable.get_value() for place, variable in before.items()}
        found = merged(inputs)
        for place, variable in dict(nnx.to_flat_state(nnx.state(merged, nnx.Not(nnx.Param)))).items():
            if place not in values or variable.get_value() is not values[place]:
                what = RANDOM if isinstance(variable, nnx.RngState) else CHANGES
                raise ProblemError(f"{'.'.join(map(str, place))}: the module {what} (call eval() on the module)")
        return found

    return apply, nnx.to_pure_dict(parameters)
