"""A function with weights becomes a problem: the posterior of the weights, given each agent's inputs and targets.

    weights ~ N(0, prior_scale²)
    target  ~ Categorical(softmax(apply(weights, input)))   or   N(apply(weights, input), noise²)

Weights are kept as dictionaries of dictionaries, so that draws have their names and `cs.predictive.parameter_draws`
gives them back as the problem's functions take them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from consilience.adapters.few_rows import few_rows
from consilience.errors import InputError, ProblemError
from consilience.problems import Outcomes, Problem, require_shards

Likelihood = Literal["categorical", "gaussian"]
_ROWS = 3


def from_apply(
    apply: Callable[[Any, Any], Any],
    parameters: Any,
    *,
    shards: Sequence[tuple[Any, Any]],
    likelihood: Likelihood = "categorical",
    prior_scale: float = 1.0,
    noise: float = 1.0,
    name: str = "network",
) -> Problem:
    """The posterior of the weights of `apply(weights, inputs) -> outputs`, one output for each input.

    Args:
        apply: a pure function; outputs are logits `(rows, classes)`, or means `(rows, …)` with the targets' shape.
        parameters: weights to start at, any pytree of floating-point arrays.
        shards: each agent's `(inputs, targets)`; targets are class numbers, or the numbers that are to be predicted.
            Rows for which the problem's `outcomes` are asked may be inputs alone.
        likelihood: `"categorical"` or `"gaussian"`.
        prior_scale: the standard deviation of every weight's normal prior.
        noise: the standard deviation of a Gaussian target about its mean.
        name: for people.

    >>> line = lambda weights, x: weights["slope"] * x + weights["intercept"]
    >>> weights = {"slope": jnp.zeros(()), "intercept": jnp.zeros(())}
    >>> shards = [(np.array([0.0, 1.0]), np.array([0.5, 1.5])), (np.array([2.0]), np.array([2.5]))]
    >>> problem = from_apply(line, weights, shards=shards, likelihood="gaussian", noise=0.5)
    >>> problem.outcomes.expected({"slope": 1.0, "intercept": 0.5}, np.array([3.0]))["target"].tolist()
    [3.5]
    """
    if likelihood not in ("categorical", "gaussian"):
        raise ProblemError(f"the likelihood is {likelihood!r}: choose categorical or gaussian")
    for what, scale in (("prior_scale", prior_scale), ("noise", noise)):
        if not (np.ndim(scale) == 0 and 0 < scale < np.inf):
            raise ProblemError(f"{what} is {scale}: give a positive standard deviation")
    kept = _pairs(shards, likelihood)
    named, rebuilt = _by_name(parameters)

    def outputs(weights: Any, inputs: Any) -> jax.Array:
        return jnp.asarray(apply(rebuilt(weights), inputs))

    _require_rows(outputs, named, kept[0], likelihood)
    _require_apart(outputs, named, [inputs for inputs, _ in kept])

    def log_likelihood(weights: Any, rows: tuple[jax.Array, jax.Array]) -> jax.Array:
        inputs, targets = rows
        found = outputs(weights, inputs)
        if likelihood == "categorical":
            return jnp.take_along_axis(jax.nn.log_softmax(found), targets[:, None], 1)[:, 0]
        squares = ((targets - found) / noise) ** 2
        return -0.5 * squares.reshape(len(targets), -1).sum(1)

    def log_prior(weights: Any) -> jax.Array:
        return -0.5 / prior_scale**2 * sum((jnp.sum(leaf**2) for leaf in jax.tree.leaves(weights)), jnp.zeros(()))

    outcomes = _outcomes(outputs, likelihood, noise)
    return Problem(log_likelihood, log_prior, lambda key: named, kept, name=name, outcomes=outcomes)


def _outcomes(outputs: Callable[[Any, Any], jax.Array], likelihood: Likelihood, noise: float) -> Outcomes:
    """What the function says about targets. Rows are pairs as in the shards, or inputs alone."""

    def expected(weights: Any, rows: Any) -> dict[str, jax.Array]:
        found = outputs(weights, _inputs(rows))
        return {"target": jax.nn.softmax(found) if likelihood == "categorical" else found}

    def simulate(key: jax.Array, weights: Any, rows: Any) -> dict[str, jax.Array]:
        found = outputs(weights, _inputs(rows))
        if likelihood == "categorical":
            return {"target": jax.random.categorical(key, found)}
        return {"target": found + noise * jax.random.normal(key, found.shape, found.dtype)}

    kind = "class" if likelihood == "categorical" else "number"
    return Outcomes({"target": kind}, expected, simulate, _targets)


def _inputs(rows: Any) -> Any:
    return rows[0] if isinstance(rows, tuple | list) else rows


def _targets(rows: Any) -> dict[str, Any]:
    if not (isinstance(rows, tuple | list) and len(rows) == 2):
        raise InputError("the rows hold no targets: give them as the pair (inputs, targets)")
    return {"target": rows[1]}


def _pairs(shards: Sequence[Any], likelihood: str) -> list[tuple[Any, np.ndarray]]:
    found = []
    for agent, shard in enumerate(shards):
        if not (isinstance(shard, tuple | list) and len(shard) == 2):
            raise ProblemError(
                f"the shard of agent {agent} is a {type(shard).__name__}, expected the pair (inputs, targets)"
            )
        targets = np.asarray(shard[1])
        if likelihood == "categorical" and (targets.ndim != 1 or not np.issubdtype(targets.dtype, np.integer)):
            raise ProblemError(
                f"the targets of agent {agent} have dtype {targets.dtype} and shape {targets.shape}, expected class "
                'numbers, whole and of shape (rows,): convert them, or take likelihood="gaussian"'
            )
        found.append((jax.tree.map(np.asarray, shard[0]), targets))
    require_shards(found)
    return found


def _by_name(parameters: Any) -> tuple[dict[str, Any], Callable[[Any], Any]]:
    """Weights as dictionaries of dictionaries, by their places; and the function that gives them their form again."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(parameters)
    places = [[_word(step) for step in path] or ["w"] for path, _ in leaves]
    named: dict[str, Any] = {}
    for place, (_, leaf) in zip(places, leaves, strict=True):
        if not jnp.issubdtype(jnp.asarray(leaf).dtype, jnp.floating):
            raise ProblemError(
                f"weight {'.'.join(place)} has dtype {jnp.asarray(leaf).dtype}: weights must be floating-point; "
                "close over what is no weight"
            )
        within = named
        for word in place[:-1]:
            within = within.setdefault(word, {})
        within[place[-1]] = jnp.asarray(leaf)

    def rebuilt(weights: Any) -> Any:
        found = []
        for place in places:
            leaf = weights
            for word in place:
                leaf = leaf[word]
            found.append(leaf)
        return jax.tree.unflatten(structure, found)

    return named, rebuilt


