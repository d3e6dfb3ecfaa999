"""Is a model usable where its agents start? Its shapes, its values and its gradient, checked before any sampling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from consilience.errors import ProblemError
from consilience.kernel.parameters import Parameters, potential
from consilience.kernel.quickly import for_work
from consilience.problems import Problem

_CHECKED_ROWS = 256
_ROWS_AT_ONCE = 64


def require_usable(
    problem: Problem, parameters: Parameters, start: Any, data: Any, agents: Sequence[int] | None = None
) -> None:
    """Check the likelihood's and the prior's shape and value where every agent starts.

    Args:
        problem: what to check.
        parameters: its layout.
        start: `(num_agents, size)` initial positions.
        data: the stacked shards.
        agents: the numbers of the agents, if they are not all of the network.
    """
    agents = range(problem.num_agents) if agents is None else agents
    for places, own in parameters.groups:
        chosen = np.array(places)
        some = jax.tree.map(lambda leaf, chosen=chosen: leaf[chosen], data)
        numbers = [agents[place] for place in places]
        require_usable(problem.of_agents(places), own, start[chosen, : own.size], some, numbers)
    if parameters.groups:
        return
    rows = int(jax.tree.leaves(data)[0].shape[1])
    tree = jax.eval_shape(parameters.unravel, start[0])
    shard = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), data)
    try:
        each = jax.eval_shape(problem.log_likelihood, tree, shard)
        priors = {"log_prior": jax.eval_shape(problem.log_prior, tree)}
        if problem.log_private is not None:
            priors["log_private"] = jax.eval_shape(problem.log_private, tree)
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
    for name, prior in priors.items():
        if getattr(prior, "shape", None) != ():
            raise ProblemError(
                f"{name} returned shape {getattr(prior, 'shape', type(prior).__name__)}, expected a scalar: "
                "sum over all parameters"
            )
    if parameters.private:
        _require_shared_prior(problem, parameters, start[0])
    _require_finite_start(problem, parameters, start, data, agents)


def _require_shared_prior(problem: Problem, parameters: Parameters, start: jax.Array) -> None:
    """Check that the prior, of which every agent counts a share, is about shared parameters alone."""
    somewhere = start + 0.1 * jax.random.normal(jax.random.key(0), start.shape, start.dtype)
    slopes = np.asarray(jax.grad(lambda w: problem.log_prior(parameters.unravel(w)))(somewhere))
    for part in parameters.parts:
        if part.private and slopes[part.start : part.stop].any():
            raise ProblemError(
                f"log_prior depends on the private parameter {part.name!r}, but only a share of it counts at each "
                "agent: move what it says about that parameter to log_private"
            )


def _what_is_at_fault(problem: Problem, parameters: Parameters, w: jax.Array, shard: Any, row: int) -> str:
    """The row, if something is missing in it; otherwise the start, and which parameter's if that can be told."""
    own = jax.tree.map(lambda leaf: leaf[row : row + 1], shard)
    if any(not np.isfinite(np.asarray(leaf, float)).all() for leaf in jax.tree.leaves(own)):
        return "that row holds a missing or infinite value; leave it out, or fill it"
    for part in parameters.parts:
        values = np.asarray(w[part.start : part.stop])
        if part.constraint is not None or values.all():
            continue
        moved = w.at[part.start : part.stop].set(np.where(values == 0, 1, values))
        if np.isfinite(np.asarray(problem.log_likelihood(parameters.unravel(moved), own))).all():
            return (
                f"no value is missing there, but {part.name!r} starts at 0, and at 1 the likelihood is finite; if it "
                "is a scale, let init return a positive number for it, and say "
                f"constraints={{{part.name!r}: 'positive'}}"
            )
    return "no value is missing there; let init return parameters at which every row has a positive likelihood"


def _require_finite_start(
    problem: Problem, parameters: Parameters, start: jax.Array, data: Any, agents: Sequence[int]
) -> None:
    count = int(jax.tree.leaves(data)[0].shape[1])
    parts = np.resize(np.arange(count), (-(-count // _ROWS_AT_ONCE), min(count, _ROWS_AT_ONCE)))

    def one_agent(w: jax.Array, rows: Any) -> tuple[jax.Array, dict[str, jax.Array]]:
        tree = parameters.unravel(w)

        def some(chosen: jax.Array) -> jax.Array:
            return problem.log_likelihood(tree, jax.tree.map(lambda leaf: leaf[chosen], rows))

        priors = {"log_prior": problem.log_prior(tree)}
        if problem.log_private is not None:
            priors["log_private"] = problem.log_private(tree)
        return jax.lax.map(some, jnp.asarray(parts)).reshape(-1)[:count], priors

    def gradient_is_finite(w: jax.Array, rows: Any) -> jax.Array:
        some = jax.tree.map(lambda leaf: leaf[:_CHECKED_ROWS], rows)
        return jnp.isfinite(jax.grad(lambda w: potential(problem, parameters, w, some, None, 1.0))(w)).all()

    def by_agent(*arrays: Any) -> Any:
        """One agent after the other: all at once could need the memory of a full-batch gradient of them all."""
        return jax.lax.map(lambda own: (*one_agent(*own), gradient_is_finite(*own)), arrays)

    check = for_work(parameters.size * problem.shard_sizes.sum(), by_agent)
    each, priors, finite = jax.tree.map(np.asarray, check(start, data))
    for place, values in enumerate(each):
        bad = np.flatnonzero(~np.isfinite(values))
        if bad.size:
            row = int(bad[0] % problem.shard_sizes[place])
            shard = jax.tree.map(lambda leaf, place=place: leaf[place], data)
            raise ProblemError(
                f"log_likelihood is {values[row]} at the start for agent {agents[place]}, row {row}: "
                + _what_is_at_fault(problem, parameters, jnp.asarray(start[place]), shard, row)
            )
    for name, prior in priors.items():
        bad = np.flatnonzero(~np.isfinite(prior))
        if bad.size:
            raise ProblemError(
                f"{name} is {prior[bad[0]]} at the start of agent {agents[bad[0]]}: let init return a "
                "point inside the prior's support"
            )
    if not finite.all():
        agent = agents[int(np.argmin(finite))]
        raise ProblemError(
            f"the gradient of the log-posterior is not finite at the start of agent {agent}: "
            "look for a square root, logarithm or norm of zero in the model"
        )
