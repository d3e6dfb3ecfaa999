"""Networks in memory on a clock that tests turn: loss and return happen the same way every time, and nobody waits.

Nodes take turns in a fixed order. Time stands still while one works; it passes when all of them wait, up to the first
that waits no longer. Sending a message takes `ROUND_SECONDS`.
"""

import threading
from dataclasses import dataclass, field

from consilience.deployment import nodes
from consilience.deployment.networks import make_network
from consilience.deployment.nodes import run_node
from consilience.engines.peers import agent_step
from consilience.engines.peers.corrected_node import CorrectedNode
from consilience.engines.peers.memory import MemoryNetwork
from consilience.engines.peers.node import Node
from consilience.engines.peers.settings import NodeSettings

ROUND_SECONDS = 0.05
_MOST_SECONDS = 10_000.0


class KilledError(Exception):
    """Instead of `kill -9`."""


class AbandonedError(BaseException):
    """Ends what is still waiting when a test is over."""


@dataclass
class Turn:
    """A thread that runs only when it is its turn."""

    name: str
    go: threading.Event = field(default_factory=threading.Event)
    over: object = None
    deadline: float = 0.0
    ended: bool = False
    error: BaseException | None = None
    result: object = None


class VirtualClock:
    """Runs jobs in threads, one at a time, in the order in which they joined."""

    def __init__(self):
        self._now, self._turns, self._last = 0.0, [], -1
        self._yielded, self._mine, self._abandoned = threading.Event(), threading.local(), False

    # --- what nodes use ----------------------------------------------------------------------------------------

    def now(self):
        return self._now

    def wait_for(self, changed, over, seconds):
        changed.release()
        try:
            self._wait(over, seconds)
        finally:
            changed.acquire()

    def sleep(self, wake, seconds):
        self._wait(wake.is_set, seconds)
        return wake.is_set()

    def beside(self, job):
        self.start(f"beside {self._mine.turn.name}", job)

    def _wait(self, over, seconds):
        turn = self._mine.turn
        turn.over, turn.deadline = over, self._now + seconds
        turn.go.clear()
        self._yielded.set()
        turn.go.wait()
        if self._abandoned:
            raise AbandonedError

    def whose_turn(self):
        return self._mine.turn.name

    # --- what tests use ----------------------------------------------------------------------------------------

    def start(self, name, job):
        turn = Turn(name, deadline=self._now)

        def run():
            self._mine.turn = turn
            turn.go.wait()
            try:
                if not self._abandoned:
                    turn.result = job()
            except AbandonedError:
                pass
            except BaseException as error:
                turn.error = error
            turn.ended = True
            self._yielded.set()

        turn.thread = threading.Thread(target=run, daemon=True)
        turn.thread.start()
        self._turns.append(turn)
        return turn

    def run_until(self, condition, what):
        """Let everybody take turns until something is so."""
        while not condition():
            assert self._now < _MOST_SECONDS, f"waited {self._now:.0f} virtual seconds for {what}"
            waiting = [turn for turn in self._turns if not turn.ended]
            assert waiting, f"all have ended without {what}: {[turn.error for turn in self._turns if turn.error]}"
            ready = [place for place, turn in enumerate(self._turns) if not turn.ended and self._is_ready(turn)]
            if not ready:
                self._now = min(turn.deadline for turn in waiting)
                continue
            place = next((one for one in ready if one > self._last), ready[0])
            self._last = place
            self._take_turn(self._turns[place])

    def _is_ready(self, turn):
        return turn.deadline <= self._now or (turn.over is not None and turn.over())

    def _take_turn(self, turn):
        self._yielded.clear()
        turn.go.set()
        assert self._yielded.wait(300), f"{turn.name} does not yield"

    def abandon(self):
        """End all threads that still wait."""
        self._abandoned = True
        for turn in self._turns:
            turn.go.set()
            turn.thread.join(10)


class Laboratory:
    """A network of nodes in memory, which a test cuts, kills and watches.

    Attributes:
        cut: pairs of agents that hear nothing of each other.
        kill: by agent, the round before whose message it dies.
        damage: agents whose messages arrive as nonsense.
        lie: by agent, a function of a round and a message's arrays that says what arrives instead.
    """

    def __init__(self, plan, directory, problem, monkeypatch, **options):
        self.files = make_network(plan, directory, insecure=True, **options)
        self.problem, self.clock, self.network = problem, VirtualClock(), MemoryNetwork()
        self.cut, self.kill, self.damage, self.nodes, self._turns = self.network.cut, {}, set(), {}, {}
        self.lie = {}
        laboratory = self

        def watched(kind):
            class Watched(kind):
                def __init__(self, *arguments):
                    super().__init__(*arguments)
                    laboratory.nodes[self.settings.agent] = self

            return Watched

        monkeypatch.setattr(nodes, "Node", watched(Node))
        monkeypatch.setattr(nodes, "CorrectedNode", watched(CorrectedNode))
        # the problems of these tests are sound; to check that would compile four more programs for each node
        monkeypatch.setattr(agent_step, "require_usable", lambda *arguments: None)
        monkeypatch.setattr(Node, "largest_curvature", lambda self: 1.0)

    def start(self, agent):
        """Start a node, or start it again."""
        settings = NodeSettings.load(self.files[agent])
        connect = self.network.connect(agent, settings.neighbours)

        def job():
            return run_node(
                settings, self.problem.of_agent(agent), clock=self.clock,
                connect=lambda handlers: Line(self, agent, connect(handlers)),
            )  # fmt: skip

        self._turns[agent] = self.clock.start(f"agent {agent}", job)

    def start_all(self):
        for agent in range(len(self.files)):
            self.start(agent)

    def until(self, condition, what):
        self.clock.run_until(condition, what)

    def until_ended(self, agent):
        """Let a node end; what it raised is returned."""
        self.until(lambda: self._turns[agent].ended, f"the end of agent {agent}")
        return self._turns[agent].error

    def runs(self, agents):
        """Let some nodes finish; their runs."""
        for agent in agents:
            error = self.until_ended(agent)
            if error is not None:
                raise error
        return [self._turns[agent].result for agent in agents]

    def rounds(self, *agents):
        return [self.nodes[agent].rounds.round for agent in agents]


class Line:
    """A node's end of the network: it takes time to speak, and the test may kill the node or damage its words."""

    def __init__(self, laboratory, agent, transport):
        self._laboratory, self._agent, self._transport = laboratory, agent, transport

    def publish(self, content):
        laboratory = self._laboratory
        laboratory.clock.sleep(threading.Event(), ROUND_SECONDS)
        if laboratory.nodes[self._agent].rounds.round >= laboratory.kill.get(self._agent, 10**9):
            raise KilledError
        if self._agent in laboratory.lie:
            codec = laboratory.nodes[self._agent].wire.codec
            said = codec.decode(content, self._agent)
            if said.round < codec.num_rounds:
                content = codec.encode(said._replace(values=laboratory.lie[self._agent](said.round, said.values)))
        self._transport.publish(b"nonsense" if self._agent in laboratory.damage else content)

    def send(self, neighbour, content):
        self._transport.send(neighbour, content)

    def notify(self, content):
        self._transport.notify(content)

    def ask(self, neighbour, what, seconds, content=None):
        answer = self._transport.ask(neighbour, what, seconds, content)
        return b"nonsense" if answer is not None and neighbour in self._laboratory.damage else answer

    def close(self):
        self._transport.close()
