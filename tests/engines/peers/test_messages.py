"""The wire format: what goes out comes back, and nothing else is ever taken or raises."""

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.engines.peers.messages import Codec, Message, Rejected, join

CODEC = Codec("run", (((2, 3), "float32"),), 100)
VALUES = np.arange(6, dtype=np.float32).reshape(2, 3)
GOOD = CODEC.encode(Message(4, 7, 5, (VALUES,)))
COUNTING = Codec("run", (((2, 3), "float32"),), 100, num_heard=3)
"""As nodes that continue without others have it."""
HEARD = COUNTING.encode(Message(4, 7, 5, (VALUES,), np.array([7, 6, 0])))
SEVERAL = Codec("run", (((2, 3), "float32"), ((2,), "float64"), ((2, 1, 2), "float32")), 100)
"""As a sampler has it whose message is a pytree of several arrays."""
PARTS = (VALUES, np.array([1.5, -2.0]), np.ones((2, 1, 2), np.float32))
WHOLE = SEVERAL.encode(Message(4, 7, 5, PARTS))


def header(**changes):
    """A message of agent 4 in round 7 with some header entries changed."""
    entries = {"version": 3, "run": "run", "sender": 4, "round": 7, "durable": 5, "life": 9, "known": 0}
    arrays = {"arrays": [["float32", [2, 3]]]}
    encoded = msgspec.msgpack.encode(list({**entries, **arrays, **changes}.values()))
    return len(encoded).to_bytes(4, "little") + encoded + VALUES.tobytes()


def test_a_message_comes_back_as_it_was():
    found = CODEC.decode(GOOD, 4)
    assert (found.sender, found.round, found.durable) == (4, 7, 5)
    np.testing.assert_array_equal(found.values[0], VALUES)
    assert CODEC.decode(header(), 4).round == 7
    assert COUNTING.decode(HEARD, 4).heard.tolist() == [7, 6, 0]
    assert isinstance(COUNTING.decode(GOOD, 4), Rejected)
    for mine, theirs in zip(SEVERAL.decode(WHOLE, 4).values, PARTS, strict=True):
        np.testing.assert_array_equal(mine, theirs)
        assert mine.dtype == theirs.dtype
    assert isinstance(SEVERAL.decode(GOOD, 4), Rejected)
    assert isinstance(CODEC.decode(WHOLE, 4), Rejected)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"version": 1}, "version 1, expected 3"),
        ({"run": "other"}, "another run"),
        ({"sender": 3}, "in the name of agent 3"),
        ({"round": 101}, "round 101 is none"),
        ({"round": -1}, "round -1 is none"),
        ({"durable": 8}, "durable round 8"),
        ({"life": -1}, "its life is none"),
        ({"known": 2**63}, "its life is none"),
        ({"arrays": [["float64", [2, 3]]]}, "float64"),
        ({"arrays": [["float32", [3, 2]]]}, "expected float32"),
        ({"arrays": [["float32", [2**60, 2**60]]]}, "expected float32"),
        ({"arrays": [["float32", [2, 3]]] * 2}, "expected float32"),
        ({"arrays": []}, "holds nothing"),
        ({"sender": "4"}, "no header"),
        ({"extra": 1}, "no header"),
    ],
)
def test_every_field_is_checked(change, reason):
    found = CODEC.decode(header(**change), 4)
    assert isinstance(found, Rejected)
    assert reason in found.reason
    assert found.other_run == ("run" in change)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_must_be_finite(bad):
    values = VALUES.copy()
    values[1, 2] = bad
    assert "not finite" in CODEC.decode(CODEC.encode(Message(4, 7, 5, (values,))), 4).reason


def test_length_is_limited_before_anything_is_read():
    assert "bytes long" in CODEC.decode(GOOD + b"x" * 10_000, 4).reason
    assert "bytes behind its header" in CODEC.decode(GOOD + b"x", 4).reason
    assert "no header" in CODEC.decode((2**31).to_bytes(4, "little") + b"x" * 40, 4).reason


@pytest.mark.slow(reason="5,000 random messages")
@settings(max_examples=5000, deadline=None)
@given(st.binary(max_size=600), st.sampled_from([CODEC, COUNTING, SEVERAL]))
def test_random_bytes_are_never_taken(content, codec):
    assert isinstance(codec.decode(content, 4), Rejected)
    assert not [found for found in codec.decode_all(content, 4) if isinstance(found, Message)]


@pytest.mark.slow(reason="5,000 damaged messages")
@settings(max_examples=5000, deadline=None)
@given(
    st.sampled_from([(CODEC, GOOD), (COUNTING, HEARD), (SEVERAL, WHOLE)]), st.integers(0, len(WHOLE) - 1),
    st.integers(1, 255), st.booleans(), st.integers(0, len(GOOD) - 1),
)  # fmt: skip
def test_damaged_messages_are_taken_only_if_still_whole(pair, place, change, cut, end):
    """A changed byte may give another valid round or number, never one outside the limits; a cut one is refused."""
    codec, whole = pair
    content = bytearray(whole)
    content[place % len(whole)] ^= change
    sent = bytes(content[:end]) if cut else bytes(content)
    found = codec.decode(sent, 4)
    if cut:
        assert isinstance(found, Rejected)
    elif isinstance(found, Message):
        assert found.sender == 4
        assert 0 <= found.durable <= found.round <= 100
        assert all(np.isfinite(one).all() for one in found.values)
        assert [one.shape for one in found.values] == [shape for shape, _ in codec.arrays]
        assert len(found.heard) == codec.num_heard
        assert ((found.heard >= 0) & (found.heard <= 100)).all()
    behind = codec.decode_all(join([whole, sent]), 4)
    assert isinstance(behind[0], Message)
    assert [type(one) for one in behind[1:]] == [type(found)]


def test_several_messages_at_once():
    many = join(CODEC.encode(Message(4, k, 0, (VALUES + k,))) for k in range(3))
    assert [found.round for found in CODEC.decode_all(many, 4)] == [0, 1, 2]
    assert isinstance(CODEC.decode_all(many[:-1], 4)[-1], Rejected)
    assert isinstance(CODEC.decode_all(many, 3)[0], Rejected)
    assert CODEC.decode_all(b"", 4) == []
