import jax
import jax.numpy as jnp
import numpy as np
import pytest

from consilience.kernel import quickly
from consilience.kernel.quickly import compiled_quickly, for_work


def start(key):
    return {"w": 0.3 * jax.random.normal(key, (50,)) + 1, "scale": jnp.exp(jax.random.normal(key, (7,)))}


def test_starts_are_those_of_optimised_programs():
    """To the bit where it was tried; another processor's XLA may round the last one elsewhere."""
    keys = jax.random.split(jax.random.key(0), 20)
    usual = jax.jit(jax.vmap(start)).lower(keys).compile({"xla_backend_optimization_level": 3})(keys)
    quick = compiled_quickly(jax.vmap(start), same_bits=True)(keys)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), usual, quick)


@pytest.mark.parametrize("work", [1, 1e12])
def test_numbers_are_the_same_up_to_rounding_and_inside_other_programs(work):
    function = for_work(work, lambda x: jnp.tanh(x) @ jnp.exp(-x))
    x = np.linspace(0, 2, 100, dtype=np.float32)
    assert float(function(x)) == pytest.approx(np.tanh(x) @ np.exp(-x), rel=1e-5)
    assert float(jax.jit(lambda x: function(2 * x))(x / 2)) == pytest.approx(np.tanh(x) @ np.exp(-x), rel=1e-5)


def test_an_xla_that_does_not_know_the_options_compiles_as_usual(monkeypatch):
    monkeypatch.setattr(quickly, "_OPTIONS", {"xla_cpu_something_of_another_time": True})
    assert float(compiled_quickly(lambda x: x + 1)(1.0)) == 2.0


def test_a_mistake_of_the_function_is_told_as_it_is():
    with pytest.raises(TypeError, match="dot"):
        compiled_quickly(lambda x: x @ jnp.ones(3))(jnp.ones(4))
