"""A model's parameters as one flat vector, where agents start, and the potential there.

Inside, parameters travel as one flat vector per agent: one noise draw, one message and one fused update, however
many arrays the model has. `Parameters` converts between the two. The vector is unconstrained; shared entries come
first, so that a message is its beginning, then the agent's private ones. Where agents have different numbers of
private entries, the vectors of those with fewer are filled up at the end; their agents' `groups` have layouts without
the filling, with which a model is evaluated.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from consilience.errors import ProblemError
from consilience.kernel.constraints import Constraint, constraints_of, matching
from consilience.kernel.quickly import compiled_quickly
from consilience.problems import Problem, cast_floats

_RESERVED = {"chain", "agent", "draw", "step", "step_size", "weight"}


class Part(NamedTuple):
    """One array of a model, and where it stands in the flat vector."""

    name: str
    shape: tuple[int, ...]
    """As a user sees it."""
    free_shape: tuple[int, ...]
    """On the unconstrained scale."""
    start: int
    stop: int
    private: bool
    constraint: Constraint | None

    def free(self, w: Any) -> Any:
        """Its array on the unconstrained scale, from vectors `(…, size)`."""
        return w[..., self.start : self.stop].reshape(*w.shape[:-1], *self.free_shape)

    def stored(self, draws: np.ndarray) -> np.ndarray:
        """The array as a user sees it in many vectors `(…, size)`: a view of them if it has no constraint."""
        free = self.free(draws)
        if self.constraint is None:
            return free
        inside = self.constraint.many_inside(free.reshape(-1, *self.free_shape))
        return inside.reshape(*draws.shape[:-1], *self.shape)


class Group(NamedTuple):
    """Agents whose private parameters have the same shapes."""

    places: tuple[int, ...]
    """Where they stand among the agents of the problem."""
    parameters: Parameters
    """Their layout, without filling."""


@dataclass(frozen=True)
class Parameters:
    """How a model's parameters map to one flat vector, and what its arrays are called.

    Attributes:
        size: entries of the vector.
        num_shared: so many of them, the first, are shared; the others are private to an agent.
        names: of the arrays, in the model's order.
        shapes: of the arrays as a user sees them, the longest where agents differ.
        private: the names of private arrays.
        parts: where each array stands; empty if agents differ.
        unravel: from a vector to the model's parameters, constrained.
        ravel: from the model's parameters to a vector.
        groups: agents of equal shapes, if they differ.
    """

    size: int
    num_shared: int
    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    private: frozenset[str]
    parts: tuple[Part, ...]
    unravel: Callable[[jax.Array], Any]
    ravel: Callable[[Any], jax.Array]
    groups: tuple[Group, ...] = ()

    @classmethod
    def of(cls, problem: Problem, dtype: Any) -> Parameters:
        """The layout of what `problem.init` returns, which is the same at every agent but for private lengths."""
        with_values = bool(problem.constraints)  # which are checked to keep them
        made = {init: _layout(problem, _example(init, with_values), dtype) for init in dict.fromkeys(problem.inits)}
        each = [made[init] for init in problem.inits]
        groups: dict[Any, list[int]] = {}
        for place, own in enumerate(each):
            _require_alike(each[0], own, place)
            groups.setdefault(own.shapes, []).append(place)
        if len(groups) == 1:
            return each[0]
        longest = tuple(
            tuple(max(sizes) for sizes in zip(*alike, strict=True))
            for alike in zip(*(own.shapes for own in each), strict=True)
        )
        return cls(
            max(own.size for own in each), each[0].num_shared, each[0].names, longest, each[0].private, (),
            _agents_differ, _agents_differ,
            tuple(Group(tuple(places), each[places[0]]) for places in groups.values()),
        )  # fmt: skip

    @property
    def private_start(self) -> int | None:
        """Where in the vector private entries begin; `None` if there are none."""
        return self.num_shared if self.private else None

    @property
    def is_plain(self) -> bool:
        """Whether the vector is nothing but the model's arrays one after the other."""
        return not self.groups and not self.private and all(part.constraint is None for part in self.parts)

    @property
    def entries(self) -> np.ndarray | None:
        """`(agents, size)`: which entries are an agent's own and no filling; `None` if there is no filling."""
        if not self.groups:
            return None
        sizes = {place: group.parameters.size for group in self.groups for place in group.places}
        return np.arange(self.size) < np.array([sizes[place] for place in range(len(sizes))])[:, None]

    def log_jacobian(self, w: jax.Array) -> tuple[Any, Any]:
        """Of the shared and of the private parameters at a vector: `log |d constrained / d unconstrained|`.

        The shared one belongs to the prior, the private one to `log_private`.
        """
        shared, private = (
            sum(
                (part.constraint.log_jacobian(part.free(w)) for part in self.parts
                 if part.constraint is not None and part.private is own),
                0.0,
            )
            for own in (False, True)
        )  # fmt: skip
        return shared, private

    def variables(self, draws: np.ndarray, agent_axis: int | None = None) -> dict[str, np.ndarray]:
        """Vectors `(…, size)` as the model's arrays `(…, *shape)` by name, constrained, for storing.

        Views of the vectors where there is no constraint. Where agents differ, `agent_axis` says which axis is
        theirs, and what an agent does not have is NaN.
        """
        if not self.groups:
            return {part.name: part.stored(draws) for part in self.parts}
        if agent_axis is None:
            raise ValueError("agents' private parameters differ in length: say which axis of the draws is theirs")
        by_agent = np.moveaxis(draws, agent_axis, 0)
        found = {
            name: np.full((*by_agent.shape[:-1], *shape), np.nan, draws.dtype)
            for name, shape in zip(self.names, self.shapes, strict=True)
        }
        for places, own in self.groups:
            some = own.variables(by_agent[list(places), ..., : own.size])
            for name, values in some.items():
                entries: tuple[Any, ...] = tuple(slice(size) for size in values.shape[by_agent.ndim - 1 :])
                found[name][(list(places), ..., *entries)] = values
        return {name: np.moveaxis(values, 0, agent_axis) for name, values in found.items()}


