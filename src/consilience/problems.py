"""What to infer: a likelihood, a prior, and one shard of data for every agent.

Agent `i` holds `m_i` rows. Its local posterior is `p(w|X_i) ∝ p(X_i|w) · p(w)^(1/n)`, so the product over
agents is the posterior given everybody's data; `U_i = −log p(w|X_i)`. With a minibatch of `B` rows

    ∇U_i ≈ −(m_i/B) Σ_b ∇ log p(x_b|w) − (1/n) ∇ log p(w),

always an estimate of the gradient of the **sum** over the agent's rows, never of a mean.

Inside, parameters travel as one flat vector per agent: one noise draw, one message and one fused update, however
many arrays the model has. `Parameters` converts between the two.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from consilience.errors import ProblemError

_RESERVED = {"chain", "agent", "draw", "step", "step_size"}


@dataclass(frozen=True)
class Curvature:
    """What is known by analysis about the potentials of a problem, everywhere and not only where somebody looked.

    Attributes:
        smoothness: for each agent `L_i ≥ ‖∇²U_i(w)‖` for all `w`.
        total_smoothness: `L̄ ≥ ‖∇²U(w)‖` for all `w`.
        convexity: a number with `∇²U(w) ⪰ convexity · I` for all `w`; 0 if none is known.
        how: where the bounds come from, in a few words.
    """

    smoothness: tuple[float, ...]
    total_smoothness: float
    convexity: float
    how: str


@dataclass(frozen=True, eq=False)
class Problem:
    """A Bayesian model and the data of every agent.

    Attributes:
        log_likelihood: `(parameters, rows) -> (num_rows,)`, the log-likelihood of each row.
        log_prior: `parameters -> scalar`, the log-density of the whole prior (up to a constant).
        init: `key -> parameters`, where an agent starts; any pytree of floating-point arrays.
        shards: one pytree of arrays for each agent, with equal leading length within a shard. Shards may
            differ in length.
        name: for people.
        curvature: bounds on the potentials' curvature, if they are known by analysis; the theory uses them.
        replicas: other data for every chain, if chains are repetitions of an experiment: one list of shards for each
            chain, of the same shapes as `shards`, which are those of the first.
        network_size: how many agents share the prior, if not all of their shards are here (on a node of its own).

    >>> import jax.numpy as jnp
    >>> problem = Problem(
    ...     log_likelihood=lambda w, x: -0.5 * (x - w) ** 2,
    ...     log_prior=lambda w: -0.5 * w**2,
    ...     init=lambda key: jnp.zeros(()),
    ...     shards=[jnp.ones(3), jnp.zeros(5)],
    ... )
    >>> problem.num_agents, problem.shard_sizes.tolist()
    (2, [3, 5])
    """

    log_likelihood: Callable[[Any, Any], jax.Array]
    log_prior: Callable[[Any], jax.Array]
    init: Callable[[jax.Array], Any]
    shards: Sequence[Any]
    name: str = "problem"
    curvature: Curvature | None = None
    replicas: Sequence[Sequence[Any]] | None = None
    network_size: int | None = None

    def __post_init__(self) -> None:
        if self.replicas is not None:
            wanted = [_shapes(shard) for shard in self.shards]
            for chain, shards in enumerate(self.replicas):
                if [_shapes(shard) for shard in shards] != wanted:
                    raise ProblemError(f"the data of chain {chain} has other shapes than that of the first chain")
        if not len(self.shards):
            raise ProblemError("a problem needs at least one shard of data, one for each agent; got none")
        first = _row_shapes(self.shards[0], 0)
        for agent, shard in enumerate(self.shards):
            shapes = _row_shapes(shard, agent)
            if shapes != first:
                raise ProblemError(
                    f"the shards must have the same arrays at every agent, up to the number of rows; agent 0 "
                    f"has {_shown(first)}, agent {agent} has {_shown(shapes)}"
                )

    @property
    def num_agents(self) -> int:
        """The number of shards, one for each agent."""
        return len(self.shards)

    @property
    def prior_share(self) -> float:
        """The exponent of the prior in a local posterior, `1/n`."""
        return 1 / (self.network_size or self.num_agents)

    def of_agent(self, agent: int) -> Problem:
        """What one agent knows: its own shard, and how many share the prior."""
        return self.of_agents([agent])

    def of_agents(self, agents: Sequence[int]) -> Problem:
        """What some agents know: their own shards, in that order, and how many share the prior."""
        replicas = self.replicas and [[shards[agent] for agent in agents] for shards in self.replicas]
        size = self.network_size or self.num_agents
        own = [self.shards[agent] for agent in agents]
        return replace(self, shards=own, curvature=None, replicas=replicas, network_size=size)

    @cached_property
    def shard_sizes(self) -> np.ndarray:
        """`(num_agents,)` the number of rows `m_i` of each shard."""
        return np.array([len(jax.tree.leaves(shard)[0]) for shard in self.shards])

    def divided(self, num_agents: int) -> Problem:
        """The same data dealt out evenly to another number of agents, in order."""
        rows = int(self.shard_sizes.sum())
        if num_agents > rows:
            raise ProblemError(f"{rows} rows cannot be divided among {num_agents} agents: take at most {rows}")
        pooled = jax.tree.map(lambda *leaves: np.concatenate([np.asarray(leaf) for leaf in leaves]), *self.shards)
        places = np.array_split(np.arange(rows), num_agents)
        shards = [jax.tree.map(lambda leaf, own=own: leaf[own], pooled) for own in places]
        return replace(self, shards=shards, curvature=None)

    def fingerprint(self) -> str:
        """A digest of the data; a resumed run must have the same one."""
        everything = self.shards if self.replicas is None else [one for shards in self.replicas for one in shards]
        return _digest(everything).hexdigest()

    def shard_digests(self) -> list[bytes]:
        """A digest of each agent's data, for engines whose processes hold some of the shards alone."""
        chains = [self.shards] if self.replicas is None else self.replicas
        return [_digest([shards[agent] for shards in chains]).digest() for agent in range(self.num_agents)]

    def stacked_shards(self, dtype: Any, rows: int | None = None) -> Any:
        """All shards as arrays `(num_agents, max rows, …)`, or with so many rows; short shards repeat their own.

        Floating-point data takes `dtype`. Repeated rows are real ones, so the likelihood is finite on them
        and a weight of zero removes them exactly.
        """
        return self._stacked(self.shards, dtype, rows)

    def stacked_replicas(self, dtype: Any, rows: int | None = None) -> Any:
        """The shards of every chain as arrays `(num_chains, num_agents, max rows, …)`, if chains have their own."""
        chains = [self._stacked(shards, dtype, rows) for shards in self.replicas or ()]
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *chains)

    def _stacked(self, shards: Sequence[Any], dtype: Any, rows: int | None) -> Any:
        longest = rows or int(self.shard_sizes.max())

        def stack(*leaves: Any) -> jax.Array:
            filled = [np.resize(np.asarray(leaf), (longest, *np.shape(leaf)[1:])) for leaf in leaves]
            return cast_floats(np.stack(filled), dtype)

        return jax.tree.map(stack, *shards)


