"""Agents of a corrected sampler that take their steps in one thread: a test decides over every single message."""

from collections.abc import Callable

import numpy as np

from consilience.engines.peers.agent_step import AgentStep
from consilience.engines.peers.clock import SteadyClock
from consilience.engines.peers.continuing import Continuing
from consilience.engines.peers.membership import Membership
from consilience.engines.peers.messages import Message
from consilience.engines.peers.rounds import Rounds
from consilience.engines.peers.settings import neighbours_of


class OneAgent:
    """What a node has, without a network."""

    def __init__(self, problem, plan, agent):
        weights = neighbours_of(plan, agent)
        self.agent, self.step = agent, AgentStep(problem.of_agent(agent), plan, agent, weights)
        self.rounds = Rounds(self.step, plan, True, False, SteadyClock())
        self.members = Membership(agent, weights, plan.num_agents)
        self.continuing = Continuing(self.step, self.rounds, self.members)
        self.state, self.round = self.step.initial_state(), 0

    def begin(self, k):
        self.state = self.continuing.begin(self.state)
        here, _ = self.continuing.step(None)
        self.prepared = here.prepare(self.state, np.int32(k), None)
        self.message = self.said = self.step.message(self.state, self.prepared)
        self.mixed = self.step.begin(self.message)
        self.continuing.flows.begin(self.message)

    def exchange(self, k):
        others = self.rounds.exchanged(self.round, k, self.said)
        self.continuing.exchanged(self.round, self.said, others, None)
        self.mixed, self.said = self.step.exchange(self.mixed, others, None)
        self.round += 1

    def end(self):
        self.continuing.flows.end(None)
        self.state = self.step.end(self.state, self.prepared, self.message, self.mixed, None)


class Lockstep:
    """All agents of a plan.

    Attributes:
        arrives: whether what one agent says in a round reaches another, `(round, speaker, listener)`.
    """

    def __init__(self, problem, plan, arrives: Callable[[int, int, int], bool]):
        self.agents = [OneAgent(problem, plan, agent) for agent in range(plan.num_agents)]
        self.plan, self.arrives, self.k = plan, arrives, 0

    def walk(self, num_steps):
        """Make steps; the positions after each, `(steps, chains, agents, size)`."""
        found = []
        for _ in range(num_steps):
            for one in self.agents:
                one.begin(self.k)
            for _ in range(self.plan.sampler.exchanges):
                self._exchange()
            for one in self.agents:
                one.end()
            found.append(np.concatenate([one.step.position(one.state) for one in self.agents], 1))
            self.k += 1
        return np.array(found)

    def _exchange(self):
        for speaker in self.agents:
            heard = speaker.rounds.heard()
            for number in speaker.rounds.neighbours:
                if self.arrives(speaker.round, speaker.agent, number):
                    message = Message(speaker.agent, speaker.round, 0, speaker.said, heard)
                    self.agents[number].rounds.inbox.put(message)
        for one in self.agents:
            one.exchange(self.k)

    def corrections(self):
        """`(agents, chains, size)`."""
        return np.array([np.asarray(one.state.correction)[:, 0] for one in self.agents])

    def flow(self, here, there):
        """What has flowed over an edge, as one of its ends has it."""
        flows = self.agents[here].continuing.flows
        return flows.ledger[self.agents[here].rounds.neighbours.index(there)]
