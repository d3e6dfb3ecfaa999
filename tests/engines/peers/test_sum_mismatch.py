"""What does not fit is an error that names the agents and says what to do; nobody waits for what cannot come."""

import logging
import threading
from dataclasses import replace

import numpy as np
import pytest

import consilience as cs
from consilience.engines.peers.memory import MemoryNetwork
from consilience.engines.peers.participants import Participants
from consilience.engines.peers.sum_messages import Label, Phase, SumMessage
from consilience.engines.peers.sums import Place, Sums
from consilience.engines.peers.transport import Handlers
from consilience.engines.peers.wire import GONE
from consilience.errors import Disagreement, Retry, RunError, Stopped, SumError
from tests.engines.peers.test_sums import replicas  # noqa: F401 - a fixture

PAIR = cs.graphs.path(3)  # agent 1 is the root
WORDS = np.arange(4, dtype=np.uint64)


class Scripted:
    """A node whose neighbours are a test: what they send is put in, what they answer is given."""

    def __init__(self, agent=1, graph=PAIR, ask_seconds=0.01, **options):
        self.answers, self.sent = {}, []
        self.sums = Sums(agent, graph, "run", 100, ask_seconds=ask_seconds, **options)
        self.sums.attach(self)

    def send(self, neighbour, content):
        self.sent += [(neighbour, one) for one in self.sums.lines.codec.decode_all(content, self.sums.agent)]

    def ask(self, neighbour, what, seconds, content=None):
        return self.answers.get(neighbour, lambda what: None)(what)

    def hear(self, sender, phase, label, words, digest=b"state", **fields):
        message = SumMessage(sender, phase, label, np.asarray(words, np.uint64), digest, origin=sender, **fields)
        self.sums.lines.receive(sender, self.joined(message))

    def joined(self, message):
        content = self.sums.lines.codec.encode(message)
        return len(content).to_bytes(4, "little") + content

    def total(self, words=WORDS, draw=3):
        self.sums.begin_draw(draw, 0, b"state")
        return self.sums.total(words)


FIRST = Label(0, 0, 3, 0)


def test_another_state_at_the_start_is_an_error():
    node = Scripted()
    node.hear(0, Phase.PART, FIRST, range(6), digest=b"other")
    with pytest.raises(SumError, match="agents 1 and 0 do not start draw 3 from the same state"):
        node.total()


def test_another_number_of_words_is_an_error():
    node = Scripted()
    node.hear(0, Phase.PART, FIRST, range(9))
    with pytest.raises(SumError, match="agent 1 has 6 words and agent 0 9"):
        node.total()


def test_a_later_epoch_is_an_error_and_an_earlier_one_is_nothing():
    node = Scripted(graph=replace(Participants.everybody(PAIR), epoch=4))
    node.hear(0, Phase.PART, FIRST._replace(epoch=3), range(6))
    assert node.sums.lines.counts["outdated"] == 1
    node.hear(0, Phase.PART, FIRST._replace(epoch=5), range(6))
    with pytest.raises(SumError, match="agent 0 is in epoch 5 and agent 1 in epoch 4"):
        node.total()


def test_two_results_of_one_operation_are_an_error():
    node = Scripted(agent=0)
    node.hear(1, Phase.TOTAL, FIRST, range(6))
    node.hear(1, Phase.TOTAL, FIRST, range(1, 7))
    with pytest.raises(SumError, match="agents 1 and 1 tell two things about the result"):
        node.total()


def test_messages_of_another_run_or_damaged_are_counted_and_dropped(caplog):
    node, other = Scripted(), Sums(0, PAIR, "other", 100)
    message = SumMessage(0, Phase.PART, FIRST, np.arange(6, dtype=np.uint64), b"state")
    found = []
    node.sums.lines.rejected = lambda number, rejected: found.append((number, rejected.other_run))
    content = other.lines.codec.encode(message)
    node.sums.lines.receive(0, len(content).to_bytes(4, "little") + content)
    node.sums.lines.receive(0, b"nonsense")
    node.sums.lines.receive(2, node.joined(message))  # in the name of another
    assert found == [(0, True), (0, False), (2, False)]
    assert node.sums.lines.counts["rejected"] == 3


@pytest.mark.parametrize(("algorithm", "masked"), [("flood", False), ("tree", True)])
def test_another_algorithm_is_another_run(algorithm, masked):
    class NoMask:
        def of(self, epoch, number, size):
            return np.zeros(size, np.uint64)

    node, other = Scripted(), Sums(0, PAIR, "run", 100, algorithm=algorithm, masks=NoMask() if masked else None)
    sent = other.lines.codec.encode(SumMessage(0, Phase.AT, FIRST, np.zeros(2, np.uint64)))
    assert node.sums.lines.codec.decode(sent, 0).other_run


