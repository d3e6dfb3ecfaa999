"""What nodes in unison send holds no private parameter and no row, not even without masks.

Three agents in memory, unmasked, do what a node does in a move: they adopt the root's replica and evaluate the
log-density at a position. Everything they send is searched for the bits of what is theirs.

What sums tell all the same is tried at the end: with private parameters a patient member can take them apart.
"""

from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

import consilience as cs
from consilience.engines.peers.held import CommonWords
from consilience.engines.peers.memory import MemoryNetwork
from consilience.engines.peers.moving import OverNetwork
from consilience.engines.peers.sums import Sums
from consilience.engines.peers.transport import Handlers
from consilience.engines.unison import Replicas
from consilience.kernel.network_sums import NetworkSums
from consilience.samplers.transitions.adaptation import first_adaptation
from consilience.samplers.transitions.replica import Keys, Replica, evaluate_chains
from tests.hierarchical import NOISE, PRIOR, SPREAD, sites

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


def sums_of(statistics, seed, chains=4, moves=4):
    """What all members see of some moves of HMC: energies, and gradients and positions of the shared parameter.

    Args:
        statistics: of each agent the number of its rows and their sum; there is no other in this model.
        seed: of all random numbers, which is in the plan.
    """
    statistics = statistics.reshape(3, 2)

    def one_agent(agent, position):
        (count, total), level = statistics[agent], position.sum()
        prior = position[0] ** 2 / (3 * PRIOR) + position[1] ** 2 / SPREAD
        return 0.5 * (count * level**2 / NOISE + prior) - total * level / NOISE

    each = jax.vmap(jax.vmap(jax.value_and_grad(one_agent, 1)), (None, 0))
    agents, key, sampler = jnp.arange(3), jax.random.key(seed), cs.hmc()
    network = NetworkSums(
        lambda positions: each(agents, positions), 1, 3, lambda words: words, agents, jnp.ones((3, 1))
    )
    shared = jax.random.normal(jax.random.fold_in(key, 1), (chains, 1))
    private = jax.random.normal(jax.random.fold_in(key, 2), (chains, 3, 1))
    grid, _ = network.measure(shared, private)
    found = evaluate_chains(network, grid, shared, private)
    adaptation = first_adaptation(sampler, 1, (3, 1))._replace(step_size=jnp.asarray(0.15))

    def move(state, number):
        keys = Keys(jax.random.split(jax.random.fold_in(key, number), chains), jax.random.fold_in(key, -number))
        state, facts = sampler.move(state, keys, network, False)
        return state, jnp.stack([facts.energy, state.gradient[:, 0], state.shared[:, 0]])

    state = Replica(shared, private, found.log_density, found.gradient, found.own_gradient, grid, adaptation)
    return jax.lax.scan(move, state, jnp.arange(3, 3 + moves))[1].ravel()


@pytest.mark.slow(reason="compiles moves of its own")
def test_a_member_can_take_sums_apart_where_random_numbers_of_private_parameters_are_known(problem):
    """The page on privacy says so: masks hide the parts of a sum, and not what many sums tell together."""
    truth = np.array([[count, shard.sum()] for count, shard in zip(SIZES, problem.shards, strict=True)], float)

    def taken_apart(seed):
        found = scipy.optimize.least_squares(
            lambda guess: np.asarray(sums(guess, seed)) - seen, np.tile([6.0, 0.0], 3), diff_step=1e-3
        )
        return found.x.reshape(3, 2)

    with jax.enable_x64(True):
        sums = jax.jit(sums_of)
        seen = np.asarray(sums(truth.ravel(), 0))
        np.testing.assert_allclose(taken_apart(0), truth, atol=1e-4)
        assert np.abs(taken_apart(1) - truth).max() > 0.5, "the control: who does not know the seed"
