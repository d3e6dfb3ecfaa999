"""A coverage-guided fuzzer of all that a node does with bytes from others: `python -m tests.engines.peers.fuzz`.

Whatever comes, nothing may be raised, and what is taken must be whole. Options are those of libFuzzer, for example
`-max_total_time=20` or `-runs=1000000`. With PLANTED in the environment it looks for a fault that is there.
"""

import logging
import os
import resource
import sys

import atheris

with atheris.instrument_imports(include=["consilience.engines.peers", "msgspec"]):
    from consilience.engines.peers import mask_keys, messages, notices, sum_messages, sums, transport, wire

import numpy as np

from consilience.engines.peers.clock import SteadyClock
from consilience.engines.peers.edges import Edges
from consilience.engines.peers.mailbox import Inbox, Outbox
from consilience.engines.peers.membership import Membership
from consilience.graphs import path

CODEC = messages.Codec("run", (((2, 3), "float32"), ((2,), "float64")), 1000, 4)
VALUES = (np.ones((2, 3), np.float32), np.zeros(2))
GOOD = CODEC.encode(messages.Message(1, 7, 3, VALUES, np.array([1, 2, 3, 4])))
SUMS = sums.Sums(0, path(3), "run", 10)
PART = SUMS.lines.codec.encode(
    sum_messages.SumMessage(1, sum_messages.Phase.PART, sum_messages.Label(0, 0, 1, 0), np.ones(3, np.uint64))
)
REGISTRY = mask_keys.Registry("run", 3)
KEY = REGISTRY.announce(1, b"k" * 32)
SEEDS = [
    PART,
    messages.join([PART, PART]),
    KEY,
    b"totals/7",
    b"part/9",
    GOOD,
    messages.join([GOOD, GOOD]),
    notices.Notice(1, "why").encode("run"),
    b"since/7",
    b"edge/1",
    b"status",
]


class Rounds:
    """What a wire asks of rounds."""

    neighbours, continues, round, durable = [0, 1], True, 8, 3

    def __init__(self):
        self.outbox, self.inbox = Outbox(), Inbox(self.neighbours, 5)
        self.edges = Edges(0, {1: 1.0}, [(2, 3), (2,)], 4)
        self.outbox.keep(7, VALUES)

    def heard(self):
        return np.zeros(4, np.int64)


def one_input(content):
    """Hand some bytes to everything that takes bytes from others."""
    node = wire.Wire(0, CODEC, Rounds(), Membership(0, [0, 1], 4), {}, SteadyClock())
    node.receive(1, content)
    found = CODEC.decode(content, 1)
    if isinstance(found, messages.Message):
        same = all(np.array_equal(one, sent) for one, sent in zip(found.values, VALUES, strict=True))
        assert same or "PLANTED" not in os.environ, "the planted fault: no other values than these"
        assert 0 <= found.durable <= found.round <= CODEC.num_rounds
        assert all(np.isfinite(one).all() for one in found.values)
    for one in CODEC.decode_all(content, 1):
        assert isinstance(one, messages.Message | messages.Rejected)
    notice = notices.read_notice(content, "run", 4)
    assert notice is None or (0 <= notice.agent < 4 and notice.reason.isprintable())
    assert isinstance(transport.read_object(content), dict)
    node_of_sums = sums.Sums(0, path(3), "run", 10)
    node_of_sums.lines.receive(1, content)
    for one in node_of_sums.lines.codec.decode_all(content, 1):
        assert isinstance(one, sum_messages.SumMessage | messages.Rejected)
    assert isinstance(REGISTRY.read(content), mask_keys.Announcement | messages.Rejected)
    what, _, sent = content.partition(b"\0")
    answer = node_of_sums.lines.answer(what.decode(errors="replace"), sent)
    assert answer is None or isinstance(answer, bytes)
    answer = node.answer(what.decode(errors="replace"), sent)
    assert answer is None or isinstance(answer, bytes)


def main():
    logging.disable()  # every rejection would be said
    corpus = sys.argv[1]
    for number, seed in enumerate(SEEDS):
        with open(os.path.join(corpus, str(number)), "wb") as stream:
            stream.write(seed)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024  # of whoever started this process, too
    limit = f"-rss_limit_mb={before + 2048}"
    atheris.Setup([sys.argv[0], *sys.argv[2:], "-max_len=4096", limit, corpus], one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
