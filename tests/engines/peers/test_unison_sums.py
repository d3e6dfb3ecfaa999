"""What nodes in unison sum over the network: the pooled value and gradient, in the same bits whatever carries them.

Agents are threads joined in memory; each compiles its program once, and the tests change what is between them.
"""

from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import consilience as cs
from consilience.engines.peers.memory import MemoryNetwork
from consilience.engines.peers.moving import OverNetwork
from consilience.engines.peers.sums import Sums
from consilience.engines.peers.transport import Handlers
from consilience.engines.unison import OneProcess, Replicas
from tests.engines.peers.test_masks import masks_for
from tests.engines.peers.test_sums import GRAPHS
from tests.gaussian import regression
from tests.kernel.test_network_sums import pooled_regression

SIZES = [3, 30, 11, 6, 19]
POSITION = np.array([0.3, -1.2, 0.7])


def on_one_grid(network, position, at):
    """Value and gradient at a place, on the grid that suits a position; and how fine that is."""
    none = jnp.zeros((network.agents.shape[0], 0))
    grid, _ = network.measure(position[None], none[None])
    found = network.evaluate(grid, at, none, lambda slopes: slopes[:, :0])
    return found.log_density, found.gradient, grid.energy, grid.gradient


class Agent:
    """One agent's program for value and gradient at a position, on any sums."""

    def __init__(self, problem, plan, agent):
        self.agent, self.sums = agent, None
        with jax.enable_x64(True):
            replicas = Replicas(problem.of_agent(agent), plan, OverNetwork(agent, self.total), 0)

            self.held = replicas._held
            self.program = replicas.place.compiled(replicas._program(on_one_grid), *self.held, POSITION, POSITION)

    def total(self, words):
        return self.sums.total(words)

    def evaluate(self, at):
        with jax.enable_x64(True):
            self.sums.begin_draw(0, 0, b"state")
            return [np.asarray(one) for one in self.program(*self.held, POSITION, at)]


@pytest.fixture(scope="module")
def problem():
    return regression(SIZES, num_features=3)


@pytest.fixture(scope="module")
def agents(problem):
    plan = cs.Plan(graph=cs.graphs.path(5), sampler=cs.nuts(), num_draws=10)
    return [Agent(problem, plan, agent) for agent in range(5)]


def evaluated(agents, graph, algorithm="tree", masked=False, at=POSITION):
    """What each agent has after an evaluation over a network in memory."""
    network, masks = MemoryNetwork(), masks_for(graph) if masked else {}
    for agent in agents:
        sums = agent.sums = Sums(agent.agent, graph, "run", 2000, algorithm=algorithm, masks=masks.get(agent.agent))
        lines = sums.lines
        handlers = Handlers(lines.receive, lines.answer, lambda *_: None, lambda *_: None, lines.longest)
        sums.attach(network.connect(agent.agent, lines.neighbours)(handlers))
    with ThreadPoolExecutor(len(agents)) as threads:
        return [job.result(60) for job in [threads.submit(agent.evaluate, at) for agent in agents]]


@pytest.fixture(scope="module")
def on_a_path(agents):
    return evaluated(agents, GRAPHS["path"])[0]


@pytest.mark.parametrize("masked", [False, True], ids=["plain", "masked"])
@pytest.mark.parametrize("algorithm", ["tree", "flood"])
@pytest.mark.parametrize("graph", GRAPHS)
def test_all_agents_have_the_same_bits_on_every_graph(agents, on_a_path, graph, algorithm, masked):
    for value, gradient, *_ in evaluated(agents, GRAPHS[graph], algorithm, masked):
        assert value.tobytes() == on_a_path[0].tobytes()
        assert gradient.tobytes() == on_a_path[1].tobytes()


def pooled(problem, without=None, prior=1.0, factor=1.0):
    shards = [shard for agent, shard in enumerate(problem.shards) if agent != without]
    rows = cs.models.linear_regression(shards)
    with jax.enable_x64(True):
        value, gradient = jax.value_and_grad(lambda w: pooled_regression(rows)(w, prior))(jnp.asarray(POSITION))
        return np.array([float(value), *(factor * np.asarray(gradient))])


def test_value_and_gradient_are_the_pooled_ones(problem, on_a_path):
    """Agents all agree in what is wrong, too: so it is held against the pooled data, and what is wrong is told."""
    found = np.array([float(on_a_path[0]), *on_a_path[1]])
    np.testing.assert_allclose(found, pooled(problem), rtol=1e-9)
    wrong = {
        "an agent is forgotten": pooled(problem, without=0), "a prior at every agent": pooled(problem, prior=5.0),
        "gradients n times": pooled(problem, factor=5.0),
    }  # fmt: skip
    for name, values in wrong.items():
        assert not np.allclose(found, values, rtol=1e-3), name


def test_totals_are_within_grid_units_of_those_of_simulate(problem, on_a_path):
    """Programs of two engines round differently: each agent's part by a unit of the grid at most, at five agents."""
    plan = cs.Plan(graph=cs.graphs.path(5), sampler=cs.nuts(), num_draws=10)
    with jax.enable_x64(True):
        replicas = Replicas(problem, plan, OneProcess(5), 0)
        program = replicas.place.compiled(replicas._program(on_one_grid), *replicas._held, POSITION, POSITION)
        value, gradient, *grid = (np.asarray(one) for one in program(*replicas._held, POSITION, POSITION))
    assert [int(one) for one in on_a_path[2:]] == [int(one) for one in grid]
    units = 5 * 2.0 ** -np.array(grid, float)
    assert abs(value - on_a_path[0]) <= units[0]
    assert np.abs(gradient - on_a_path[1]).max() <= units[1]
    assert units.max() < 1e-6 * np.abs(gradient).max(), "the control: a grid unit is little"


@pytest.mark.parametrize("masked", [False, True], ids=["plain", "masked"])
def test_what_does_not_fit_at_two_agents_at_once_is_seen_by_all(problem, agents, on_a_path, masked):
    """Their words would wrap. Far out a value grows as the square of the distance, by each agent's rows."""
    squares = sorted(
        0.5 * float(((np.asarray(features, float) @ POSITION) ** 2).sum()) for features, _ in problem.shards
    )
    largest = 2.0 ** (63 - float(on_a_path[2])) / 5
    two, none = ((largest / level) ** 0.5 for level in ((squares[-2] * squares[-3]) ** 0.5, 100 * squares[-1]))
    for value, *_ in evaluated(agents, GRAPHS["path"], masked=masked, at=two * POSITION):
        assert value == -np.inf
    values = [float(found[0]) for found in evaluated(agents, GRAPHS["path"], masked=masked, at=none * POSITION)]
    assert values[0] == pytest.approx(-(none**2) * sum(squares), rel=0.05), "the control: where all fit"
    assert set(values) == {values[0]}
