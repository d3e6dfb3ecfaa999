"""The engine against the exact Gaussian recursion, and known mistakes that these tests must catch.

4,000 independent chains give the mean and covariance of all agents. Each comparison has a false-alarm rate of 1e-6
(Bonferroni over entries); seeds are fixed.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import consilience as cs
from consilience.engines.simulate import Simulation
from consilience.theory import GaussianNetwork, Moments
from tests.engines.final_positions import final_positions
from tests.gaussian import regression
from tests.statistical import rejects_covariance, rejects_mean

OPTIMISED = True

FALLING = cs.dula(cs.Polynomial(scale=0.05, offset=3, exponent=0.6), cs.Polynomial(scale=0.25, exponent=0.05))
CASES = {
    "ring": (cs.graphs.ring(5), [6] * 5, {}),
    "one agent": (cs.graphs.ring(1), [12], {}),
    "unequal shards on a star": (cs.graphs.star(4), [3, 9, 1, 14], {}),
    "weighted edges": (cs.graphs.ring(4).with_weights([0.3, 1.2, 0.7, 0.5]), [5, 5, 5, 5], {}),
    "complete": (cs.graphs.complete(3), [4, 8, 2], {}),
    "bridge": (cs.graphs.barbell(5), [4] * 5, {}),
    "cold": (cs.graphs.path(3), [5, 6, 7], {"sampler": FALLING.model_copy(update={"temperature": 0.3})}),
    "double precision": (cs.graphs.path(3), [5, 6, 7], {"dtype": "float64"}),
    "minibatches": (cs.graphs.ring(3), [12, 30, 8], {"batch_size": 4, "batches": "replacement"}),
    "many features": (cs.graphs.ring(3), [12, 15, 8], {"features": 9}),
}
STEPS = 30
QUICK = ("ring", "unequal shards on a star", "weighted edges")


def compare(problem, graph, plan, engine=None):
    """Whether the mean, and whether the covariance, of the engine's agents contradicts the exact one."""
    positions = final_positions(problem, plan, engine)
    size = positions.shape[1]
    network = GaussianNetwork.of(problem, graph, with_rows=plan.batch_size is not None)
    start = Moments(np.zeros(size), np.zeros((size, size)))
    *_, exact = network.evolve(plan.sampler, start, plan.num_steps, plan.batch_size)
    return rejects_mean(positions, exact.mean), rejects_covariance(positions, exact.mean, exact.covariance)


def make_plan(graph, **changes):
    return cs.Plan(**{"graph": graph, "sampler": FALLING, "num_steps": STEPS, "num_chains": 4000, **changes})


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow(reason="4,000 chains of one more network")])
    for name in CASES
])  # fmt: skip
def test_mean_and_covariance_of_all_agents_are_exact(name):
    graph, sizes, changes = CASES[name]
    changes = dict(changes)
    problem = regression(sizes, changes.pop("features", 2), noise_variance=4.0)
    assert compare(problem, graph, make_plan(graph, **changes)) == (False, False)


@pytest.mark.slow(reason="4,000 chains with minibatches")
def test_shuffled_minibatches_have_the_exact_mean():
    """Rows with equal features make the batch noise additive, so the mean is exact for shuffled epochs too."""
    graph, problem = cs.graphs.ring(3), regression([12, 30, 8], identical_rows=True, noise_variance=20.0)
    plan = make_plan(graph, batch_size=5)
    positions = final_positions(problem, plan)
    start = Moments(np.zeros(6), np.zeros((6, 6)))
    *_, exact = GaussianNetwork.of(problem, graph).evolve(plan.sampler, start, STEPS)
    assert not rejects_mean(positions, exact.mean)


def test_noise_of_variance_one_instead_of_n_is_caught():
    graph, problem = cs.graphs.ring(5), regression([6] * 5, noise_variance=4.0)
    colder = FALLING.model_copy(update={"temperature": 1 / 5})
    plan = make_plan(graph)
    wrong = Simulation(problem, make_plan(graph, sampler=colder))
    mean, covariance = compare(problem, graph, plan, wrong)
    assert not mean
    assert covariance


def test_an_edge_used_by_one_end_only_is_caught():
    graph, problem = cs.graphs.ring(5), regression([6] * 5, noise_variance=4.0)
    plan = make_plan(graph)
    wrong = Simulation(problem, plan)
    laplacian = graph.laplacian.toarray()
    laplacian[0, 1], laplacian[0, 0] = 0, laplacian[0, 0] - 1
    wrong._disagreement = lambda message: jnp.asarray(laplacian, jnp.float32) @ message
    assert True in compare(problem, graph, plan, wrong)


def test_neighbours_mixed_in_place_are_caught():
    graph, problem = cs.graphs.ring(5), regression([6] * 5, noise_variance=4.0)
    plan = make_plan(graph)
    wrong = Simulation(problem, plan)

    def one_after_the_other(message):
        now = message
        for i in range(5):
            for j in ((i - 1) % 5, (i + 1) % 5):
                now = now.at[i].add(0.2 * (now[j] - now[i]))
        return (message - now) / 0.2

    wrong._disagreement = one_after_the_other
    assert True in compare(problem, graph, plan, wrong)


def test_a_prior_that_is_not_shared_out_is_caught():
    graph, problem = cs.graphs.ring(5), regression([6] * 5, noise_variance=4.0)
    plan = make_plan(graph)
    whole = cs.Problem(problem.log_likelihood, lambda w: 5 * problem.log_prior(w), problem.init, problem.shards)
    assert True in compare(problem, graph, plan, Simulation(whole, plan))


def test_a_minibatch_that_is_not_scaled_up_is_caught():
    graph, problem = cs.graphs.ring(3), regression([12, 30, 8], noise_variance=4.0)
    plan = make_plan(graph, batch_size=4, batches="replacement")
    wrong = Simulation(problem, plan)
    wrong._data.scale = jnp.ones(3)
    mean, covariance = compare(problem, graph, plan, wrong)
    assert mean
    assert covariance


def test_temperature_zero_is_gradient_descent_with_consensus():
    graph, problem = cs.graphs.ring(3), regression([6, 4, 5])
    cold = FALLING.model_copy(update={"temperature": 0.0})
    positions = final_positions(problem, make_plan(graph, sampler=cold, num_chains=2))
    start = Moments(np.zeros(6), np.zeros((6, 6)))
    *_, exact = GaussianNetwork.of(problem, graph).evolve(cold, start, STEPS)
    np.testing.assert_allclose(positions, np.tile(exact.mean, (2, 1)), rtol=1e-4, atol=1e-5)
    assert jax.numpy.abs(exact.covariance).max() == 0