def cast_floats(tree: Any, dtype: Any) -> Any:
    """The arrays of a pytree, floating-point ones in the given dtype."""
    return jax.tree.map(
        lambda leaf: jnp.asarray(leaf, dtype if np.issubdtype(np.asarray(leaf).dtype, np.floating) else None), tree
    )


@dataclass(frozen=True)
class Parameters:
    """How a model's parameters map to one flat vector, and what its arrays are called."""

    size: int
    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    unravel: Callable[[jax.Array], Any]

    @property
    def offsets(self) -> list[int]:
        """Where each array starts in the flat vector, and the end."""
        return [0, *np.cumsum([int(np.prod(shape)) for shape in self.shapes]).tolist()]

    @classmethod
    def of(cls, problem: Problem, dtype: Any) -> Parameters:
        """The layout of what `problem.init` returns."""
        example = problem.init(jax.random.key(0))
        named, _ = jax.tree_util.tree_flatten_with_path(example)
        if not named:
            raise ProblemError("init returned no arrays: return the model's parameters, any pytree of arrays")
        dtypes: dict[str, Any] = {}
        for path, leaf in named:
            name = jax.tree_util.keystr(path, simple=True, separator=".").replace("/", ".") or "w"
            if name in _RESERVED or name in dtypes:
                why = "is used for something else" if name in _RESERVED else "occurs twice"
                raise ProblemError(f"the parameter name {name!r} {why} in the draws: call it something else")
            if np.size(leaf) == 0:
                raise ProblemError(f"parameter {name!r} from init has shape {np.shape(leaf)}: leave it out")
            if not np.issubdtype(np.asarray(leaf).dtype, np.floating):
                raise ProblemError(
                    f"parameter {name!r} from init has dtype {np.asarray(leaf).dtype}: parameters must be "
                    "floating-point, for example jnp.zeros(shape)"
                )
            dtypes[name] = None if isinstance(leaf, float) else np.asarray(leaf).dtype
        found = {dtype for dtype in dtypes.values() if dtype is not None}
        if len(found) > 1:
            listed = ", ".join(f"{name}: {dtype}" for name, dtype in dtypes.items())
            raise ProblemError(f"init mixes dtypes ({listed}): give all parameters the same one")
        cast = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), example)
        flat, unravel = ravel_pytree(cast)
        shapes = tuple(np.shape(leaf) for _, leaf in named)
        return cls(int(flat.size), tuple(dtypes), shapes, unravel)


