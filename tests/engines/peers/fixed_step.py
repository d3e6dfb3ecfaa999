"""Samplers in unison at one step size from their first move on, by which engines and processors can be compared.

What a warm-up adapts to hangs on all that came before, so runs that round differently part sooner.
"""

import jax.numpy as jnp
import numpy as np

from consilience.engines import unison
from tests import hierarchical

STEP_SIZE = 0.3


def keep_step_size(patch=setattr):
    """Let programs that are made from now on adapt nothing."""
    start = unison.start

    def started(*arguments):
        state = start(*arguments)
        return state._replace(adaptation=state.adaptation._replace(step_size=jnp.asarray(STEP_SIZE)))

    patch(unison, "start", started)
    patch(unison, "adapted", lambda sampler, windows, step, state, facts, network: state)


def wards():
    """For the plan of nodes in processes of their own: they load it before they make their programs."""
    keep_step_size()
    return hierarchical.wards()


def assert_same_draws(run, simulated):
    """Their first draws are those of `simulate` but for rounding, which replicas of two engines do differently."""
    assert run.draws.sizes == simulated.draws.sizes
    for name in ("mean", "effect"):
        ours, theirs = (one.draws[name].to_numpy()[..., :10] for one in (run, simulated))
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6)
        assert theirs.std() > 0.01, "the chains move"
