"""What each agent is doing, in a word: from what nodes answer, or from what runs say of themselves.

A node that waits does not say so: its round stands still while a neighbour is gone or behind. So two answers are
compared, and time is passed in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

_STILL_SECONDS = 3.0
"""After how long a round that stands still is called waiting."""
_BEHIND_SECONDS = 6.0
"""By how much time an agent is behind the first one, before it is called that."""
_OF_RUN = {"running": "sampling", "complete": "done", "interrupted": "stopped", "failed": "failed"}


class Agent(NamedTuple):
    """One agent as it is shown."""

    number: int
    state: str
    """`warming up`, `sampling`, `waiting`, `behind`, `lost`, `stopped`, `failed`, `done`, `silent`, `not here yet`,
    `here`, `unknown`."""
    detail: str = ""
    round: int | None = None
    rate: float | None = None
    """Rounds (or moves) a second."""
    durable: int | None = None
    """Up to where checkpoints reach."""


class Heard(NamedTuple):
    """When a node was last heard, and when its round last moved."""

    round: int
    moved: float
    """When the round was last seen to move."""
    began: tuple[int, float]
    """A round and when it was heard, some seconds ago: for the rate."""
    at: float


class Hearing:
    """What was heard of nodes, answer by answer.

    >>> hearing = Hearing()
    >>> node = {"agent": 0, "here": True, "round": 10, "num_rounds": 90, "done": False, "neighbours": {"1": True}}
    >>> hearing.take([node, {**node, "agent": 1}], 100.0)
    >>> hearing.take([node, {"agent": 1, "here": False}, {"agent": 2, "here": False}], 101.0)
    >>> [one.state for one in hearing.agents({1: "running", 2: "running"})]
    ['sampling', 'lost', 'silent']
    """

    def __init__(self) -> None:
        self._heard: dict[int, Heard] = {}
        self.answers: dict[int, Mapping[str, Any]] = {}
        """The last answer of each node that answered last time; others are left out."""
        self.last: dict[int, Mapping[str, Any]] = {}
        """The last answer of each node, also of those that answer no more."""
        self._asked: list[int] = []
        self._now = 0.0

    def take(self, answers: Sequence[Mapping[str, Any]], now: float) -> None:
        """Take in what nodes answered when they were asked."""
        self._now, self._asked = now, [one["agent"] for one in answers]
        self.answers = {one["agent"]: one for one in answers if one["here"]}
        self.last |= self.answers
        for agent, one in self.answers.items():
            before = self._heard.get(agent)
            if before is None or one["round"] < before.round:
                self._heard[agent] = Heard(one["round"], now, (one["round"], now), now)
                continue
            moved = now if one["round"] > before.round else before.moved
            began = before.began if now - before.began[1] < 10 else (before.round, before.at)
            self._heard[agent] = Heard(one["round"], moved, began, now)

    def rate(self, agent: int) -> float | None:
        """Rounds a second over the last seconds."""
        if agent not in self._heard or agent not in self.answers:
            return None
        one = self._heard[agent]
        seconds = one.at - one.began[1]
        return (one.round - one.began[0]) / seconds if seconds > 0 else None

    def agents(self, statuses: Mapping[int, str]) -> list[Agent]:
        """Each node that was asked; `statuses` are those of the runs that are there."""
        first = max((one["round"] for one in self.answers.values()), default=0)
        return [self._agent(agent, first, statuses.get(agent)) for agent in self._asked]

    def _agent(self, agent: int, first: int, status: str | None) -> Agent:
        one = self.answers.get(agent)
        if one is None:
            word = _OF_RUN.get(status or "", "not here yet")
            heard = self._heard.get(agent)
            if word in ("sampling", "not here yet"):
                word = "lost" if heard else "silent" if status else word
            detail = "does not answer" if word == "lost" else "does not answer yet" if word == "silent" else ""
            return Agent(agent, word, detail, None if heard is None else heard.round)
        rate, heard = self.rate(agent), self._heard[agent]
        shown = Agent(agent, "sampling", "", one["round"], rate, one.get("durable"))
        if one["done"]:
            return shown._replace(state="done")
        waits = self._waits_for(one)
        if self._now - heard.moved > _STILL_SECONDS and waits:
            return shown._replace(state="waiting", detail=f"for {_names(waits)}")
        fastest = max((self.rate(other) or 0.0 for other in self.answers), default=0.0)
        if first - one["round"] > max(10.0, _BEHIND_SECONDS * fastest):
            return shown._replace(state="behind", detail=f"by {first - one['round']:,}")
        return shown._replace(state="warming up" if one.get("warming_up") else "sampling")

    def _waits_for(self, one: Mapping[str, Any]) -> list[int]:
        """The neighbours that are gone, or else those that are not further than this node."""
        neighbours = {int(number): here for number, here in one["neighbours"].items()}
        gone = [number for number, here in neighbours.items() if not here and number not in one.get("lost", ())]
        slow = [n for n in neighbours if n in self.answers and self.answers[n]["round"] <= one["round"]]
        return gone or slow


def seen_by(agent: int, answer: Mapping[str, Any] | None, num_agents: int) -> list[Agent]:
    """The others as one node sees them: its neighbours, and nobody else."""
    neighbours = {} if answer is None else {int(number): here for number, here in answer["neighbours"].items()}
    return [
        Agent(other, ("here" if neighbours[other] else "lost") if other in neighbours else "unknown")
        for other in range(num_agents)
        if other != agent
    ]


def alike(
    num_agents: int, status: str, step: int, warming_up: bool, silent: float | None, rate: float | None
) -> list[Agent]:
    """All agents of one program, which are where the run is."""
    word = _OF_RUN.get(status, status)
    if word == "sampling" and silent is not None:
        return [Agent(number, "silent", f"nothing new for {silent:.0f} s") for number in range(num_agents)]
    word = "warming up" if word == "sampling" and warming_up else word
    rate = rate if status in ("running", "complete") else None
    return [Agent(number, word, round=step, rate=rate) for number in range(num_agents)]


def all_wait(agents: Sequence[Agent]) -> bool:
    """Whether nobody samples: each waits, or is not there.

    >>> all_wait([Agent(0, "waiting"), Agent(1, "lost")]), all_wait([Agent(0, "waiting"), Agent(1, "sampling")])
    (True, False)
    """
    states = {one.state for one in agents}
    return bool(states & {"waiting", "lost"}) and states <= {"waiting", "lost", "silent", "stopped", "failed"}


def _names(numbers: Sequence[int]) -> str:
    return ", ".join(f"agent {number}" for number in numbers)