def initial_positions(problem: Problem, parameters: Parameters, keys: jax.Array, dtype: Any) -> jax.Array:
    """`keys.shape + (size,)`: where every agent of every chain starts."""

    def start(key: jax.Array) -> jax.Array:
        drawn = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), problem.init(key))
        return ravel_pytree(drawn)[0]

    for _ in keys.shape:
        start = jax.vmap(start)
    return jax.jit(start)(keys)


def potential(
    problem: Problem, parameters: Parameters, w: jax.Array, rows: Any, row_weights: jax.Array | None, scale: Any
) -> jax.Array:
    """`U_i(w)` over the flat vector `w`, up to a constant.

    `row_weights` (or `None` for all ones) multiplies each row's log-likelihood and `scale` their sum: 1 for a full
    shard, `m_i/B` for a minibatch.
    """
    tree = parameters.unravel(w)
    each = problem.log_likelihood(tree, rows)
    total = each.sum() if row_weights is None else (each * row_weights).sum()
    return -scale * total - problem.prior_share * problem.log_prior(tree)


def _digest(shards: Sequence[Any]) -> Any:
    digest = hashlib.sha256()
    for shard in shards:
        for leaf in jax.tree.leaves(shard):
            array = np.ascontiguousarray(leaf)
            digest.update(f"{array.dtype}{array.shape}".encode())
            digest.update(array.tobytes())
    return digest


def _shapes(shard: Any) -> Any:
    return [np.shape(leaf) for leaf in jax.tree.leaves(shard)], jax.tree.structure(shard)


def _row_shapes(shard: Any, agent: int) -> tuple[Any, ...]:
    leaves, structure = jax.tree.flatten(shard)
    if not leaves:
        raise ProblemError(f"the shard of agent {agent} holds no array: give it at least one row of data")
    lengths = {np.shape(leaf)[0] if np.ndim(leaf) else None for leaf in leaves}
    if None in lengths:
        raise ProblemError(
            f"the shard of agent {agent} holds a scalar: every array needs one leading entry for each row"
        )
    if len(lengths) > 1:
        raise ProblemError(
            f"the arrays in the shard of agent {agent} have {' and '.join(sorted(map(str, lengths)))} rows: "
            "they must have the same number"
        )
    if lengths == {0}:
        raise ProblemError(
            f"the shard of agent {agent} is empty: give every agent at least one row, or leave the agent out"
        )
    return structure, tuple((np.shape(leaf)[1:], str(np.asarray(leaf).dtype)) for leaf in leaves)


def _shown(shapes: tuple[Any, ...]) -> str:
    structure, leaves = shapes
    return f"{structure} of rows " + ", ".join(f"{dtype}{list(shape)}" for shape, dtype in leaves)
