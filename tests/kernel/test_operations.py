"""Products of matrices are found wherever they stand in a model."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from consilience.kernel.operations import multiplies_matrices, parameters_first

W, X = jax.ShapeDtypeStruct((3,), "float32"), jax.ShapeDtypeStruct((1, 3), "float32")


def inside_a_loop(w, x):
    return jax.lax.scan(lambda total, row: (total + row @ w, None), 0.0, x)[0]


@pytest.mark.parametrize(
    "model",
    [
        lambda w, x: x @ w,
        lambda w, x: jnp.einsum("rp,p->r", x, w),
        lambda w, x: jax.nn.relu(jax.jit(lambda x: x @ w)(x)),
        inside_a_loop,
        lambda w, x: jax.lax.cond(w[0] > 0, lambda: x @ w, lambda: x[:, 0]),
    ],
    ids=["product", "einsum", "in a function", "in a loop", "in a branch"],
)
def test_a_product_is_found(model):
    assert multiplies_matrices(model, W, X)


def test_a_sum_of_products_entry_by_entry_is_none():
    assert not multiplies_matrices(lambda w, x: jax.nn.logsumexp(w * x, axis=1), W, X)


def test_a_function_with_parameters_first_has_the_same_values_and_gradients():
    """Products of vectors, matrices and stacks, nested ones, what has rules of its own, and what rows alone give."""

    def model(w, rows):
        x, y = rows
        hidden = jax.nn.softplus(x @ w["first"] + w["bias"])
        stacked = jnp.einsum("rk,skh->rsh", x, jnp.stack([w["first"], 2 * w["first"]]))
        inner = jax.jit(lambda x, w: jax.nn.log_sigmoid(x @ w) + jnp.logaddexp(x @ w, w[0]))(x, w["first"])
        of_rows = (x @ x.T).sum(1)
        turned = jnp.einsum("kpr,pk->r", jnp.stack([x.T, -x.T, x.T]), w["first"])
        batched = jnp.einsum("rk,rk->r", x, jnp.broadcast_to(w["vector"], x.shape))
        return (
            turned
            + y * (hidden @ w["second"])
            + stacked.sum((1, 2))
            + inner.sum(1) * of_rows
            + batched * w["bias"][0]
        )

    rng = np.random.default_rng(0)
    shapes = {"first": (2, 4, 3), "bias": (2, 3), "second": (2, 3), "vector": (2, 4)}
    w = {name: jnp.asarray(rng.normal(size=shape)) for name, shape in shapes.items()}
    rows = jnp.asarray(rng.normal(size=(6, 4))), jnp.asarray(rng.normal(size=6))
    for chain in range(2):
        own = jax.tree.map(lambda leaf, chain=chain: leaf[chain], w)
        np.testing.assert_allclose(parameters_first(model)(own, rows), model(own, rows), rtol=1e-5, atol=1e-5)
    found, expected = (
        jax.jit(jax.vmap(jax.grad(lambda w, function=function: function(w, rows).sum())))(w)
        for function in (parameters_first(model), model)
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), found, expected)


def test_the_derivative_of_logaddexp_needs_no_logarithm():
    def model(w, x):
        return -jnp.logaddexp(0.0, x @ w) + jax.nn.log_sigmoid(x @ w)

    w, x = jnp.array([0.5, -2.0, 40.0]), jnp.asarray(np.random.default_rng(0).normal(size=(50, 3)))
    found = jax.jit(jax.grad(lambda w: parameters_first(model)(w, x).sum()))
    np.testing.assert_allclose(found(w), jax.grad(lambda w: model(w, x).sum())(w), rtol=1e-5)
    assert "log" not in found.lower(w).compile().as_text().split("ENTRY")[1].replace("logistic", "")


def test_rows_stay_the_last_axis_of_many_chains():
    product = jax.vmap(parameters_first(lambda w, x: x @ w), (0, None))
    made = jax.make_jaxpr(product)(jnp.zeros((4, 3)), jnp.zeros((5, 3)))
    plain = jax.make_jaxpr(jax.vmap(lambda w, x: x @ w, (0, None)))(jnp.zeros((4, 3)), jnp.zeros((5, 3)))
    assert "f32[4,5] = dot_general" in str(made)
    assert "f32[5,4] = dot_general" in str(plain)
