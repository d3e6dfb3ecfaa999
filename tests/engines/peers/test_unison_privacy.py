"""What nodes in unison send holds no private parameter and no row, not even without masks.

Three agents in memory, unmasked, do what a node does in a move: they adopt the root's replica and evaluate the
log-density at a position. Everything they send is searched for the bits of what is theirs.
"""

from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import consilience as cs
from consilience.engines.peers.held import CommonWords
from consilience.engines.peers.memory import MemoryNetwork
from consilience.engines.peers.moving import OverNetwork
from consilience.engines.peers.sums import Sums
from consilience.engines.peers.transport import Handlers
from consilience.engines.unison import Replicas
from tests.hierarchical import sites

SIZES, SHARED = (4, 9, 6), 0.71875
GRAPH = cs.graphs.path(3)


class Agent:
    """One agent's move, as a node makes it; `leaky` sends its private part too."""

    def __init__(self, problem, number, leaky=False):
        self.number, self.leaky, self.sent = number, leaky, []
        self.private = 0.123456789 + number / 7
        plan = cs.Plan(graph=GRAPH, sampler=cs.hmc(), num_draws=10, num_chains=1)
        with jax.enable_x64(True):
            replicas = Replicas(problem.of_agent(number), plan, OverNetwork(number, self.total), 1)
            blank = replicas.initial_state()
            self.replica = blank._replace(
                shared=jnp.full((1, 1), SHARED), private=jnp.full((1, 1, 1), self.private),
                own_gradient=jnp.full((1, 1, 1), 2.5 + self.private),
            )  # fmt: skip

            def evaluate(network, shared, private):
                grid, _ = network.measure(shared[None], private[None])
                carried = lambda slopes: slopes[:, :1] ** 2  # noqa: E731 - as kinetic energies ride along
                return network.evaluate(grid, shared, private, carried).log_density

            self.held = replicas._held
            at = jnp.full(1, SHARED), jnp.full((1, 1), self.private)
            self.at, self.program = at, replicas.place.compiled(replicas._program(evaluate), *self.held, *at)

    def total(self, words):
        return self.sums.total(words)

    def move(self):
        with jax.enable_x64(True):
            self.sums.begin_draw(0, 0)
            words = CommonWords(self.replica).of(self.replica)
            if self.leaky:
                words = np.concatenate([words, np.array([self.private]).view(np.uint64)])
            self.sums.total(words if self.number == 1 or self.leaky else np.zeros_like(words))
            return float(self.program(*self.held, *self.at))

    def send(self, neighbour, content):
        self.sent.append(content)
        self.line.send(neighbour, content)

    def ask(self, *arguments):
        return self.line.ask(*arguments)


def everything_sent(problem, leaky=False):
    network, agents = MemoryNetwork(), [Agent(problem, number, leaky) for number in range(3)]
    for agent in agents:
        sums = agent.sums = Sums(agent.number, GRAPH, "run", 2000)
        lines = sums.lines
        handlers = Handlers(lines.receive, lines.answer, lambda *_: None, lambda *_: None, lines.longest)
        agent.line = network.connect(agent.number, lines.neighbours)(handlers)
        sums.attach(agent)
    with ThreadPoolExecutor(3) as threads:
        found = [job.result(60) for job in [threads.submit(agent.move) for agent in agents]]
    assert np.isfinite(found).all()
    return agents, b"".join(content for agent in agents for content in agent.sent)


def bits(value):
    """How a number may stand in a message: in either precision, or as an integer on a grid of any fineness."""
    value = float(value)
    fixed = [round(value * 2.0**exponent) for exponent in range(20, 61) if abs(value) * 2.0**exponent < 2**62]
    return {
        np.float64(value).tobytes(), np.float32(value).tobytes(),
        *(np.int64(one).tobytes() for one in fixed if abs(one) > 2**16),
    }  # fmt: skip


@pytest.fixture(scope="module")
def problem():
    return sites(SIZES, seed=5)


def test_no_private_parameter_and_no_row_is_sent(problem):
    agents, sent = everything_sent(problem)
    assert np.float64(SHARED).tobytes() in sent, "the control: what is shared is found"
    for agent in agents:
        assert not any(one in sent for one in bits(agent.private))
        assert not any(one in sent for one in bits(2.5 + agent.private)), "nor their gradients"
        for row in np.asarray(problem.shards[agent.number]):
            assert not any(one in sent for one in bits(row))


def test_a_program_that_sends_private_parameters_would_be_found(problem):
    agents, sent = everything_sent(problem, leaky=True)
    assert any(one in sent for agent in agents for one in bits(agent.private))
