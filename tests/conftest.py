"""How programs are compiled in tests: quickly, where they do not run for long, and once for all processes of a run.

The compiled programs of one run of the tests are kept in a directory that is new and goes with it: nothing comes from
another machine or another day. XLA is told to be silent about what it loads from there, which on some processors
would be kilobytes for every program.
"""

import os
import tempfile

import pytest

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  # before JAX is loaded, here and in all processes that tests start


def pytest_configure(config):
    if not hasattr(config, "workerinput") and "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        config.compiled = tempfile.TemporaryDirectory(prefix="consilience-tests-")
        os.environ["JAX_COMPILATION_CACHE_DIR"] = config.compiled.name
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"


@pytest.fixture(scope="module", autouse=True)
def _compiled_quickly(request):
    """Most programs of tests take longer to optimise than to run, so they are not optimised in this process.

    A module with `OPTIMISED = True` samples for long, or holds what users run against the truth. Commands and nodes
    that tests start are always as users have them.
    """
    import jax

    optimised = getattr(request.module, "OPTIMISED", False)
    if optimised:
        jax.clear_caches()
    jax.config.update("jax_disable_most_optimizations", not optimised)
    yield
    if optimised:
        jax.clear_caches()
