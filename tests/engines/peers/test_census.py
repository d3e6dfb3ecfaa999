"""Who takes part after a loss: all who can reach each other agree, on a clock that the test turns."""

import threading
from dataclasses import dataclass, field

import numpy as np
import pytest

import consilience as cs
from consilience.engines.peers.census import Census, Statement
from consilience.engines.peers.memory import MemoryNetwork
from consilience.engines.peers.participants import Participants
from consilience.engines.peers.sums import Place, Sums
from consilience.engines.peers.transport import Handlers
from consilience.errors import NewEpoch, Stopped
from tests.engines.peers.virtual import KilledError, VirtualClock

PATIENCE = 3.0


@dataclass
class Agent:
    """Counts with the others: every step is a total of ones, and of everybody's steps."""

    lab: object
    number: int
    step: int = 0
    seen: list = field(default_factory=list)
    """Who took part in each step that it made."""
    killed: bool = False

    def live(self, who=None):
        """Until all steps are made; from an epoch that it was in before it died, if one is given."""
        lab = self.lab
        self.killed, stop = False, threading.Event()
        self.census = Census(self.number, lab.graph, PATIENCE, lab.clock, 0.5)
        if who is not None:
            self.census.resume(who)
        restarts, who = who is not None, who or Participants.everybody(lab.graph)
        self.join(who, stop)
        if restarts:
            self.sums.start_at(Place(self.step - who.step, ()))
        handlers = Handlers(
            lambda number, content: self.sums.lines.receive(number, content),
            lambda what, content: self.sums.lines.answer(what, content),
            lambda number, here: self.census.returned(number) if here else None, lambda *_: None, 10**6,
        )  # fmt: skip
        self.line = lab.network.connect(self.number, self.census.neighbours)(handlers)
        self.sums.attach(self)
        while self.step < lab.num_steps:
            try:
                self.sums.begin_draw(self.step - who.step, 0, who.digest())
                count, steps = self.sums.total(np.array([1, self.step], np.uint64)).tolist()
            except NewEpoch:
                who = self.census.agree(self.step, self.sums.lines, stop)
                self.step = who.step
                self.join(who, stop)
                self.sums.attach(self)
                continue
            assert (count, steps) == (len(who.agents), len(who.agents) * self.step)
            self.seen.append(who.agents)
            self.step += 1
            lab.clock.sleep(threading.Event(), 0.2)
        return who

    def join(self, who, stop):
        self.sums = Sums(
            self.number, who, "run", 10, census=self.census, num_agents=self.lab.graph.num_agents,
            clock=self.lab.clock, stop=stop, algorithm=self.lab.algorithm,
        )  # fmt: skip

    def send(self, neighbour, content):
        self.die_perhaps()
        self.line.send(neighbour, content)

    def ask(self, neighbour, what, seconds, content=None):
        self.die_perhaps()
        return self.line.ask(neighbour, what, seconds, content)

    def die_perhaps(self):
        if self.killed and self.lab.clock.whose_turn() == f"agent {self.number}":
            self.line.close()
            raise KilledError


class Lab:
    """Agents in memory."""

    def __init__(self, graph, num_steps=60, algorithm="tree"):
        self.graph, self.num_steps, self.algorithm = graph, num_steps, algorithm
        self.clock, self.network = VirtualClock(), MemoryNetwork()
        self.agents = [Agent(self, number) for number in range(graph.num_agents)]
        self.turns = {}
        for number in range(graph.num_agents):
            self.start(number)

    def start(self, number):
        self.turns[number] = self.clock.start(f"agent {number}", self.agents[number].live)

    def restart(self, number):
        """From its last step, in the epoch in which it died."""
        agent, who = self.agents[number], self.agents[number].sums.participants
        agent.killed = True
        self.clock.run_until(lambda: self.turns[number].ended, f"the death of agent {number}")
        self.turns[number] = self.clock.start(f"agent {number}", lambda: agent.live(who))

    def until(self, number, step):
        self.clock.run_until(lambda: self.agents[number].step >= step or self.turns[number].ended, f"step {step}")

    def finish(self, *numbers):
        for number in numbers:
            self.clock.run_until(lambda number=number: self.turns[number].ended, f"the end of agent {number}")
            if self.turns[number].error is not None:
                raise self.turns[number].error
        return [self.turns[number].result for number in numbers]


@pytest.fixture
def lab():
    made = []

    def make(*arguments, **options):
        made.append(Lab(*arguments, **options))
        return made[-1]

    yield make
    for one in made:
        one.clock.abandon()


@pytest.mark.parametrize("algorithm", ["tree", "flood"])
@pytest.mark.parametrize("lost", range(5))
def test_a_lost_agent_is_left_out_and_the_others_agree(lab, lost, algorithm):
    """Whoever is lost, the tree's root too; on a ring the others still reach each other."""
    found = lab(cs.graphs.ring(5), algorithm=algorithm)
    found.until(lost, 7)
    found.agents[lost].killed = True
    rest = [number for number in range(5) if number != lost]
    results = found.finish(*rest)
    assert set(results) == {results[0]}
    assert results[0].agents == tuple(rest)
    for number in rest:
        assert found.agents[number].seen[:7] == [tuple(range(5))] * 7
        assert found.agents[number].seen[-40:] == [tuple(rest)] * 40


