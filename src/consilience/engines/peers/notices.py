"""The last word of a node that cannot continue, and takes the network's run with it: who, and why.

A plan that is unstable on one agent's data, a chain that diverged, a state that is lost: the others would wait for
ever. So the agent tells its neighbours, they tell theirs, and all stop with the reason and a checkpoint.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from consilience.engines.peers.transport import read_object

_LONGEST_REASON = 2000


class Notice(NamedTuple):
    """Who cannot continue, and why."""

    agent: int
    reason: str
    ends_all: bool = False
    """Whether nodes that could continue without that agent are to stop too."""

    def encode(self, run: str) -> bytes:
        """As bytes, for the members of a run."""
        return json.dumps({**self._asdict(), "run": run, "reason": self.reason[:_LONGEST_REASON]}).encode()


def read_notice(content: bytes, run: str, num_agents: int) -> Notice | None:
    """The notice in some bytes; `None` if it is none of this run's.

    >>> read_notice(Notice(3, "its disk is lost").encode("abc"), "abc", 5)
    Notice(agent=3, reason='its disk is lost', ends_all=False)
    >>> read_notice(b"nonsense", "abc", 5)
    """
    found = read_object(content)
    agent, reason = found.get("agent"), found.get("reason")
    if found.get("run") != run or not isinstance(agent, int) or not 0 <= agent < num_agents:
        return None
    if not isinstance(reason, str) or len(reason) > _LONGEST_REASON:
        return None
    plain = "".join(letter if letter.isprintable() else " " for letter in reason)
    return Notice(agent, plain, found.get("ends_all") is True)
