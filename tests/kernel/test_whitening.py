"""Changes of coordinates: there and back, and the gradient along."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from consilience.kernel.whitening import MOST_DENSE, Dense, Diagonal, identity

AGENTS, SHARED, OWN = 3, 2, 2


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def dense(own=OWN):
    rng = np.random.default_rng(0)
    return Dense(
        rng.normal(size=SHARED), rng.normal(size=(SHARED, SHARED)), rng.normal(size=(AGENTS, own)),
        rng.normal(size=(AGENTS, own, own)), rng.normal(size=(AGENTS, own, SHARED)),
    )  # fmt: skip


def diagonal(own=OWN):
    rng = np.random.default_rng(1)
    return Diagonal(
        rng.normal(size=SHARED), rng.uniform(1, 2, SHARED), rng.normal(size=(AGENTS, own)),
        rng.uniform(1, 2, (AGENTS, own)),
    )  # fmt: skip


@pytest.mark.parametrize("own", [0, OWN])
@pytest.mark.parametrize("make", [dense, diagonal])
def test_there_and_back(make, own):
    whitening = make(own)
    u = np.random.default_rng(2).normal(size=(4, AGENTS, SHARED + own))
    np.testing.assert_allclose(whitening.coordinates(np.asarray(whitening.position(u))), u, atol=1e-10)


@pytest.mark.parametrize("own", [0, OWN])
@pytest.mark.parametrize("make", [dense, diagonal])
def test_the_gradient_is_that_of_the_composed_function(make, own):
    whitening = make(own)
    u = jnp.asarray(np.random.default_rng(3).normal(size=(1, AGENTS, SHARED + own)))

    def each(w):  # of every agent its own
        return jnp.sin(w).sum(-1) + (w[..., 0] * w[..., -1]) ** 2

    inside = jax.grad(lambda w: each(w).sum())(whitening.position(u))
    np.testing.assert_allclose(
        whitening.pulled_back(inside), jax.grad(lambda u: each(whitening.position(u)).sum())(u), atol=1e-10
    )


def test_large_models_get_scales_only():
    assert isinstance(identity(MOST_DENSE, 2, 0), Dense)
    assert isinstance(identity(MOST_DENSE + 1, 2, 0), Diagonal)
    assert isinstance(identity(3, 2, MOST_DENSE + 1), Diagonal)
