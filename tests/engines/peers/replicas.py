"""Agents that walk the same chain by network sums, on a clock that tests turn; a test kills, cuts and misleads them.

A replica's draw makes as many totals as its own state says, so agents stay together only if all see the same bits.
What a node has on its disk is a `Disk`, which outlives it.
"""

import hashlib
from dataclasses import dataclass, field

import numpy as np

from consilience.engines.peers.memory import MemoryNetwork
from consilience.engines.peers.sum_messages import Label, Phase
from consilience.engines.peers.sums import Place, Sums
from consilience.engines.peers.transport import Handlers
from consilience.errors import Retry
from tests.engines.peers.virtual import KilledError, VirtualClock

NUM_WORDS = 5
START = Place(0, ())


@dataclass
class Disk:
    """What survives a node: its last checkpoint, the one that others may count on, and the totals between."""

    place: Place = START
    state: np.ndarray = field(default_factory=lambda: np.zeros(NUM_WORDS, np.uint64))
    files: dict = field(default_factory=dict)


def own_words(agent, state, operation, attempt):
    """What an agent adds: it depends on its data and on the common state."""
    content = hashlib.shake_256(repr((agent, state.tolist(), operation, attempt)).encode()).digest(8 * NUM_WORDS)
    return np.frombuffer(content, np.uint64)


class Replicas:
    """A network of replicas in memory.

    Attributes:
        every: by agent, how many draws lie between its checkpoints.
        kill: by agent, how many more things it says or asks before it dies.
        mislead: by agent, how many totals it makes, a function of draw, attempt and how many it should make.
    """

    def __init__(self, graph, tmp_path, num_draws=4, checkpoint_every=1, **options):
        self.graph, self.place, self.num_draws, self.options = graph, tmp_path, num_draws, options
        self.clock, self.network = VirtualClock(), MemoryNetwork()
        self.checkpoint_every, self.every = checkpoint_every, {}
        self.disks = [Disk() for _ in range(graph.num_agents)]
        self.sums, self.turns, self.kill, self.mislead, self.masks = {}, {}, {}, {}, {}
        self.sent = []

    def neighbours(self, agent):
        return sorted({*self.graph.edges[(self.graph.edges == agent).any(1)].ravel().tolist()} - {agent})

    def start(self, agent):
        self.turns[agent] = self.clock.start(f"agent {agent}", lambda: self.live(agent))

    def run(self):
        """Let all agents finish, starting the killed ones again; every agent's last state."""
        for agent in range(self.graph.num_agents):
            self.start(agent)
        for agent in range(self.graph.num_agents):
            self.finish(agent)
        return [self.turns[agent].result for agent in range(self.graph.num_agents)]

    def finish(self, agent):
        def is_over():
            self.revive()
            return self.turns[agent].ended and not isinstance(self.turns[agent].error, KilledError)

        self.clock.run_until(is_over, f"the end of agent {agent}")
        if self.turns[agent].error is not None:
            raise self.turns[agent].error

    def revive(self):
        for agent, turn in list(self.turns.items()):
            if turn.ended and isinstance(turn.error, KilledError):
                self.start(agent)

    def live(self, agent):
        disk = self.disks[agent]
        sums = Sums(agent, self.graph, "run", 100, clock=self.clock, masks=self.masks.get(agent), **self.options)
        self.sums[agent] = sums
        lines = sums.lines
        if disk.place != START:
            sums.start_at(disk.place)
            for path in sorted(disk.files, reverse=True):
                lines.log.load(self.place / disk.files[path], lines.codec, agent)
        handlers = Handlers(lines.receive, lines.answer, lambda *_: None, lambda *_: None, lines.longest)
        transport = self.network.connect(agent, self.neighbours(agent))(handlers)
        sums.attach(Line(self, agent, transport))
        return self.sample(agent, sums, disk)

    def sample(self, agent, sums, disk):
        draw, attempt, state = disk.place.draw, len(disk.place.retries), disk.state
        starts = {draw: state}
        while draw <= self.num_draws:
            try:
                after = self.draw(agent, sums, draw, attempt, starts[draw], disk, starts)
            except Retry as retry:
                draw, attempt = retry.draw, retry.attempt
                continue
            draw += 1
            starts = {draw - 1: starts[draw - 1], draw: after}
        return after

    def draw(self, agent, sums, draw, attempt, state, disk, starts):
        sums.begin_draw(draw, attempt)
        state = sums.adopt(state)
        starts[draw] = state
        count = 1 + int(state.sum() % 3)
        count = self.mislead.get(agent, lambda draw, attempt, count: count)(draw, attempt, count)
        for operation in range(count if draw < self.num_draws else 1):  # the last one is for all to meet
            state = state * np.uint64(3) + sums.total(own_words(agent, state, operation, attempt))
            if operation == 0 and draw % self.every.get(agent, self.checkpoint_every) == 0:
                self.checkpoint(agent, sums, disk, starts[draw])
        return state

    def checkpoint(self, agent, sums, disk, state):
        place = sums.settled
        if place == disk.place:
            return
        name = f"{agent}-{place.draw}-{len(place.retries)}.log"
        before = self.number(place)
        sums.lines.log.save(
            self.place / name,
            self.number(disk.place),
            before,
            sums.lines.codec,
            lambda path, all: path.write_bytes(all),
        )
        disk.files[before] = name
        disk.place, disk.state = place, state
        sums.keep_from(place)

    def assert_no_label_is_used_twice(self):
        """With two different parts under one label, the same mask would cover both and their difference be seen."""
        said = {}
        for sender, _, content in self.sent:
            for one in self.sums[sender].lines.codec.decode_all(content, sender):
                if one.phase in (Phase.PART, Phase.FLOOD):
                    key = one.phase, one.origin, one.label
                    assert said.setdefault(key, one.words.tolist()) == one.words.tolist(), key
        assert len(said) > 10

    def number(self, place):
        return Label(0, len(place.retries), place.draw, 0).number


class Line:
    """A node's end of the network, where the test may kill it."""

    def __init__(self, replicas, agent, transport):
        self._replicas, self._agent, self._transport = replicas, agent, transport

    def _die_perhaps(self):
        left = self._replicas.kill.get(self._agent)
        if left is not None and self._replicas.clock.whose_turn() == f"agent {self._agent}":  # not what it passes on
            self._replicas.kill[self._agent] = left - 1
            if left == 0:
                del self._replicas.kill[self._agent]
                self._transport.close()
                raise KilledError

    def send(self, neighbour, content):
        self._die_perhaps()
        self._replicas.sent.append((self._agent, neighbour, content))
        self._transport.send(neighbour, content)

    def ask(self, neighbour, what, seconds, content=None):
        self._die_perhaps()
        return self._transport.ask(neighbour, what, seconds, content)
