"""What is chosen where nobody says anything."""

import jax.numpy as jnp
import numpy as np

import consilience as cs
from consilience.planning.defaults import MOST_SHARED, default_plan
from tests.gaussian import regression
from tests.hierarchical import sites


def test_nuts_until_it_has_converged_and_hmc_with_private_parameters():
    plan = default_plan(regression([3, 4]), cs.graphs.path(2))
    assert (plan.sampler, plan.num_chains, plan.num_warmup, plan.dtype) == (cs.nuts(), 4, 1000, "float64")
    assert plan.stops_itself
    assert default_plan(sites([3, 4]), cs.graphs.path(2)).sampler == cs.hmc()


def test_a_model_with_too_many_shared_parameters_is_sampled_by_gossip():
    def of_size(shared, **entries):
        return cs.Problem(
            log_likelihood=lambda p, x: x, log_prior=lambda p: 0.0, shards=[np.ones(2)] * 2,
            init=lambda key: {"w": jnp.zeros(shared), "z": jnp.zeros(3000)}, **entries,
        )  # fmt: skip

    plan = default_plan(of_size(1000), cs.graphs.path(2))
    assert (plan.sampler, plan.stops_itself) == (cs.kinetic(), True)
    own = {"private": ("z",), "log_private": lambda p: 0.0}
    assert default_plan(of_size(MOST_SHARED, **own), cs.graphs.path(2)).sampler == cs.hmc()
    assert default_plan(of_size(MOST_SHARED + 1, **own), cs.graphs.path(2)).sampler == cs.kinetic()
