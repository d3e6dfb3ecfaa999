import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from consilience.kernel.noise import noise_of_steps, normals, quantile
from consilience.kernel.randomness import Purpose, agent_keys, threefry

FALSE_ALARM = 1e-4


def noise(step, keys, count, size, dtype, first=0, common=None, num_shared=0):
    """`(count, *keys.shape, size)` from one program."""
    made = jax.jit(
        lambda keys, common, first: noise_of_steps(keys, common, num_shared, count, size, dtype, first)(step)
    )(keys, common, first)
    return made.reshape(count, *keys.shape, size)


@pytest.mark.parametrize("size", [4, 300])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_noise_does_not_depend_on_what_else_is_drawn(dtype, size):
    """Nor on how steps, agents and parameters are cut: rows of several steps, of one, and slices of a vector."""
    with jax.enable_x64(dtype == "float64"):
        keys = agent_keys(0, Purpose.NOISE, np.arange(2), np.arange(3))
        whole = noise(5, keys, 300, size, dtype)
        assert whole.dtype == dtype
        np.testing.assert_allclose(normals(keys[1, 2], 11, size, dtype), whole[6, 1, 2], rtol=1e-6)
        np.testing.assert_allclose(noise(8, keys[:, 1:], 7, size, dtype), whole[3:10, :, 1:], rtol=1e-6)
        np.testing.assert_allclose(noise(5, keys, 2, size - 3, dtype, first=3), whole[:2, ..., 3:], rtol=1e-6)


@pytest.mark.parametrize("size", [4, 300])
def test_agents_share_the_noise_of_shared_parameters(size):
    own, common = (
        agent_keys(0, purpose, np.arange(2), agents)
        for purpose, agents in ((Purpose.NOISE, np.arange(3)), (Purpose.COMMON_NOISE, np.zeros(3, int)))
    )
    both = noise(7, own, 5, size, "float32", common=common, num_shared=3)
    for keys, entries in ((common, slice(3)), (own, slice(3, None))):
        expected = noise(7, keys, 5, size, "float32")[..., entries]
        np.testing.assert_allclose(both[..., entries], expected, rtol=1e-6)
    assert (both[:, :, :1, :3] == both[:, :, 1:, :3]).all()
    assert not (both[:, :, 0, 3:] == both[:, :, 1, 3:]).any()


def test_a_number_is_the_quantile_of_a_hash():
    """The definition, without layouts: of the hash of the counter `(step, place)`, in double precision."""
    key = agent_keys(0, Purpose.NOISE, [0], [0])[0, 0]
    words, place = jax.random.key_data(key), jnp.arange(1000, dtype=jnp.uint32)
    high, _ = jax.jit(threefry)(words[0], words[1], jnp.full_like(place, 17), place)
    expected = special.ndtri(((np.asarray(high) >> 8) + 0.5) / 2**24)
    np.testing.assert_allclose(normals(key, 17, 1000, "float32"), expected, rtol=5e-7)


def test_quantiles_are_those_of_the_normal_law():
    """At all ends of the 2^24 numbers that a hash can give, and at every 97th between them."""
    number = np.unique(np.concatenate([np.arange(0, 2**23, 97), np.arange(5000), 2**23 - 1 - np.arange(5000)]))
    below = (number + 0.5) / 2**24
    u = (2 * below - 1).astype(np.float32)
    assert (u == 2 * below - 1).all()
    expected = special.ndtri(below)
    found = jax.jit(quantile)(np.stack([u, -u]))
    np.testing.assert_allclose(found, [expected, -expected], rtol=5e-7)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_noise_is_normal_and_uncorrelated(dtype):
    """Kolmogorov–Smirnov and correlation tests, each with a false-alarm rate of 1e-4."""
    with jax.enable_x64(dtype == "float64"):
        keys = agent_keys(1, Purpose.NOISE, np.arange(2), np.arange(10))
        drawn = np.asarray(noise(0, keys, 6000, 3, dtype), float)
    assert stats.kstest(drawn.ravel(), "norm").pvalue > FALSE_ALARM
    assert stats.kstest(1.02 * drawn.ravel(), "norm").pvalue < FALSE_ALARM  # the control: 2 % too wide
    pairs = {
        "chains": (drawn[:, 0], drawn[:, 1]),
        "agents": (drawn[:, :, :-1], drawn[:, :, 1:]),
        "steps": (drawn[:-1], drawn[1:]),
        "entries": (drawn[..., :-1], drawn[..., 1:]),
    }
    for name, (first, second) in pairs.items():
        assert stats.pearsonr(first.ravel(), second.ravel()).pvalue > FALSE_ALARM, name
