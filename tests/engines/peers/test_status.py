"""What a node answers to whoever may ask how it is: messages, bytes, and why some were rejected."""

import json

from consilience.engines.peers.clock import SteadyClock
from consilience.engines.peers.connections import Connections
from consilience.engines.peers.membership import Membership


def test_bytes_and_reasons_are_told_and_a_flood_of_reasons_is_not_kept():
    members = Membership(0, [1, 2], 3)
    wire = Connections(0, "run", [1, 2], members, {}, SteadyClock(), 1000, 1000)
    wire.status = lambda: {"agent": 0}
    wire.counts["bytes_sent"] = 12
    for _ in range(3):
        members.reject(1, "not a message of this run")
    for number in range(50):
        members.reject(2, f"reason {number} " + "x" * 10_000)
    told = json.loads(wire.answer("status", b""))
    assert told["agent"] == 0
    assert told["traffic"] == {"bytes_sent": 12, "bytes_received": 0, "asked_for": 0}
    assert told["rejections"]["not a message of this run"] == 3
    assert len(told["rejections"]) == 8
    assert max(map(len, told["rejections"])) <= 160
