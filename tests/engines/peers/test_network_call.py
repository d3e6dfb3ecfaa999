"""A compiled program that asks Python for a sum, both ways."""

import threading
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from consilience.engines.peers import network_call
from consilience.engines.peers.network_call import NetworkCall

BIG = 2**62 + 3


@pytest.fixture(params=["foreign", "callback"])
def alone(request):
    if request.param == "foreign" and not network_call.is_usable():
        pytest.skip("XLA has another interface here")
    return request.param == "foreign"


def compiled(call, function=None):
    with jax.enable_x64(True):
        one = jnp.zeros((2, 3), jnp.int64)
        return call.kept(jax.jit(function or jax.vmap(call)).lower(one).compile())


def test_chains_side_by_side_have_one_sum_with_all_bits(alone):
    sizes = []
    program = compiled(NetworkCall(lambda words: sizes.append(words.size) or words + np.uint64(1), alone))
    with jax.enable_x64(True):
        given = jnp.arange(6).reshape(2, 3) + BIG
        assert (np.asarray(program(given)) == np.asarray(given) + 1).all()
    assert sizes == [6]


def test_it_asks_in_every_turn_of_a_loop(alone):
    def loop(words):
        return jax.lax.fori_loop(0, 5, lambda _, now: jax.vmap(call)(now), words)

    call = NetworkCall(lambda words: words + np.uint64(1), alone)
    with jax.enable_x64(True):
        assert (np.asarray(compiled(call, loop)(jnp.zeros((2, 3), jnp.int64))) == 5).all()


def test_what_fails_ends_the_program(alone):
    def fails(words):
        raise KeyboardInterrupt("no sum")

    with jax.enable_x64(True), pytest.raises(Exception, match="no sum"):
        jax.block_until_ready(compiled(NetworkCall(fails, alone))(jnp.zeros((2, 3), jnp.int64)))


def test_programs_that_share_a_process_may_wait_for_each_other():
    count = 2 * jax.device_count() + 6
    together = threading.Barrier(count, timeout=60)

    def run(number):
        program = compiled(NetworkCall(lambda words: words + np.uint64(together.wait() < count), alone=False))
        with jax.enable_x64(True):
            return np.asarray(program(jnp.full((2, 3), number, jnp.int64)))

    with ThreadPoolExecutor(count) as threads:
        assert all((found == number + 1).all() for number, found in enumerate(threads.map(run, range(count))))
