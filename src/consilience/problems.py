"""What to infer: a likelihood, a prior, and one shard of data for every agent.

Agent `i` holds `m_i` rows. Its local posterior is `p(w|X_i) ∝ p(X_i|w) · p(w)^(1/n)`, so the product over
agents is the posterior given everybody's data; `U_i = −log p(w|X_i)`. With a minibatch of `B` rows

    ∇U_i ≈ −(m_i/B) Σ_b ∇ log p(x_b|w) − (1/n) ∇ log p(w),

always an estimate of the gradient of the **sum** over the agent's rows, never of a mean.

A model may have **private** parameters `z_i`, an agent's own, which never leave it. Their density `p(z_i|w)` counts
in full at their agent:

    U_i(w, z_i) = −log p(X_i|w, z_i) − log p(z_i|w) − (1/n) log p(w).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from consilience.errors import ProblemError


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


@dataclass(frozen=True)
class Outcomes:
    """What a model says about the outcome of rows, given parameters on the constrained scale; one entry by name each.

    Attributes:
        kinds: what each outcome is: `"number"`, `"count"`, `"binary"` (0 or 1) or `"class"` (0, 1, 2, …).
        expected: `(parameters, rows) -> {name: (num_rows, …)}`, the mean of the outcome; of a class,
            `(num_rows, classes)` probabilities. Rows may lack the outcome.
        simulate: `(key, parameters, rows) -> {name: (num_rows, …)}`, an outcome drawn for each row.
        observed: `rows -> {name: (num_rows, …)}`, the outcomes that rows hold.
        draw_private: `(key, parameters) -> parameters` with private ones drawn anew given the others, as at a site
            that nobody has seen; `None` if there are none.
    """

    kinds: Mapping[str, str]
    expected: Callable[[Any, Any], Mapping[str, jax.Array]]
    simulate: Callable[[jax.Array, Any, Any], Mapping[str, jax.Array]]
    observed: Callable[[Any], Mapping[str, Any]]
    draw_private: Callable[[jax.Array, Any], Any] | None = None


@dataclass(frozen=True, eq=False)
class Problem:
    """A Bayesian model and the data of every agent.

    Attributes:
        log_likelihood: `(parameters, rows) -> (num_rows,)`, the log-likelihood of each row.
        log_prior: `parameters -> scalar`, the log-density of the whole prior (up to a constant).
        init: `key -> parameters`, where an agent starts; any pytree of floating-point arrays. Or one such function
            for each agent; the leading axes of private parameters may then differ in length from agent to agent.
        shards: one pytree of arrays for each agent, with equal leading length within a shard. Shards may
            differ in length.
        name: for people.
        curvature: bounds on the potentials' curvature, if they are known by analysis; the theory uses them.
        replicas: other data for every chain, if chains are repetitions of an experiment: one list of shards for each
            chain, of the same shapes as `shards`, which are those of the first.
        network_size: how many agents share the prior, if not all of their shards are here (on a node of its own).
        private: names of parameters that belong to their agent alone and never leave it; a name also stands for
            everything below it, `effects` for `effects.slope`.
        log_private: `parameters -> scalar`, the log-density `log p(z_i|w)` of the private parameters, given the
            others.
        constraints: by name, where parameters may be: `"positive"`, `"unit_interval"`, `("interval", low, high)`,
            `"simplex"`, `"ordered"`, `"correlation"`, `"correlation_cholesky"`, or a constraint of NumPyro. Samplers
            move on an unconstrained scale; functions here, draws and results are on the constrained one, and
            densities are with respect to it.
        derived: `parameters -> {name: array}`, other quantities of interest, on the constrained scale; not sampled,
            but computed from the draws.
        outcomes: what the model says about outcomes of rows, for predictions and checks.
        labels: for parameters that are vectors, the names that people know of the entries along the last axis,
            `{"coefficients": ("Intercept", "age")}`.
        ratios: parameters whose exponential people want to see, and what it is called,
            `{"coefficients": "odds ratio"}`.

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
    init: Callable[[jax.Array], Any] | Sequence[Callable[[jax.Array], Any]]
    shards: Sequence[Any]
    name: str = "problem"
    curvature: Curvature | None = None
    replicas: Sequence[Sequence[Any]] | None = None
    network_size: int | None = None
    private: Sequence[str] = ()
    log_private: Callable[[Any], jax.Array] | None = None
    constraints: Mapping[str, Any] = field(default_factory=dict)
    derived: Callable[[Any], Mapping[str, jax.Array]] | None = None
    outcomes: Outcomes | None = None
    labels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    ratios: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.replicas is not None:
            wanted = [_shapes(shard) for shard in self.shards]
            for chain, shards in enumerate(self.replicas):
                if [_shapes(shard) for shard in shards] != wanted:
                    raise ProblemError(f"the data of chain {chain} has other shapes than that of the first chain")
        require_shards(self.shards)
        self._require_own_parts()

    def _require_own_parts(self) -> None:
        """Check what is said of private parameters and of agents' own starts."""
        if isinstance(self.private, str):
            raise ProblemError(f"private is the text {self.private!r}: give a tuple of names, ({self.private!r},)")
        if self.private and self.log_private is None:
            raise ProblemError(
                f"{', '.join(self.private)} is private, but there is no log_private: give the log-density of the "
                "private parameters given the others, which counts in full at each agent"
            )
        if self.log_private is not None and not self.private:
            raise ProblemError("there is a log_private but no private parameter: name them in `private`")
        if not callable(self.init) and len(self.init) != self.num_agents:
            raise ProblemError(
                f"init has {len(self.init)} functions for {self.num_agents} shards: give one for each agent, or one "
                "for all of them"
            )

    @property
    def inits(self) -> list[Callable[[jax.Array], Any]]:
        """For each agent, the function that says where it starts."""
        return [self.init] * self.num_agents if callable(self.init) else list(self.init)

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
        init = self.init if callable(self.init) else [self.init[agent] for agent in agents]
        return replace(self, shards=own, init=init, curvature=None, replicas=replicas, network_size=size)

    @cached_property
    def shard_sizes(self) -> np.ndarray:
        """`(num_agents,)` the number of rows `m_i` of each shard."""
        return np.array([len(jax.tree.leaves(shard)[0]) for shard in self.shards])

    def divided(self, num_agents: int) -> Problem:
        """The same data split evenly among another number of agents, in order."""
        if self.private or not callable(self.init):
            why = (
                f"{', '.join(self.private)} is private to an agent"
                if self.private
                else "every agent has its own init"
            )
            raise ProblemError(f"the data cannot be divided anew, as {why}: make the problem with other shards")
        rows = int(self.shard_sizes.sum())
        if num_agents > rows:
            raise ProblemError(f"{rows} rows cannot be divided among {num_agents} agents: take at most {rows}")
        pooled = jax.tree.map(lambda *leaves: np.concatenate([np.asarray(leaf) for leaf in leaves]), *self.shards)
        places = np.array_split(np.arange(rows), num_agents)
        shards = [jax.tree.map(lambda leaf, own=own: leaf[own], pooled) for own in places]
        return replace(self, shards=shards, curvature=None)

    def fingerprint(self) -> str:
        """A digest of the data, and of what is private and constrained; a resumed run must have the same one."""
        everything = self.shards if self.replicas is None else [one for shards in self.replicas for one in shards]
        return self._digest(everything).hexdigest()

    def shard_digests(self) -> list[bytes]:
        """A digest of each agent's data, for engines whose processes hold some of the shards alone."""
        chains = [self.shards] if self.replicas is None else self.replicas
        return [self._digest([shards[agent] for shards in chains]).digest() for agent in range(self.num_agents)]

    def stacked_shards(self, dtype: Any, rows: int | None = None) -> Any:
        """All shards as arrays `(num_agents, max rows, …)`, or with so many rows; short shards repeat their own.

        Floating-point data takes `dtype`. Repeated rows are real ones, so the likelihood is finite on them
        and a weight of zero removes them exactly.
        """
        return self._stacked(self.shards, dtype, rows)

    @property
    def chains_apart(self) -> int:
        """How many chains have data of their own; 0 if all have the same."""
        return len(self.replicas or ())

    def stacked_replicas(self, dtype: Any, rows: int | None = None) -> Any:
        """The shards of every chain as arrays `(num_chains, num_agents, max rows, …)`, if chains have their own."""
        chains = [self._stacked(shards, dtype, rows) for shards in self.replicas or ()]
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *chains)

    def _digest(self, shards: Sequence[Any]) -> Any:
        """Of shards, and of the scale on which states are kept and who keeps what, if that is not the usual."""
        digest = hashlib.sha256()
        if self.private or self.constraints:
            kinds = {
                name: kind if isinstance(kind, str | tuple) else repr(kind) for name, kind in self.constraints.items()
            }
            digest.update(repr((sorted(self.private), sorted(kinds.items()))).encode())
        for shard in shards:
            for leaf in jax.tree.leaves(shard):
                array = np.ascontiguousarray(leaf)
                digest.update(f"{array.dtype}{array.shape}".encode())
                digest.update(array.tobytes())
        return digest

    def _stacked(self, shards: Sequence[Any], dtype: Any, rows: int | None) -> Any:
        longest = rows or int(self.shard_sizes.max())

        def stack(*leaves: Any) -> jax.Array:
            filled = [np.resize(np.asarray(leaf), (longest, *np.shape(leaf)[1:])) for leaf in leaves]
            return cast_floats(np.stack(filled), dtype)

        return jax.tree.map(stack, *shards)


