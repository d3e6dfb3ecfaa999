"""Exact sums: what fits, what does not, and on which grid."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from consilience.kernel.fixed_point import from_words, grid_exponent, magnitude_counts, to_words


@pytest.fixture(autouse=True)
def _double_precision():
    with jax.enable_x64(True):
        yield


COUNTED = jax.jit(magnitude_counts)


@jax.jit
def _exact_sum(values, exponent):
    words, fit = to_words(values, exponent, len(values))
    return from_words(words.sum(0), exponent), fit.all()


def exact_sum(values, exponent):
    """The sum over agents of numbers `(agents, k)`, and whether all of them fit."""
    found, fit = _exact_sum(values, exponent)
    return np.asarray(found), bool(fit)


def test_the_sum_is_right_to_n_half_units_whatever_the_order():
    values = np.random.default_rng(0).normal(size=(7, 50)) * 10.0 ** np.arange(-3, 4)[:, None]
    found, fit = exact_sum(values, 30)
    assert fit
    assert np.abs(found - values.sum(0)).max() <= 7 * 2.0**-31 + 1e-12
    orders = [np.random.default_rng(seed).permutation(7) for seed in range(20)]
    assert all((exact_sum(values[order], 30)[0] == found).all() for order in orders)

    def one_after_the_other(order):
        total = np.zeros(50)
        for agent in order:
            total = total + values[agent]
        return total

    plain = [one_after_the_other(order) for order in orders]
    assert any((one != plain[0]).any() for one in plain), (
        "the control: sums of floating-point numbers do depend on it"
    )


@pytest.mark.parametrize("num_agents", [2, 3, 7, 1000])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_what_fits_at_every_agent_fits_in_the_sum(num_agents, sign):
    largest = np.nextafter(2.0**63 / num_agents, 0)
    words, fit = to_words(jnp.full(num_agents, sign * largest), 0, num_agents)
    assert fit.all()
    assert float(words.sum()) == pytest.approx(sign * num_agents * largest)
    assert not to_words(jnp.array([sign * 2.0**63 / num_agents]), 0, num_agents)[1].any()


def test_numbers_that_fit_one_by_one_and_not_together_are_told():
    """The control: as if each were alone, the sum wraps round to another sign without a word."""
    values = jnp.full(3, 0.4 * 2.0**63)
    words, fit = to_words(values, 0, 1)
    assert fit.all()
    assert float(words.sum()) < 0
    assert not to_words(values, 0, 3)[1].any()


def test_what_is_no_number_does_not_fit_and_travels_as_nothing():
    words, fit = to_words(jnp.array([jnp.nan, jnp.inf, -jnp.inf, 1.0]), 10, 2)
    assert fit.tolist() == [False, False, False, True]
    assert words.tolist() == [0, 0, 0, 1024]


@pytest.mark.parametrize("num_agents", [1, 2, 5, 64, 65])
@pytest.mark.parametrize("largest", [1e-20, 0.3, 1.0, 7e8, 1e40])
def test_a_grid_leaves_sixteen_bits_to_grow_and_uses_the_rest(num_agents, largest):
    counts = sum(COUNTED(np.array([0.1 * largest, scale * largest])) for scale in (0.5, -1.0, 0.0))
    grid = grid_exponent(counts, num_agents)
    assert to_words(jnp.array([2.0**16 * largest]), grid, num_agents)[1].all()
    assert not to_words(jnp.array([2.0**19 * largest]), grid, num_agents)[1].any()


def test_the_grid_is_that_of_the_largest_number_of_anybody():
    counts = [magnitude_counts(jnp.array(values)) for values in ([1.0, -2.0], [1000.0], [jnp.nan, 3.0], [jnp.inf])]
    assert [int(count.sum()) for count in counts] == [1, 1, 1, 0]
    assert int(grid_exponent(sum(counts), 4)) == int(grid_exponent(magnitude_counts(jnp.array([1000.0])), 4))
    assert int(grid_exponent(sum(counts), 4)) == int(grid_exponent(sum(reversed(counts)), 4))


def test_where_all_is_nought_numbers_of_ordinary_size_fit():
    """A flat place says nothing about how large values will be."""
    nothing = magnitude_counts(jnp.zeros(3)) + magnitude_counts(jnp.zeros(0))
    assert to_words(jnp.array([1000.0]), grid_exponent(nothing, 5), 5)[1].all()
    assert to_words(jnp.array([2.0**25]), grid_exponent(nothing, 5, least=10), 5)[1].all()
