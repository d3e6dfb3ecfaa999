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
from consilience.engines.peers.sums import Sums
from consilience.engines.peers.transport import Handlers
from consilience.engines.peers.unison_node import OverNetwork
from consilience.engines.unison import Replicas
from tests.engines.peers.test_masks import masks_for
from tests.engines.peers.test_sums import GRAPHS
from tests.gaussian import regression
from tests.kernel.test_network_sums import pooled_regression

SIZES = [3, 30, 11, 6, 19]
POSITION = np.array([0.3, -1.2, 0.7])


class Agent:
    """One agent's program for value and gradient at a position, on any sums."""

    def __init__(self, problem, plan, agent):
        self.agent, self.sums = agent, None
        with jax.enable_x64(True):
            replicas = Replicas(problem.of_agent(agent), plan, OverNetwork(agent, self.total), 0)

            def evaluate(network, position):
                none = jnp.zeros((1, 0))
                grid, _ = network.measure(position[None], none[None])
                found = network.evaluate(grid, position, none, lambda slopes: slopes[:, :0])
                return found.log_density, found.gradient

            self.held = replicas._held
            self.program = replicas.place.compiled(replicas._program(evaluate), *self.held, POSITION)

    def total(self, halves):
        own = np.ascontiguousarray(halves)
        return self.sums.total(own.reshape(-1).view(np.uint64)).view(np.uint32).reshape(own.shape)

    def evaluate(self):
        with jax.enable_x64(True):
            self.sums.begin_draw(0, 0, b"state")
            return [np.asarray(one) for one in self.program(*self.held, POSITION)]


@pytest.fixture(scope="module")
def problem():
    return regression(SIZES, num_features=3)


@pytest.fixture(scope="module")
def agents(problem):
    plan = cs.Plan(graph=cs.graphs.path(5), sampler=cs.nuts(), num_draws=10)
    return [Agent(problem, plan, agent) for agent in range(5)]


def evaluated(agents, graph, algorithm="tree", masked=False):
    """What each agent has after an evaluation over a network in memory."""
    network, masks = MemoryNetwork(), masks_for(graph) if masked else {}
    for agent in agents:
        sums = agent.sums = Sums(agent.agent, graph, "run", 2000, algorithm=algorithm, masks=masks.get(agent.agent))
        lines = sums.lines
        handlers = Handlers(lines.receive, lines.answer, lambda *_: None, lambda *_: None, lines.longest)
        sums.attach(network.connect(agent.agent, lines.neighbours)(handlers))
    with ThreadPoolExecutor(len(agents)) as threads:
        return [job.result(60) for job in [threads.submit(agent.evaluate) for agent in agents]]


@pytest.fixture(scope="module")
def on_a_path(agents):
    return evaluated(agents, GRAPHS["path"])[0]


@pytest.mark.parametrize("masked", [False, True], ids=["plain", "masked"])
@pytest.mark.parametrize("algorithm", ["tree", "flood"])
@pytest.mark.parametrize("graph", GRAPHS)
def test_all_agents_have_the_same_bits_on_every_graph(agents, on_a_path, graph, algorithm, masked):
    for value, gradient in evaluated(agents, GRAPHS[graph], algorithm, masked):
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