def _agents_differ(_: Any) -> Any:
    raise ValueError("agents' private parameters differ in length: take the layouts in `groups`")


def _example(init: Callable[[jax.Array], Any], with_values: bool) -> Any:
    """What `init` returns, or zeros of its shapes, for which nothing is compiled; numbers that are not JAX's stay.

    Values come by one program in place of one for every operation.
    """
    returned: dict[str, Any] = {}
    try:
        jax.eval_shape(lambda key: returned.setdefault("tree", init(key)), jax.eval_shape(jax.random.key, 0))
        values = tree = returned["tree"]
        if with_values:
            values = compiled_quickly(init, same_bits=True)(jax.random.key(0))
    except Exception:
        return init(jax.random.key(0))  # which says what is wrong with it

    def known(was: Any, value: Any) -> Any:
        if not isinstance(was, jax.core.Tracer):
            return was
        return value if with_values else np.zeros(was.shape, was.dtype)

    return jax.tree.map(known, tree, values)


def _layout(problem: Problem, example: Any, dtype: Any) -> Parameters:
    """The layout of one agent's parameters."""
    shapes = _checked_shapes(example)
    names = list(shapes)
    private = frozenset(matching(names, problem.private, "private"))
    if len(private) == len(names):
        raise ProblemError("all parameters are private: without a shared one agents have nothing to agree on")
    constraints = constraints_of(problem.constraints, shapes) if problem.constraints else {}
    cast = cast_floats(example, dtype)
    parts = _parts(shapes, private, constraints)
    size, num_shared = (sum(part.stop - part.start for part in some) for some in (
        parts, [part for part in parts if not part.private]
    ))  # fmt: skip
    leaves, structure = jax.tree.flatten(cast)
    for part, leaf in zip(parts, leaves, strict=True):
        if part.constraint is not None:
            part.constraint.require(leaf)
    if not private and not constraints:
        unravel: list[Callable[[jax.Array], Any]] = []
        jax.eval_shape(lambda tree: unravel.append(ravel_pytree(tree)[1]), cast)  # nothing is computed to find it
        plain = lambda tree: ravel_pytree(tree)[0]  # noqa: E731
        return Parameters(size, num_shared, tuple(names), tuple(shapes.values()), private, parts, unravel[0], plain)

    def constrained(w: jax.Array) -> Any:
        arrays = [
            part.free(w) if part.constraint is None else part.constraint.inside(part.free(w)).astype(w.dtype)
            for part in parts
        ]
        return jax.tree.unflatten(structure, arrays)

    def free(tree: Any) -> jax.Array:
        flat = [
            (leaf if part.constraint is None else part.constraint.free(leaf)).reshape(-1).astype(dtype)
            for part, leaf in zip(parts, jax.tree.leaves(tree), strict=True)
        ]
        order = sorted(range(len(parts)), key=lambda place: parts[place].start)
        return jnp.concatenate([flat[place] for place in order])

    return Parameters(size, num_shared, tuple(names), tuple(shapes.values()), private, parts, constrained, free)