def cast_floats(tree: Any, dtype: Any) -> Any:
    """The arrays of a pytree, floating-point ones in the given dtype."""

    def cast(leaf: Any) -> jax.Array:
        if not np.issubdtype(np.asarray(leaf).dtype, np.floating):
            return jnp.asarray(leaf)
        if not isinstance(leaf, jax.Array):  # by NumPy, since JAX compiles a program for each shape
            with np.errstate(over="ignore"):
                leaf = np.asarray(leaf, dtype)
        return jnp.asarray(leaf, dtype)

    return jax.tree.map(cast, tree)


def require_shards(shards: Sequence[Any]) -> None:
    """Check that there is one shard for each agent, all with the same arrays up to the number of rows."""
    if not len(shards):
        raise ProblemError("a problem needs at least one shard of data, one for each agent; got none")
    first = _row_shapes(shards[0], 0)
    for agent, shard in enumerate(shards):
        shapes = _row_shapes(shard, agent)
        if shapes != first:
            raise ProblemError(
                f"the shards must have the same arrays at every agent, up to the number of rows; agent 0 "
                f"has {_shown(first)}, agent {agent} has {_shown(shapes)}"
            )


def _shapes(shard: Any) -> Any:
    return [np.shape(leaf) for leaf in jax.tree.leaves(shard)], jax.tree.structure(shard)


