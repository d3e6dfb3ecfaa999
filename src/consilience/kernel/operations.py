"""What a function is made of, read from its operations without computing any."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
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
    """The same function of parameters and rows, with parameters as the first factor of each product with rows.

    A product has the axes of its first factor before those of its second. So for several chains, whose parameters
    differ and whose rows do not, rows stay the last and longest axis of all that follows, along which compilers
    vectorise; and tables that are stored with rows last are read as they lie. Only the outermost operations count.

    >>> import jax.numpy as jnp
    >>> product = parameters_first(lambda w, x: x @ w)
    >>> product(jnp.array([1.0, 2.0]), jnp.array([[3.0, 4.0], [5.0, 6.0]])).tolist()
    [11.0, 17.0]
    >>> made = jax.make_jaxpr(product)(jnp.zeros(3), jnp.zeros((5, 3)))
    >>> [variable.aval.shape for variable in made.eqns[0].invars]
    [(3,), (5, 3)]
    """

    def mirrored(parameters: Any, rows: Any) -> Any:
        made, shape = jax.make_jaxpr(function, return_shape=True)(parameters, rows)
        given = [*made.consts, *jax.tree.leaves((parameters, rows))]
        variables = [*made.jaxpr.constvars, *made.jaxpr.invars]
        values = dict(zip(variables, given, strict=True))
        first = len(made.consts)
        followers = set(variables[first : first + len(jax.tree.leaves(parameters))])  # what depends on the parameters

        def value(variable: Any) -> Any:
            return variable.val if isinstance(variable, Literal) else values[variable]

        for equation in made.jaxpr.eqns:
            inputs = [variable for variable in equation.invars if not isinstance(variable, Literal)]
            follows = followers.intersection(inputs)
            if equation.primitive.name == "dot_general" and follows == {equation.invars[1]}:
                found = [_mirrored(*map(value, equation.invars), **equation.params)]
            else:
                alone = made.jaxpr.replace(constvars=[], invars=inputs, outvars=equation.outvars, eqns=[equation])
                found = jaxpr_as_fun(ClosedJaxpr(alone, []))(*map(value, inputs))
            values.update(zip(equation.outvars, found, strict=True))
            if follows:
                followers.update(equation.outvars)
        return jax.tree.unflatten(jax.tree.structure(shape), [value(out) for out in made.jaxpr.outvars])

    return mirrored


def _mirrored(left: jax.Array, right: jax.Array, *, dimension_numbers: Any, **others: Any) -> jax.Array:
    """A product with its factors changed over, and its axes put back."""
    (left_summed, right_summed), (left_batch, right_batch) = dimension_numbers
    numbers = (right_summed, left_summed), (right_batch, left_batch)
    found = jax.lax.dot_general(right, left, numbers, **others)
    batch, of_right = len(left_batch), right.ndim - len(right_summed) - len(right_batch)
    return jnp.moveaxis(found, range(batch, batch + of_right), range(found.ndim - of_right, found.ndim))
