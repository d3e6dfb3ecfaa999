"""A convolution with a pool against JAX's own: numbers, gradients, ties."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from consilience.errors import ProblemError
from consilience.models.convolutions import _largest, convolve_and_pool, in_blocks

RNG = np.random.default_rng(0)


def by_jax(weight, images, size):
    """Pooled images `(batch, filters, height, width)` of images `(batch, height, width, channels)`."""
    kernel = weight.reshape(len(weight), -1, size, size)
    values = jax.lax.conv_general_dilated(jnp.moveaxis(images, 3, 1), kernel, (1, 1), "VALID")
    return jax.lax.reduce_window(values, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")


def whole(blocks):
    """Blocks as images `(batch, channels, height, width)`."""
    side, _, channels, height, width, batch = blocks.shape
    return blocks.transpose(5, 2, 3, 0, 4, 1).reshape(batch, channels, height * side, width * side)


@pytest.mark.parametrize(("side", "size", "height", "width", "channels"), [
    (4, 5, 16, 12, 1), (2, 5, 10, 8, 3), (2, 3, 6, 8, 2), (4, 9, 16, 20, 1),
])  # fmt: skip
def test_numbers_and_gradients_are_those_of_a_convolution_and_a_pool(side, size, height, width, channels):
    with jax.enable_x64(True):
        weight, images = RNG.normal(size=(3, channels * size**2)), RNG.normal(size=(2, height, width, channels))
        shape = (2, 3, (height - size + 1) // 2, (width - size + 1) // 2)
        cotangent = RNG.normal(size=shape)

        def ours(weight, images):
            return whole(convolve_and_pool(weight, in_blocks(images, side)))

        assert ours(weight, images).shape == shape
        np.testing.assert_allclose(ours(weight, images), by_jax(weight, images, size), rtol=1e-12, atol=1e-12)
        found, expected = (
            jax.jit(jax.grad(lambda *at, f=f: (f(*at) * cotangent).sum(), (0, 1)))(weight, images)
            for f in (ours, lambda weight, images: by_jax(weight, images, size))
        )
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-12)


def test_a_largest_whose_gradient_counts_ties_more_than_once_would_be_caught():
    """The control: where all four are equal, the gradient must be that of the first, and of it alone."""
    flat = jnp.ones((4, 3))
    np.testing.assert_array_equal(jax.grad(lambda x: _largest(x).sum())(flat), np.eye(4)[:, :1] * np.ones(3))
    later = jnp.array([[0.0, 1], [2, 1], [2, 0], [1, 1]])
    np.testing.assert_array_equal(jax.grad(lambda x: _largest(x).sum())(later), [[0, 1], [1, 0], [0, 0], [0, 0]])

    def counting_ties(x):
        return jnp.where(x == jax.lax.stop_gradient(_largest(x)), x, 0).sum()

    assert jax.grad(counting_ties)(flat).sum() == 12  # four times too much


def test_blocks_that_do_not_fit_are_refused():
    with pytest.raises(ProblemError, match="30 x 32 cannot be cut into blocks of 4 x 4"):
        in_blocks(jnp.zeros((1, 30, 32)), 4)
    with pytest.raises(
        ProblemError, match="3 x 3 and a pool need blocks of an even side that divides 2, not of 4 x 4"
    ):
        convolve_and_pool(jnp.zeros((2, 9)), in_blocks(jnp.zeros((1, 32, 32)), 4))
    with pytest.raises(ProblemError, match="even side"):
        convolve_and_pool(jnp.zeros((2, 25)), in_blocks(jnp.zeros((1, 32, 32)), 1))
