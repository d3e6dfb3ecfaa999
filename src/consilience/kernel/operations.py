"""What a function is made of, read from its operations without computing any."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun

_PRODUCTS = {"dot_general", "conv_general_dilated"}


def multiplies_matrices(function: Callable[..., Any], *shapes: Any) -> bool:
    """Whether a function of arrays with such shapes has a product of vectors or matrices in it.

    >>> row = jax.ShapeDtypeStruct((1, 3), "float32")
    >>> multiplies_matrices(lambda w, x: x @ w, jax.ShapeDtypeStruct((3,), "float32"), row)
    True
    >>> multiplies_matrices(lambda w, x: (w - x) ** 2, jax.ShapeDtypeStruct((), "float32"), row)
    False
    """
    return any(name in _PRODUCTS for name in _names(jax.make_jaxpr(function)(*shapes).jaxpr))


def _names(jaxpr: Any) -> Iterator[str]:
    """The names of all operations, those inside others too."""
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for inside in jax.tree.leaves(list(equation.params.values()), is_leaf=_has_equations):
            if _has_equations(inside):
                yield from _names(getattr(inside, "jaxpr", inside))


def _has_equations(value: Any) -> bool:
    return hasattr(value, "eqns") or hasattr(getattr(value, "jaxpr", None), "eqns")


def parameters_first(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function of parameters and rows, written for fast gradients of many chains.

    Products of rows with parameters have the parameters as their first factor. A product has the axes of its first
    factor before those of its second: so for several chains, whose parameters differ and whose rows do not, rows stay
    the last and longest axis of all that follows, along which compilers vectorise; and tables that are stored with
    rows last are read as they lie. The derivative of `logaddexp` is a sigmoid, for which the value is not needed.
    Operations inside loops and branches stay as they are. What comes of it is differentiated in reverse only.

    >>> product = parameters_first(lambda w, x: x @ w)
    >>> product(jnp.array([1.0, 2.0]), jnp.array([[3.0, 4.0], [5.0, 6.0]])).tolist()
    [11.0, 17.0]
    """

    def rewritten(parameters: Any, rows: Any) -> Any:
        made, shape = jax.make_jaxpr(function, return_shape=True)(parameters, rows)
        given = jax.tree.leaves((parameters, rows))
        first = len(jax.tree.leaves(parameters))
        found, _ = _rewritten(made, given, [place < first for place in range(len(given))])
        return jax.tree.unflatten(jax.tree.structure(shape), found)

    return rewritten


def _rewritten(made: ClosedJaxpr, given: list[Any], follow: list[bool]) -> tuple[list[Any], list[bool]]:
    """What operations give for arguments, of which some follow from parameters; and which results do."""
    jaxpr = made.jaxpr
    values = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*made.consts, *given], strict=True))
    followers = {variable for variable, follows in zip(jaxpr.invars, follow, strict=True) if follows}

    def value(variable: Any) -> Any:
        return variable.val if isinstance(variable, Literal) else values[variable]

    for equation in jaxpr.eqns:
        arguments = [value(variable) for variable in equation.invars]
        inside = [not isinstance(variable, Literal) and variable in followers for variable in equation.invars]
        after = [any(inside)] * len(equation.outvars)
        if equation.primitive.name == "dot_general" and inside == [False, True]:
            found = [_mirrored(*arguments, **equation.params)]
        elif equation.primitive.name in ("jit", "pjit"):
            found, after = _rewritten(equation.params["jaxpr"], arguments, inside)
        elif _is_logaddexp(equation):
            found = [logaddexp(*arguments)]
        else:
            inputs = dict.fromkeys(one for one in equation.invars if not isinstance(one, Literal))
            alone = jaxpr.replace(
                constvars=[], invars=list(inputs), outvars=equation.outvars, eqns=[equation],
                debug_info=jaxpr.debug_info.with_unknown_names(),
            )  # fmt: skip
            found = jaxpr_as_fun(ClosedJaxpr(alone, []))(*map(value, inputs))
        values.update(zip(equation.outvars, found, strict=True))
        followers.update(variable for variable, follows in zip(equation.outvars, after, strict=True) if follows)
    return [value(out) for out in jaxpr.outvars], [
        not isinstance(out, Literal) and out in followers for out in jaxpr.outvars
    ]


@jax.custom_jvp
def logaddexp(a: jax.Array, b: jax.Array) -> jax.Array:
    """`log(e^a + e^b)` whose derivatives are sigmoids of the difference."""
    return jnp.logaddexp(a, b)


@logaddexp.defjvp
def _(primals: Any, tangents: Any) -> Any:
    a, b = primals
    of_a, of_b = (
        jax.nn.sigmoid(difference) * tangent for difference, tangent in zip((a - b, b - a), tangents, strict=True)
    )
    return logaddexp(a, b), of_a + of_b


def _is_logaddexp(equation: Any) -> bool:
    """Whether an operation is JAX's function of that name, told by what it is made of."""
    inside = equation.params.get("call_jaxpr")
    if equation.primitive.name != "custom_jvp_call" or len(equation.invars) != 2:
        return False
    known = jax.make_jaxpr(jnp.logaddexp)(*inside.in_avals).eqns[-1]
    return str(known.params.get("call_jaxpr")) == str(inside)


def _mirrored(rows: jax.Array, parameters: jax.Array, *, dimension_numbers: Any, **others: Any) -> jax.Array:
    """A product with its factors changed over, and its axes put back; in the gradient of it rows come first."""
    (rows_summed, summed), (rows_batch, batch) = dimension_numbers
    num_batch = len(batch)
    rows_free = [axis for axis in range(rows.ndim) if axis not in (*rows_summed, *rows_batch)]
    free = [axis for axis in range(parameters.ndim) if axis not in (*summed, *batch)]

    def product(rows: jax.Array, parameters: jax.Array) -> jax.Array:
        found = jax.lax.dot_general(parameters, rows, ((summed, rows_summed), (batch, rows_batch)), **others)
        return jnp.moveaxis(found, range(num_batch, num_batch + len(free)), range(found.ndim - len(free), found.ndim))

    def pulled_back(rows: jax.Array, slope: jax.Array) -> tuple[None, jax.Array]:
        of_rows = range(num_batch, num_batch + len(rows_free))
        numbers = (rows_free, of_rows), (rows_batch, range(num_batch))
        found = jax.lax.dot_general(rows, slope, numbers, precision=others.get("precision"))
        order = [*batch, *(summed[rows_summed.index(axis)] for axis in sorted(rows_summed)), *free]
        return None, jnp.transpose(found, np.argsort(order).tolist()).astype(parameters.dtype)

    with_rule = jax.custom_vjp(product)
    with_rule.defvjp(lambda rows, parameters: (product(rows, parameters), rows), pulled_back)
    return with_rule(rows, parameters)