def test_a_neighbour_in_another_kind_of_operation_disagrees():
    node = Scripted(agent=0)
    node.hear(1, Phase.ADOPT, FIRST, WORDS)
    with pytest.raises(Disagreement) as found:
        node.total()
    assert (found.value.draw, found.value.attempt) == (3, 1)
    retries = [(to, one.words.tolist()) for to, one in node.sent if one.phase == Phase.RETRY]
    assert retries == [(1, [3])]
    with pytest.raises(Retry):  # until the draw begins anew
        node.sums.total(WORDS)
    node.sums.begin_draw(3, 1, b"state")
    assert node.sums.label == Label(0, 1, 3, 0)


def test_a_neighbour_that_is_past_the_draw_disagrees():
    node = Scripted()
    where = SumMessage(0, Phase.AT, Label(0, 0, 4, 0), np.array([Phase.ADOPT, 4], np.uint64))
    node.answers[0] = lambda what: node.joined(where)
    with pytest.raises(Disagreement):
        node.total()


def test_what_is_gone_is_an_error_with_a_remedy():
    node = Scripted(agent=0)
    node.answers[1] = lambda what: GONE
    with pytest.raises(SumError, match=r"agent 1 no longer has.*restore it from a copy"):
        node.total()


def test_a_node_says_that_it_no_longer_has_a_total():
    node = Scripted()
    node.sums.start_at(Place(5, ()))
    lines = node.sums.lines
    assert lines.answer(f"totals/{Label(0, 0, 4, 2).number}") == GONE
    assert lines.answer(f"totals/{Label(0, 0, 5, 0).number}") != GONE
    assert [lines.answer(what) for what in ("status", "totals/", "totals/-1", "totals/x", "since/1", "part/²")] == [
        None
    ] * 6


def test_a_waiting_node_can_be_stopped_and_says_for_whom_it_waits(caplog):
    stop = threading.Event()
    node = Scripted(stop=stop)
    times = []

    def answer(what):
        times.append(what)
        if len(times) == 5:
            stop.set()

    node.answers[0] = answer
    with caplog.at_level(logging.INFO), pytest.raises(Stopped):
        node.total()
    assert [record.getMessage() for record in caplog.records if "waits for" in record.getMessage()] == [
        "agent 1 waits for agent 0, agent 2 in operation 0 of draw 3"
    ]
    assert times[0] == f"part/{FIRST.number}"


def test_a_sum_that_forgets_an_agent_is_noticed_by_all(replicas):  # noqa: F811
    network = replicas(cs.graphs.path(5))
    for agent in range(5):
        network.start(agent)
    network.clock.run_until(lambda: len(network.sums) == 5, "all nodes")
    network.sums[1].children = ()
    for agent in (1, 2, 3, 4):
        network.clock.run_until(lambda agent=agent: network.turns[agent].ended, "an error")
        assert "counts 4 of 5 agents" in str(network.turns[agent].error)


def test_saved_totals_that_are_damaged_say_what_to_do(tmp_path):
    node, path = Scripted(agent=0), tmp_path / "totals"
    node.hear(1, Phase.TOTAL, FIRST, [*WORDS, 0, 3])
    assert node.total().tolist() == WORDS.tolist()
    log, codec = node.sums.lines.log, node.sums.lines.codec
    log.save(path, 0, FIRST.number + 1, codec, lambda place, content: place.write_bytes(content))
    again = Scripted(agent=0)
    again.sums.start_at(Place(4, ()))
    again.sums.lines.log.load(path, codec, 0)
    assert [one.words.tolist() for one in again.sums.lines.log.since(0)] == [[*WORDS.tolist(), 0, 3]]
    assert again.sums.lines.log.oldest == 0
    with pytest.raises(RunError, match="none of this run's"):
        again.sums.lines.log.load(path, Sums(0, PAIR, "other", 9).lines.codec, 0)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(RunError, match="are damaged: restore the file"):
        again.sums.lines.log.load(path, codec, 0)
    with pytest.raises(RunError, match="cannot be read"):
        again.sums.lines.log.load(tmp_path / "missing", codec, 0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda sums: sums.total(np.zeros(3)), "vector of uint64, got float64"),
        (lambda sums: sums.total(np.zeros((2, 2), np.uint64)), "encode values first"),
        (lambda sums: sums.total(np.zeros(101, np.uint64)), "raise it at every agent"),
        (lambda sums: sums.adopt(None), "the tree's root"),
        (lambda sums: [sums.begin_draw(4, 0), sums.begin_draw(3, 0)], "in their order"),
    ],
)
def test_what_cannot_be_summed_is_said(call, message):
    with pytest.raises(SumError, match=message):
        call(Scripted().sums)


def test_a_message_to_one_neighbour_reaches_no_other():
    network, heard = MemoryNetwork(), []

    def handlers(agent):
        return Handlers(
            lambda sender, content: heard.append((agent, sender, content)), lambda *_: None, lambda *_: None,
            lambda *_: None, 100,
        )  # fmt: skip

    ends = [
        network.connect(agent, [other for other in range(3) if other != agent])(handlers(agent)) for agent in range(3)
    ]
    ends[0].send(2, b"yours")
    network.cut.add(frozenset((0, 1)))
    ends[0].send(1, b"lost")
    assert heard == [(2, 0, b"yours")]