def _row_shapes(shard: Any, agent: int) -> tuple[Any, ...]:
    leaves, structure = jax.tree.flatten(shard)
    if not leaves:
        raise ProblemError(f"the shard of agent {agent} holds no array: give it at least one row of data")
    lengths = {np.shape(leaf)[0] if np.ndim(leaf) else None for leaf in leaves}
    if None in lengths:
        kind = next(type(leaf).__name__ for leaf in leaves if not np.ndim(leaf))
        raise ProblemError(
            f"the shard of agent {agent} holds a scalar ({kind}): every array needs one leading entry for each row; "
            "a list is a list of arrays, so a column of numbers is one array, np.array(column)"
        )
    if len(lengths) > 1:
        raise ProblemError(
            f"the arrays in the shard of agent {agent} have {' and '.join(sorted(map(str, lengths)))} rows: "
            "they must have the same number"
        )
    odd = [np.asarray(leaf).dtype for leaf in leaves if np.asarray(leaf).dtype.kind in "OUSMm"]
    if odd:
        raise ProblemError(
            f"the shard of agent {agent} holds an array of dtype {odd[0]}, and models compute with numbers: turn "
            "text and dates into numbers, categories into 0, 1, 2, …, the same at every agent"
        )
    if lengths == {0}:
        raise ProblemError(
            f"the shard of agent {agent} is empty: give every agent at least one row, or leave the agent out"
        )
    names = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(shard)]
    return structure, tuple(
        (name, np.shape(leaf)[1:], str(np.asarray(leaf).dtype)) for name, leaf in zip(names, leaves, strict=True)
    )


def _shown(shapes: tuple[Any, ...]) -> str:
    """The arrays of a shard in words: `2 arrays ([0]: float64, one number a row; [1]: int64, 3 numbers a row)`."""
    leaves = [f"{name + ': ' if name else ''}{dtype}, {_entries(shape)} a row" for name, shape, dtype in shapes[1]]
    return f"{len(leaves)} array{'s' * (len(leaves) > 1)} ({'; '.join(leaves)})"


def _entries(shape: tuple[int, ...]) -> str:
    return f"{' × '.join(map(str, shape))} numbers" if shape else "one number"
