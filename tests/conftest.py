"""How programs are compiled in tests: quickly, where they do not run for long."""

import pytest


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
