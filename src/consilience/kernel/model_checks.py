"""Is a model usable where its agents start? Its shapes, its values and its gradient, checked before any sampling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from consilience.errors import ProblemError
from consilience.kernel.parameters import Parameters, potential
from consilience.problems import Problem

_CHECKED_ROWS = 256
_ROWS_AT_ONCE = 64


def require_usable(
    problem: Problem, parameters: Parameters, start: jax.Array, data: Any, agents: Sequence[int] | None = None
) -> None:
    """Check the likelihood's and the prior's shape and value where every agent starts.

    Args:
        problem: what to check.
        parameters: its layout.
        start: `(num_agents, size)` initial positions.
        data: the stacked shards.
        agents: the numbers of the agents, if they are not all of the network.
    """
    rows = int(problem.shard_sizes.max())
    tree = parameters.unravel(start[0])
    shard = jax.tree.map(lambda leaf: leaf[0], data)
    try:
        each = jax.eval_shape(problem.log_likelihood, tree, shard)
        prior = jax.eval_shape(problem.log_prior, tree)
    except Exception as error:
        raise ProblemError(
            f"the model cannot be evaluated at the initial parameters: {type(error).__name__}: "
            f"{str(error).strip().splitlines()[0]}"
        ) from error
    shape = getattr(each, "shape", type(each).__name__)
    if shape == ():
        raise ProblemError(
            f"log_likelihood returned a scalar, expected one value for each row, shape ({rows},): do not "
            "sum or average over the rows, the sampler does it with the right scale"
        )
    if shape != (rows,):
        raise ProblemError(
            f"log_likelihood returned shape {shape} for {rows} rows, expected one value for each row, "
            f"shape ({rows},): sum over all other axes"
        )
    if not np.issubdtype(each.dtype, np.floating):
        raise ProblemError(f"log_likelihood returned dtype {each.dtype}, expected floating-point numbers")
    if getattr(prior, "shape", None) != ():
        raise ProblemError(
            f"log_prior returned shape {getattr(prior, 'shape', type(prior).__name__)}, expected a scalar: "
            "sum over all parameters"
        )
    _require_finite_start(problem, parameters, start, data, range(problem.num_agents) if agents is None else agents)


def _require_finite_start(
    problem: Problem, parameters: Parameters, start: jax.Array, data: Any, agents: Sequence[int]
) -> None:
    count = int(problem.shard_sizes.max())
    parts = np.resize(np.arange(count), (-(-count // _ROWS_AT_ONCE), min(count, _ROWS_AT_ONCE)))

    def one_agent(w: jax.Array, rows: Any) -> tuple[jax.Array, jax.Array]:
        tree = parameters.unravel(w)

        def some(chosen: jax.Array) -> jax.Array:
            return problem.log_likelihood(tree, jax.tree.map(lambda leaf: leaf[chosen], rows))

        return jax.lax.map(some, jnp.asarray(parts)).reshape(-1)[:count], problem.log_prior(tree)

    def gradient_is_finite(w: jax.Array, rows: Any) -> jax.Array:
        some = jax.tree.map(lambda leaf: leaf[:_CHECKED_ROWS], rows)
        return jnp.isfinite(jax.grad(lambda w: potential(problem, parameters, w, some, None, 1.0))(w)).all()

    def by_agent(function: Any) -> Any:
        """One agent after the other: all at once could need the memory of a full-batch gradient of them all."""
        return jax.jit(lambda *arrays: jax.lax.map(lambda own: function(*own), arrays))(start, data)

    each, prior = by_agent(one_agent)
    for place, values in enumerate(np.asarray(each)):
        bad = np.flatnonzero(~np.isfinite(values))
        if bad.size:
            raise ProblemError(
                f"log_likelihood is {values[bad[0]]} at the start for agent {agents[place]}, row "
                f"{bad[0] % problem.shard_sizes[place]}: check that row for missing values, or start where "
                "every row has a positive likelihood"
            )
    if not np.isfinite(np.asarray(prior)).all():
        place = int(np.flatnonzero(~np.isfinite(np.asarray(prior)))[0])
        raise ProblemError(
            f"log_prior is {np.asarray(prior)[place]} at the start of agent {agents[place]}: let init return a point "
            "inside the prior's support"
        )
    finite = np.asarray(by_agent(gradient_is_finite))
    if not finite.all():
        agent = agents[int(np.argmin(finite))]
        raise ProblemError(
            f"the gradient of the log-posterior is not finite at the start of agent {agent}: "
            "look for a square root, logarithm or norm of zero in the model"
        )
