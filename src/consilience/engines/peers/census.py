"""How agents that continue without a lost one agree on who takes part, before their sums go on.

Every agent makes a statement: which of its neighbours it has lost, and with which step it would continue. Statements
go from neighbour to neighbour. An edge is in use if neither end has lost the other. A census is complete for an agent
when everybody it reaches by such edges has spoken; all of these then have the same statements, and so the same
participants. A neighbour that neither speaks nor answers for as long as an agent's patience is lost to it, which it
says in a new version of its statement. If a statement changes after an agent has begun the epoch, it calls the next
census, as it does when a lost neighbour is back.

    census = Census(agent, graph, patience, clock)
    census.lose(3)                                # or a neighbour's statement: `census.epoch` goes up
    participants = census.agree(step, line, stop)
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np

from consilience.engines.peers.clock import Clock
from consilience.engines.peers.membership import names
from consilience.engines.peers.participants import Participants, reachable
from consilience.engines.peers.sum_messages import Label, Phase, SumMessage
from consilience.errors import Stopped
from consilience.graphs import Graph

log = logging.getLogger("consilience.peers")
_TELL_SECONDS = 10.0


class Statement(NamedTuple):
    """What one agent says in a census."""

    epoch: int
    agent: int
    version: int
    step: int
    """With which it would continue: it holds the replica at its start."""
    lost: frozenset[int]

    def message(self) -> SumMessage:
        """As it travels."""
        words = np.array([self.version, self.step, *sorted(self.lost)], np.uint64)
        return SumMessage(self.agent, Phase.CENSUS, Label(self.epoch, 0, 0, 0), words, origin=self.agent)

    @classmethod
    def of(cls, message: SumMessage) -> Statement:
        """What a message says."""
        version, step, *lost = message.words.tolist()
        return cls(message.label.epoch, message.origin, version, step, frozenset(lost))


class Line(Protocol):
    """How an agent speaks with its neighbours in a census."""

    def say(self, statements: list[Statement]) -> None:
        """Send statements to all neighbours."""

    def ask_census(self, neighbour: int) -> bool:
        """Ask a neighbour for all statements it knows, and hear them; whether it answered."""


class Census:
    """One agent's part; the threads of its connections bring statements, one thread waits for them.

    Args:
        agent: its number.
        graph: the network as planned.
        patience: seconds for which a neighbour may be silent.
        clock: by which it waits.
        ask_seconds: how often it asks who has not spoken.
    """

    def __init__(self, agent: int, graph: Graph, patience: float, clock: Clock, ask_seconds: float = 0.5) -> None:
        self.agent, self._patience, self._clock, self._ask_seconds = agent, patience, clock, ask_seconds
        self._planned = [Participants.everybody(graph).neighbours(one) for one in range(graph.num_agents)]
        self._edges = Participants.everybody(graph).edges
        self.changed = threading.Condition()
        self.epoch = 0
        """The latest epoch for which anybody has called a census."""
        self.begun = 0
        """The epoch that this agent has begun."""
        self.lost: set[int] = set()
        """The neighbours that this agent has lost."""
        self.wake: Callable[[], None] = lambda: None
        """Called when an epoch is called; who waits for something else looks up."""
        self._statements: dict[int, Statement] = {}
        self._version = time.time_ns()  # an agent that restarts knows better than it did before
        self._silent_since: dict[int, float] = {}
        self._participants: frozenset[int] = frozenset(range(graph.num_agents))
        self._has_left = False

    @property
    def neighbours(self) -> tuple[int, ...]:
        """Of this agent in the network as planned."""
        return self._planned[self.agent]

    def resume(self, participants: Participants) -> None:
        """Continue in an epoch that was agreed upon before this agent restarted; before it joins its network.

        Whoever it has no edge with in that epoch was lost; its next census is then a later one than everybody's sums.
        """
        with self.changed:
            self.epoch = self.begun = participants.epoch
            self._participants = frozenset(participants.agents)
            in_use = participants.neighbours(self.agent)
            self.lost = {number for number in self.neighbours if number not in in_use}

    # --- what happens ------------------------------------------------------------------------------------------

    def call(self, epoch: int) -> None:
        """Call a census for an epoch, unless one for that or a later one is under way."""
        with self.changed:
            if epoch > self.epoch:
                self.epoch, self._statements = epoch, {}
                self.changed.notify_all()
        self.wake()

    def heard_nothing(self, number: int) -> bool:
        """Note that a neighbour did not answer; whether it is lost by that."""
        since = self._silent_since.setdefault(number, self._clock.now())
        if self._clock.now() - since < self._patience:
            return False
        self.lose(number)
        return True

    def heard(self, number: int) -> None:
        """Note that a neighbour is there."""
        self._silent_since.pop(number, None)

    def lose(self, number: int) -> None:
        """Continue without a neighbour."""
        if number in self.lost or number not in self._planned[self.agent]:
            return
        self._silent_since.pop(number, None)
        self.lost.add(number)
        log.warning("agent %d has lost agent %d", self.agent, number)
        self.call(self.begun + 1)

    def returned(self, number: int) -> None:
        """A neighbour is back: if it was lost, all agree anew on who takes part."""
        if number in self.lost and not self._has_left:
            self.lost.discard(number)
            self.call(self.begun + 1)

    def leave(self) -> None:
        """Take part no longer: all draws are made. Whoever still agrees with others does so without this agent."""
        self._has_left = True

    def hear(self, statement: Statement, direct: bool) -> list[Statement]:
        """Take in a statement; what is news for the other neighbours."""
        known = statement.agent < len(self._planned)
        if not known or not statement.lost <= {*self._planned[statement.agent]} or statement.epoch == 0:
            return []
        if direct and self.agent not in statement.lost:
            self.lost.discard(statement.agent)
        if statement.epoch > self.epoch:
            self.call(statement.epoch)
        with self.changed:
            before = self._statements.get(statement.agent)
            if statement.epoch < self.epoch or (before is not None and before.version >= statement.version):
                return []
            self._statements[statement.agent] = statement
            self.changed.notify_all()
            changed = before is not None and before[3:] != statement[3:]
            has_left = statement.lost == {*self._planned[statement.agent]}
            came = statement.agent not in self._participants and not has_left
        if statement.epoch == self.begun and (changed or came):
            self.call(self.begun + 1)
        news = [statement]
        if self._has_left and self.agent not in self._statements:
            news.append(self._state(0, frozenset(self._planned[self.agent])))
        return news

    def statements(self) -> list[Statement]:
        """All that are known of the latest census."""
        with self.changed:
            return list(self._statements.values())

    def _state(self, step: int, lost: frozenset[int]) -> Statement:
        with self.changed:
            self._version += 1
            made = Statement(self.epoch, self.agent, self._version, step, lost)
            self._statements[self.agent] = made
            return made

    # --- agreeing ----------------------------------------------------------------------------------------------

    def agree(self, step: int, line: Line, stop: threading.Event) -> Participants:
        """Wait until it is clear who takes part, and begin that epoch.

        Args:
            step: with which this agent would continue.
            line: to its neighbours.
            stop: set by whoever wants the node to end.
        """
        self._silent_since.clear()
        told_at = self._clock.now()
        while True:
            said = self._statements.get(self.agent)
            if said is None or said.lost != self.lost or said.epoch != self.epoch:
                line.say([self._state(step, frozenset(self.lost))])
            found = self._complete()
            if found is not None:
                return found
            with self.changed:
                epoch, count = self.epoch, len(self._statements)
                self._clock.wait_for(
                    self.changed,
                    lambda epoch=epoch, count=count: (self.epoch, len(self._statements)) != (epoch, count),  # type: ignore[misc]
                    self._ask_seconds,
                )
            if stop.is_set():
                raise Stopped(f"agent {self.agent} was told to stop while agents agreed on who takes part")
            silent = [one for one in self.neighbours if one not in self._statements and one not in self.lost]
            for number in silent:
                if line.ask_census(number):
                    self.heard(number)
                else:
                    self.heard_nothing(number)
            if silent and self._clock.now() - told_at >= _TELL_SECONDS:
                told_at = self._clock.now()
                log.info("agent %d waits for %s to say whom it has lost", self.agent, names(silent))

    def _complete(self) -> Participants | None:
        """The participants, if everybody has spoken who can be reached; the epoch has then begun."""
        with self.changed:
            lost = {agent: one.lost for agent, one in self._statements.items()}
            agents = reachable(self.agent, self._planned, lost) if self.agent in lost else None
            if agents is None:
                return None
            edges = tuple(
                (i, j) for i, j in self._edges if {i, j} <= agents and j not in lost[i] and i not in lost[j]
            )
            step = max(self._statements[agent].step for agent in agents)
            source = min(agent for agent in agents if self._statements[agent].step == step)
            self.begun, self._participants = self.epoch, frozenset(agents)
            return Participants(tuple(sorted(agents)), edges, self.epoch, step, source)