def _word(step: Any) -> str:
    return jax.tree_util.keystr((step,), simple=True).replace(".", "_").replace("/", "_")


def _require_rows(outputs: Callable[[Any, Any], Any], weights: Any, shard: tuple[Any, Any], likelihood: str) -> None:
    """Check the shape of what comes out for a few rows, without computing it."""
    inputs, targets = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((_ROWS, *np.shape(leaf)[1:]), jax.dtypes.canonicalize_dtype(leaf.dtype)),
        shard,
    )
    try:
        shape = jax.eval_shape(outputs, weights, inputs).shape
    except ProblemError:
        raise
    except Exception as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else "no message"
        raise ProblemError(
            f"the function cannot be called with weights and {_ROWS} inputs: {type(error).__name__}: {first}"
        ) from error
    if likelihood == "categorical" and (len(shape) != 2 or shape[0] != _ROWS):
        raise ProblemError(f"outputs for {_ROWS} inputs have shape {shape}, expected logits ({_ROWS}, classes)")
    if likelihood == "gaussian" and shape != targets.shape:
        raise ProblemError(
            f"outputs for {_ROWS} inputs have shape {shape}, and targets {targets.shape}: give both the same shape"
        )


def _require_apart(outputs: Callable[[Any, Any], jax.Array], weights: Any, inputs: Sequence[Any]) -> None:
    """Check by a few rows that the output for one does not depend on the others, as by statistics of a batch."""
    rows, run = few_rows(inputs), jax.jit(outputs)
    alone = np.asarray(run(weights, jax.tree.map(lambda leaf: leaf[-1:], rows)))[0]
    together = np.asarray(run(weights, rows))[-1]
    if not np.allclose(alone, together, rtol=1e-3, atol=1e-3 * (1e-3 + np.abs(together).max()), equal_nan=True):
        raise ProblemError(
            "the output for a row changes with the other rows (statistics of a batch?): agents hold different rows, "
            "and the likelihood must be a product over them; use a normalisation within a row, or stored averages"
        )
