"""How nodes move their replicas together: what one of them decides differently, all do again."""

import json
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import consilience as cs
from consilience.engines.peers.held import Held, HeldForm
from consilience.engines.peers.memory import MemoryNetwork
from consilience.engines.peers.moving import Moving
from consilience.engines.peers.sum_messages import Phase
from consilience.engines.peers.sums import Place, Sums
from consilience.engines.peers.transport import Handlers
from consilience.engines.unison import Buffers
from consilience.samplers.transitions.adaptation import Adaptation
from consilience.samplers.transitions.replica import Replica

GRAPH, CHAINS, WARMUP, MOVES = cs.graphs.path(3), 2, 3, 9


class Walk:
    """In place of the compiled programs: accepts half of its moves, which shift private and shared parameters alike.

    Agent 2 decides differently about one chain in draw 5, as a processor that rounds differently may.
    """

    problem = SimpleNamespace(private=("effect",))
    plan = SimpleNamespace(num_chains=CHAINS, burn_in=WARMUP)

    def __init__(self, agent):
        self.agent = agent

    def initial_state(self):
        one, none = np.ones(()), ()
        return Replica(
            np.zeros((CHAINS, 1)), np.zeros((CHAINS, 1, 1)), np.zeros(CHAINS), np.zeros((CHAINS, 1)),
            np.zeros((CHAINS, 1, 1)), none, Adaptation(one, np.ones(1), np.ones((1, 1)), none, none, none, none),
            np.zeros((), np.int32),
        )  # fmt: skip

    def moved(self, replica, move, num_moves, attempt):
        random = np.random.default_rng((move, attempt))
        accepted, shift = random.random(CHAINS) < 0.5, random.normal(size=CHAINS)
        if (self.agent, move, attempt) == (2, 5, 0):
            accepted[1] = not accepted[1]
        shift = np.where(accepted, shift, 0.0)
        replica = replica._replace(
            shared=replica.shared + shift[:, None], private=replica.private + shift[:, None, None],
            log_density=np.where(accepted, random.normal(size=CHAINS), replica.log_density),
        )  # fmt: skip
        return replica, Buffers(replica.shared[None], replica.private[None], {})


class Agent:
    """One agent's end of the network, in a thread of its own; all that it sends is kept."""

    def __init__(self, number, network, held=None, compares=True):
        self.moving, self.said = Moving(number), {}
        self.moving.uses(Walk(number))
        self.moving.num_counts *= compares
        self.first, self.draws = 0 if held is None else MOVES, []
        self.held = held or Held(self.moving.replicas.initial_state())
        self.sums = self.moving.sums = Sums(number, GRAPH, "run", 100, ask_seconds=0.02)
        if held is not None:
            self.moving.attempt = len(held.retries)
            self.sums.start_at(Place(MOVES, held.retries))
        lines = self.sums.lines
        handlers = Handlers(lines.receive, lines.answer, lambda *_: None, lambda *_: None, lines.longest)
        self.line = network.connect(number, lines.neighbours)(handlers)
        self.sums.attach(self)

    def live(self):
        with jax.enable_x64(True):
            for move in range(self.first, MOVES):
                self.held, buffers = self.moving.moved(self.held, move)
                self.draws.append((buffers.shared[0], buffers.private[0, :, 0]))
            self.moving.together(MOVES, self.held)

    def send(self, neighbour, content):
        for one in self.sums.lines.codec.decode_all(content, self.moving.agent):
            if one.phase == Phase.PART:
                self.said[one.label] = one.words.tolist()
        self.line.send(neighbour, content)

    def ask(self, *arguments):
        return self.line.ask(*arguments)


def moved_together(**options):
    """The agents of a network after all their moves; `held` are what they begin with."""
    held = options.pop("held", [None] * 3)
    network = MemoryNetwork()
    agents = [Agent(number, network, held[number], **options) for number in range(3)]
    with ThreadPoolExecutor(3) as threads:
        for job in [threads.submit(agent.live) for agent in agents]:
            job.result(60)
    return agents


@pytest.fixture(scope="module")
def agents():
    return moved_together()


def test_a_chain_that_one_agent_moves_and_another_does_not_is_moved_again_by_all(agents):
    for agent in agents:
        assert agent.held.retries == (5,)
        for shared, private in agent.draws:
            np.testing.assert_array_equal(private, shared)
        np.testing.assert_array_equal(agent.draws, agents[0].draws)
    assert len(np.unique([shared for shared, _ in agents[0].draws])) > MOVES // 2, "the control: chains do move"


def test_without_counting_an_agent_would_keep_another_private_part_than_belongs_to_the_draw():
    agents = moved_together(compares=False)
    assert [agent.held.retries for agent in agents] == [()] * 3
    shared, private = agents[2].draws[-1]
    assert (private != shared).any()


def test_agents_that_are_all_killed_say_again_what_they_said(agents):
    """Under the same label the same words: the same mask covers both."""
    form = HeldForm(agents[0].moving.blank)
    held = [
        form.restored(form.content(agent.held), json.loads(json.dumps(form.note(agent.held)))) for agent in agents
    ]
    again = moved_together(held=held)
    for before, after in zip(agents, again, strict=True):
        assert after.held.moved == before.held.moved
        for label, words in after.said.items():
            assert words == before.said[label]
    assert any(any(agent.held.moved) and agent.said for agent in again)
