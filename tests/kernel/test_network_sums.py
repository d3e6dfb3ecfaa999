"""What samplers in unison see of the network: the pooled log-density and its gradient, or that there is none."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from consilience import graphs
from consilience.kernel.fixed_point import Grid
from consilience.kernel.gradients import network_potentials
from consilience.kernel.network_sums import NetworkSums
from consilience.kernel.parameters import Parameters
from consilience.kernel.rows import Rows
from consilience.plans import Plan
from consilience.samplers import nuts
from tests.gaussian import regression
from tests.hierarchical import NOISE, PRIOR, SPREAD, sites

GRID = Grid(jnp.int32(30), jnp.int32(30))


@pytest.fixture(autouse=True)
def _double_precision():
    with jax.enable_x64(True):
        yield


class Compiled(NetworkSums):
    """As in a program: operation by operation it would take seconds."""

    def evaluate(self, grid, shared, private, ride):
        return jax.jit(lambda *arrays: NetworkSums.evaluate(self, *arrays, ride))(grid, shared, private)

    def measure(self, shared, private):
        return jax.jit(lambda *arrays: NetworkSums.measure(self, *arrays))(shared, private)


def nothing(own_gradient):
    return own_gradient[:, :0]


def network_of(problem, total=lambda words: words):
    parameters = Parameters.of(problem, np.float64)
    plan = Plan(graph=graphs.complete(problem.num_agents), sampler=nuts(), num_draws=4)
    rows = Rows(problem, plan, jnp.float64)
    potentials, (shards, *others) = rows.evaluated(network_potentials(problem, parameters)), rows.arrays
    agents = jnp.arange(problem.num_agents)
    own = jnp.ones((problem.num_agents, parameters.size - parameters.num_shared))
    return Compiled(
        lambda positions: potentials(positions, rows.used(shards), *others, False), parameters.num_shared,
        problem.num_agents, total, agents, own,
    )  # fmt: skip


def made_up(function, num_agents=3, size=2):
    """A network whose agents have the potentials `function(agent, position)`."""
    each = jax.vmap(jax.vmap(jax.value_and_grad(function, 1), (0, 0)), (None, 0))
    agents = jnp.arange(num_agents)
    return Compiled(
        lambda positions: each(agents, positions), size, num_agents, lambda words: words, agents,
        jnp.ones((num_agents, 0)),
    )  # fmt: skip


def empty(num_agents=3):
    return jnp.zeros((num_agents, 0))


def pooled_regression(problem):
    features, targets = (np.concatenate([shard[i] for shard in problem.shards]).astype(float) for i in (0, 1))
    return lambda w, share=1.0: -0.5 * jnp.sum((targets - features @ w) ** 2) - 0.5 * share * w @ w


def test_value_and_gradient_are_those_of_the_pooled_data():
    problem = regression([3, 30, 11], num_features=3)
    network, pooled = network_of(problem), pooled_regression(problem)
    w = jnp.array([0.3, -1.2, 0.7])
    found = network.evaluate(GRID, w, empty(), nothing)
    value, gradient = jax.value_and_grad(pooled)(w)
    assert float(found.log_density) == pytest.approx(float(value), abs=1e-6)
    np.testing.assert_allclose(found.gradient, gradient, atol=1e-6)
    wrong = jax.grad(pooled)(w, 3.0)
    assert np.abs(np.asarray(found.gradient) - wrong).max() > 1, "the control: a prior at every agent"


def test_private_parameters_count_at_their_agent_and_their_gradients_stay_there():
    problem = sites([3, 9, 5])
    mean, effects = jnp.array([0.4]), jnp.array([[0.5], [-1.0], [0.2]])

    def pooled(mean, effects):
        rows = sum(jnp.sum((x.astype(float) - mean[0] - effects[i, 0]) ** 2) for i, x in enumerate(problem.shards))
        return -0.5 * (rows / NOISE + mean[0] ** 2 / PRIOR + (effects**2).sum() / SPREAD)

    found = network_of(problem).evaluate(GRID, mean, effects, lambda slopes: jnp.concatenate([slopes, 2 * slopes], 1))
    slope, own = jax.grad(pooled, (0, 1))(mean, effects)
    assert float(found.log_density) == pytest.approx(float(pooled(mean, effects)), abs=1e-6)
    np.testing.assert_allclose(found.gradient, slope, atol=1e-6)
    np.testing.assert_allclose(found.own_gradient, own, atol=1e-6)
    np.testing.assert_allclose(found.carried, [-own.sum(), -2 * own.sum()], atol=1e-6)


def test_parts_of_the_network_add_to_the_same_words():
    """Of any agents that are together in a process, the words add up to those of all in one."""
    problem = regression([3, 30, 11], num_features=3)

    def words_of(places):
        said = []
        network = network_of(problem.of_agents(places), lambda words: said.append(words) or words)
        object.__setattr__(network, "num_agents", 3)

        def words(position):
            NetworkSums.evaluate(network, GRID, position, empty(len(places)), nothing)
            return said[0]

        return np.asarray(jax.jit(words)(jnp.array([0.3, -1.2, 0.7])))

    whole = words_of([0, 1, 2])
    with np.errstate(over="ignore"):
        assert (words_of([0, 2]) + words_of([1]) == whole).all()
        assert (words_of([0]) + words_of([1]) + words_of([2]) == whole).all()


def at_one_agent(agent, position):
    """Not a number at agent 1, where the first coordinate is beyond 1."""
    bad = (agent == 1) & (position[0] > 1)
    return jnp.where(bad, jnp.nan, 0.5 * position @ position)


def test_a_value_that_is_none_at_one_agent_ends_its_chain_and_no_other():
    network = made_up(at_one_agent)
    positions = jnp.array([[0.5, 1.0], [1.5, 1.0], [-2.0, 0.0]])
    found = jax.vmap(lambda w: network.evaluate(GRID, w, empty(), nothing))(positions)
    np.testing.assert_allclose(found.log_density, [-1.5 * 1.25, -np.inf, -6.0], atol=1e-6)
    assert (found.gradient[1] == 0).all()
    np.testing.assert_allclose(found.gradient[0], -3 * positions[0], atol=1e-6)


@pytest.mark.parametrize("places", [[0], [0, 1], [0, 1, 2]])
@pytest.mark.parametrize("signs", [[1.0, 1.0, 1.0], [1.0, -1.0, 1.0]])
def test_what_does_not_fit_at_several_agents_does_not_cancel(places, signs):
    factors = jnp.array([signs[i] * 1e30 if i in places else 1.0 for i in range(3)])
    found = made_up(lambda agent, w: factors[agent] * w @ w).evaluate(GRID, jnp.ones(2), empty(), nothing)
    assert float(found.log_density) == -np.inf
    assert (found.gradient == 0).all()


def test_values_that_each_fit_a_word_and_together_would_not_are_caught():
    """Three potentials of 0.4 · 2^63 units: as integers their sum has the wrong sign."""
    each = 0.4 * 2.0**33
    network = made_up(lambda agent, w: each + 0.0 * w.sum())
    assert float(network.evaluate(GRID, jnp.ones(2), empty(), nothing).log_density) == -np.inf
    alone = made_up(lambda agent, w: each + 0.0 * w.sum(), num_agents=1)
    assert float(alone.evaluate(GRID, jnp.ones(2), empty(1), nothing).log_density) == pytest.approx(-each)


def test_measuring_finds_a_grid_on_which_everything_fits_and_the_chains_with_no_value():
    network = made_up(lambda agent, w: at_one_agent(agent, w) * 1e12**agent)
    grid, bad = network.measure(jnp.array([[0.5, 1.0], [1.5, 1.0]]), jnp.zeros((2, 3, 0)))
    assert bad.tolist() == [False, True]
    found = network.evaluate(grid, jnp.array([0.9, -60.0]), empty(), nothing)
    assert float(found.log_density) == pytest.approx(-0.5 * (0.81 + 3600) * (1 + 1e12 + 1e24), rel=1e-9)
    too_coarse = network.evaluate(GRID, jnp.array([0.5, 1.0]), empty(), nothing)
    assert float(too_coarse.log_density) == -np.inf, "the control: not any grid will do"


def test_a_start_where_everything_is_nought_does_not_forbid_all_other_places():
    """A flat place says nothing about how large values will be."""
    network = made_up(lambda agent, w: jnp.sum(jnp.maximum(jnp.abs(w) - 1, 0) ** 2))
    grid, bad = network.measure(jnp.zeros((1, 2)), jnp.zeros((1, 3, 0)))
    assert not bad.any()
    found = network.evaluate(grid, jnp.array([3.0, 0.0]), empty(), nothing)
    assert float(found.log_density) == pytest.approx(-12.0)


def test_all_adopt_the_root_agents_numbers_to_the_bit():
    values = jnp.array([[1.0, 2.0], [-0.0, np.pi], [3.0, 1e-310]])
    network = made_up(lambda agent, w: w.sum())
    for root in range(3):
        object.__setattr__(network, "root", root)
        assert np.asarray(network.adopt(values)).tobytes() == np.asarray(values[root]).tobytes()
