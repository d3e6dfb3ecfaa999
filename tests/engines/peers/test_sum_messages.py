"""The wire format of sums: what goes out comes back, and nothing else is ever taken or raises."""

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.engines.peers.messages import Rejected, join
from consilience.engines.peers.sum_messages import MOST_DRAWS, Label, Phase, SumCodec, SumMessage
from consilience.errors import SumError

CODEC = SumCodec("run", 5, 10)
WORDS = np.array([1, 2**63, 2**64 - 1], np.uint64)
LABEL = Label(2, 1, 7, 3)
GOOD = CODEC.encode(SumMessage(4, Phase.PART, LABEL, WORDS, b"digest", 5, 4))


def header(words=WORDS, **changes):
    """A part of agent 4 with some header entries changed."""
    entries = {
        "version": 1, "run": "run", "sender": 4, "origin": 4, "phase": 0, "epoch": 2, "number": LABEL.number,
        "durable": 5, "digest": b"digest", "size": len(words),
    }  # fmt: skip
    encoded = msgspec.msgpack.encode(list({**entries, **changes}.values()))
    return len(encoded).to_bytes(4, "little") + encoded + words.tobytes()


@pytest.mark.parametrize("phase", [Phase.PART, Phase.TOTAL, Phase.FLOOD, Phase.ADOPT])
def test_a_message_comes_back_as_it_was(phase):
    sent = SumMessage(4, phase, LABEL, WORDS, b"digest", 5, 3)
    found = CODEC.decode(CODEC.encode(sent), 4)
    np.testing.assert_array_equal(found.words, WORDS)
    assert found._replace(words=None) == sent._replace(words=None)
    assert CODEC.decode(header(), 4).label == LABEL


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"version": 2}, "version 2, expected 1"),
        ({"run": "other"}, "another run"),
        ({"sender": 3}, "in the name of agent 3"),
        ({"origin": 5}, "origin 5 is no agent"),
        ({"phase": 7}, "phase 7 is none"),
        ({"phase": 6}, "a step or an agent that is none"),
        ({"phase": -1}, "phase -1 is none"),
        ({"epoch": 2**32}, "label is none"),
        ({"number": -1}, "label is none"),
        ({"number": 2**63}, "label is none"),
        ({"durable": LABEL.number + 1}, "is not before"),
        ({"durable": -1}, "is not before"),
        ({"digest": b"x" * 17}, "17 bytes, 16 at most"),
        ({"size": 11}, "11 words, 10 at most"),
        ({"size": -1}, "-1 words"),
        ({"size": 2}, "24 bytes behind its header, expected 16"),
        ({"phase": 4}, "3 words, 2 at most"),
        ({"phase": 5}, "repeats draws that are none"),
        ({"sender": "4"}, "no header"),
        ({"digest": "text"}, "no header"),
        ({"extra": 1}, "no header"),
    ],
)
def test_every_field_is_checked(change, reason):
    found = CODEC.decode(header(**change), 4)
    assert isinstance(found, Rejected)
    assert reason in found.reason
    assert found.other_run == ("run" in change)


def test_length_is_limited_before_anything_is_read():
    assert "bytes long" in CODEC.decode(GOOD + b"x" * 100_000, 4).reason
    assert "bytes behind its header" in CODEC.decode(GOOD + b"x", 4).reason
    assert "no header" in CODEC.decode((2**31).to_bytes(4, "little") + b"x" * 40, 4).reason


def test_where_and_retries_come_back():
    at = CODEC.decode(header(np.array([1, 7], np.uint64), phase=4), 4)
    assert (at.phase, at.words.tolist()) == (Phase.AT, [1, 7])
    assert CODEC.decode(header(np.array([5, 5], np.uint64), phase=5), 4).words.tolist() == [5, 5]
    assert CODEC.decode(header(np.zeros(0, np.uint64), phase=5), 4).words.size == 0
    assert isinstance(CODEC.decode(header(np.array([MOST_DRAWS], np.uint64), phase=5), 4), Rejected)


@given(st.binary(max_size=300))
@settings(max_examples=200, deadline=None)
def test_random_bytes_are_never_taken(content):
    assert isinstance(CODEC.decode(content, 4), Rejected)
    assert not [found for found in CODEC.decode_all(content, 4) if isinstance(found, SumMessage)]


@given(st.integers(0, len(GOOD) - 1), st.integers(1, 255), st.booleans())
@settings(max_examples=300, deadline=None)
def test_damaged_messages_are_taken_only_if_still_whole(place, change, cut):
    content = bytearray(GOOD)
    content[place] ^= change
    sent = bytes(content[:place]) if cut else bytes(content)
    found = CODEC.decode(sent, 4)
    if isinstance(found, SumMessage):
        assert not cut
        assert found.sender == 4
        assert 0 <= found.durable <= found.label.number
        assert 0 <= found.origin < 5
        assert found.words.size == 3
    behind = CODEC.decode_all(join([GOOD, sent]), 4)
    assert isinstance(behind[0], SumMessage)
    assert [type(one) for one in behind[1:]] == [type(found)]


@given(st.integers(0, 2**12 - 1), st.integers(0, 2**31 - 1), st.integers(0, 2**20 - 1), st.integers(0, 2**63 - 2))
@settings(max_examples=200, deadline=None)
def test_numbers_and_labels_are_the_same_and_ordered_alike(attempt, draw, operation, other):
    label = Label(0, attempt, draw, operation)
    assert Label.of(0, label.number) == label
    assert (Label.of(0, other) < label) == (other < label.number)


@pytest.mark.parametrize(
    ("label", "message"),
    [
        (Label(0, 2**12, 0, 0), "same kind of processor"),
        (Label(0, 0, 2**31, 0), "more than a network can count"),
        (Label(0, 0, 0, 2**20), "limit the length of a trajectory"),
    ],
)
def test_labels_that_cannot_be_say_what_to_do(label, message):
    with pytest.raises(SumError, match=message):
        label.require_possible()
