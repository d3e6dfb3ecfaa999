"""A node's log while it samples: at once, then every ten seconds, never more."""

import logging
from types import SimpleNamespace

from consilience.deployment.node_log import progress_log
from consilience.engines.peers.unison_node import UnisonNode
from consilience.runs.loop import Progress
from tests.made_runs import unison_plan


class Clock:
    """A clock that somebody sets."""

    seconds = 100.0

    def now(self):
        return self.seconds


def test_a_node_says_where_it_is_every_ten_seconds(caplog):
    clock = Clock()
    say = progress_log(2, clock)
    with caplog.at_level(logging.INFO, logger="consilience.peers"):
        for second in range(25):
            clock.seconds = 100.0 + second
            say(Progress(1 + 100 * second, 4000, 100.0, {"distance_to_neighbours": 0.5}))
        say(Progress(4000, 4000, 100.0, {}, 0.5))  # what comes after sampling is no round
    assert caplog.messages == [
        "agent 2: round 1 of 4,000, distance to neighbours 0.5",
        "agent 2: round 1,001 of 4,000, 100 rounds/s, 30 s left, distance to neighbours 0.5",
        "agent 2: round 2,001 of 4,000, 100 rounds/s, 20 s left, distance to neighbours 0.5",
    ]
    assert caplog.records[1].round == 1001


def test_a_node_in_unison_says_what_it_does_and_whose_posterior_it_samples(caplog):
    clock = Clock()
    node = SimpleNamespace(
        agent=1, plan=unison_plan(3, 100), time=clock, participants=SimpleNamespace(agents=(0, 1, 2)), _said_at=0.0
    )
    with caplog.at_level(logging.INFO, logger="consilience.peers"):
        for seconds, step in ((100.0, 5), (109.0, 10), (110.0, 15), (120.0, 1020)):
            clock.seconds = seconds
            UnisonNode._say(node, step)
        node.participants.agents, clock.seconds = (0, 1), 130.0
        UnisonNode._say(node, 1030)
    assert caplog.messages == [
        "agent 1: warming up, 5 of 20", "agent 1: warming up, 15 of 20", "agent 1: 1,000 draws",
        "agent 1: 1,010 draws, of the posterior of agent 0, agent 1 only",
    ]  # fmt: skip
    assert caplog.records[-1].round == 1030