def _checked_shapes(example: Any) -> dict[str, tuple[int, ...]]:
    """The shapes of the arrays that init returned, by name."""
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
    return {name: np.shape(leaf) for name, (_, leaf) in zip(dtypes, named, strict=True)}


def _parts(shapes: dict[str, tuple[int, ...]], private: frozenset[str], constraints: Any) -> tuple[Part, ...]:
    """Every array in the model's order; in the vector the shared ones come first."""
    found, start = {}, 0
    for name in sorted(shapes, key=lambda name: name in private):
        constraint = constraints.get(name)
        free_shape = shapes[name] if constraint is None else constraint.free_shape
        stop = start + math.prod(free_shape)
        found[name] = Part(name, shapes[name], free_shape, start, stop, name in private, constraint)
        start = stop
    return tuple(found[name] for name in shapes)


def _require_alike(first: Parameters, own: Parameters, place: int) -> None:
    """Check that agents have the same parameters, but for the leading axes of private ones."""
    if own.names != first.names:
        raise ProblemError(
            f"init of agent {place} returns the parameters {', '.join(own.names)}, that of agent 0 "
            f"{', '.join(first.names)}: all must return the same"
        )
    for name, shape, wanted in zip(own.names, own.shapes, first.shapes, strict=True):
        if name not in own.private and shape != wanted:
            raise ProblemError(
                f"parameter {name!r} has shape {shape} at agent {place} and {wanted} at agent 0: a shared parameter "
                "must have the same shape everywhere; name it in `private` if it is the agent's own"
            )
        if len(shape) != len(wanted) or shape[1:] != wanted[1:]:
            raise ProblemError(
                f"private parameter {name!r} has shape {shape} at agent {place} and {wanted} at agent 0: agents may "
                "differ in the length of the leading axis only"
            )


def initial_positions(problem: Problem, parameters: Parameters, keys: jax.Array, dtype: Any) -> jax.Array:
    """`keys.shape + (size,)`: where every agent of every chain starts; the last axis of keys is that of agents.

    Where all agents start by the same function, keys may have any axes.
    """

    def cast(init: Any, key: jax.Array) -> Any:
        return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), init(key))

    def mapped(function: Any, keys: jax.Array) -> Any:
        for _ in keys.shape:
            function = jax.vmap(function)
        return compiled_quickly(function, same_bits=True)(keys)

    if callable(problem.init):
        init = problem.init
        if not isinstance(keys, jax.core.Tracer):
            _require_inside(parameters, partial(mapped, partial(cast, init), keys), "")
        return mapped(lambda key: parameters.ravel(cast(init, key)), keys)
    layouts = {place: group.parameters for group in parameters.groups for place in group.places}
    starts = []
    for place, init in enumerate(problem.inits):
        own, some = layouts.get(place, parameters), keys[..., place]
        draw = partial(cast, init)
        _require_inside(own, partial(mapped, draw, some), f" at agent {place}")
        start = mapped(lambda key, draw=draw, own=own: own.ravel(draw(key)), some)
        starts.append(jnp.pad(start, [(0, 0)] * (start.ndim - 1) + [(0, parameters.size - own.size)]))
    return jnp.stack(starts, -2)


def _require_inside(parameters: Parameters, drawn: Callable[[], Any], whose: str) -> None:
    """Check that all initial values keep their constraints."""
    if all(part.constraint is None for part in parameters.parts):
        return
    for part, values in zip(parameters.parts, jax.tree.leaves(drawn()), strict=True):
        if part.constraint is not None:
            part.constraint.require(values, whose)


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
    if parameters.is_plain:
        return -scale * total - problem.prior_share * problem.log_prior(tree)
    return -scale * total - log_densities(problem, parameters, w)


def log_densities(problem: Problem, parameters: Parameters, w: jax.Array) -> jax.Array:
    """What an agent's log-posterior has besides its rows: its share of the prior, and its private parameters'.

    Densities are those of the constrained parameters, so each has the logarithm of its Jacobian beside it.
    """
    tree = parameters.unravel(w)
    shared, private = parameters.log_jacobian(w)
    prior = problem.prior_share * (problem.log_prior(tree) + shared)
    return prior if problem.log_private is None else prior + problem.log_private(tree) + private
