"""A node's log while it samples: at once, then every ten seconds, never more."""

import logging

from consilience.deployment.node_log import progress_log
from consilience.runs.loop import Progress


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
