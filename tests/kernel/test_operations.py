"""Products of matrices are found wherever they stand in a model."""

import jax
import jax.numpy as jnp
import pytest

from consilience.kernel.operations import multiplies_matrices

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