def test_a_lost_agent_that_comes_back_takes_part_again(lab):
    found = lab(cs.graphs.ring(4), num_steps=80)
    found.until(2, 5)
    found.agents[2].killed = True
    found.until(0, 30)
    found.start(2)
    results = found.finish(0, 1, 2, 3)
    assert [one.agents for one in results] == [(0, 1, 2, 3)] * 4
    others = found.agents[0].seen
    assert {(0, 1, 2, 3), (0, 1, 3)} == set(others)
    assert found.agents[2].seen[-20:] == [(0, 1, 2, 3)] * 20


def test_both_parts_of_a_cut_network_continue_and_meet_again(lab):
    """A path of five, cut in the middle: two agents and three; the line is mended later."""
    found = lab(cs.graphs.path(5), num_steps=120)
    found.until(0, 10)
    found.network.cut.add(frozenset((1, 2)))
    found.until(0, 40)
    found.until(4, 40)
    assert found.agents[0].seen[-1] == (0, 1)
    assert found.agents[4].seen[-1] == (2, 3, 4)
    found.network.cut.clear()
    found.agents[1].census.returned(2)
    assert [one.agents for one in found.finish(*range(5))] == [(0, 1, 2, 3, 4)] * 5


def test_an_agent_that_is_alone_continues_alone(lab):
    found = lab(cs.graphs.star(4))
    found.until(0, 5)
    found.agents[0].killed = True
    assert [one.agents for one in found.finish(1, 2, 3)] == [(1,), (2,), (3,)]


def test_two_are_lost_one_after_the_other(lab):
    """The second while all still agree about the first."""
    found = lab(cs.graphs.complete(5))
    found.until(1, 5)
    found.agents[1].killed = True
    found.clock.run_until(lambda: found.agents[0].census.epoch == 1, "a census")
    found.agents[3].killed = True
    results = found.finish(0, 2, 4)
    assert [one.agents for one in results] == [(0, 2, 4)] * 3


def leaves_after_a_restart(found):
    """Agent 0 of a path is lost; agent 3 restarts in the epoch without it; then its leaf 4 is lost, to it alone."""
    found.until(1, 5)
    found.agents[0].killed = True
    found.clock.run_until(
        lambda: all(agent.census.begun == 1 and agent.step > 20 for agent in found.agents[1:]), "the epoch without 0"
    )
    found.restart(3)
    found.until(3, found.agents[3].step + 5)
    found.agents[4].killed = True


def test_an_agent_that_restarted_in_a_later_epoch_can_lose_others(lab):
    found = lab(cs.graphs.path(5), num_steps=80)
    leaves_after_a_restart(found)
    results = found.finish(1, 2, 3)
    assert [one.agents for one in results] == [(1, 2, 3)] * 3
    assert [one.epoch for one in results] == [2] * 3
    assert found.agents[3].seen.count((1, 2, 3, 4)) > 20


def test_an_agent_that_forgets_its_epoch_stops_everybody(lab, monkeypatch):
    """A negative control: its next census is not later than the sums' epoch, and nobody leaves the wait."""
    monkeypatch.setattr(Census, "resume", lambda self, participants: None)
    found = lab(cs.graphs.path(5), num_steps=80)
    leaves_after_a_restart(found)
    later = found.clock.now() + 20 * PATIENCE
    found.clock.run_until(lambda: found.clock.now() > later, "a long time")
    assert not any(found.turns[number].ended for number in (1, 2, 3))


def test_a_resumed_census_knows_who_was_lost():
    census = Census(1, cs.graphs.ring(4), PATIENCE, VirtualClock())
    census.resume(Participants((0, 1, 3), ((0, 1), (0, 3)), epoch=3, step=40, source=0))
    assert (census.epoch, census.begun, census.lost) == (3, 3, {2})
    census.returned(2)
    assert (census.epoch, census.lost) == (4, set())


def test_before_the_first_total_everybody_is_waited_for(lab):
    found = lab(cs.graphs.path(3))
    found.network.cut.add(frozenset((1, 2)))
    found.clock.run_until(lambda: found.clock.now() > 10 * PATIENCE, "a long time")
    assert found.agents[0].step == 0
    assert found.agents[0].census.epoch == 0
    found.network.cut.clear()
    assert [one.agents for one in found.finish(0, 1, 2)] == [(0, 1, 2)] * 3


def test_nobody_agrees_with_who_has_not_spoken():
    """A negative control: statements of some are not enough, and a stopped node says so."""
    census = Census(0, cs.graphs.path(3), PATIENCE, VirtualClock())
    census.call(1)
    census.hear(Statement(1, 1, 1, 4, frozenset()), direct=True)
    stop = threading.Event()
    stop.set()

    class Line:
        def say(self, statements):
            pass

        def ask_census(self, neighbour):
            return True

    class Clock(VirtualClock):
        def wait_for(self, changed, over, seconds):
            pass

    census._clock = Clock()
    with pytest.raises(Stopped, match="agreed on who takes part"):
        census.agree(4, Line(), stop)
    census.hear(Statement(1, 2, 1, 5, frozenset()), direct=False)
    assert census.agree(4, Line(), stop) == Participants((0, 1, 2), ((0, 1), (1, 2)), 1, 5, 2)


def test_statements_that_cannot_be_are_ignored():
    census = Census(0, cs.graphs.path(3), PATIENCE, VirtualClock())
    for said in (
        Statement(1, 7, 1, 0, frozenset()), Statement(1, 1, 1, 0, frozenset({1})), Statement(0, 1, 1, 0, frozenset()),
    ):  # fmt: skip
        assert census.hear(said, direct=True) == []
    assert census.epoch == 0
    assert census.statements() == []
