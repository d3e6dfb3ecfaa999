"""What agents tell each other in a round, as bytes: a small header in MessagePack, then the numbers as they are.

    4 bytes     length of the header, little-endian
    header      version, run, sender, round, durable round, lives of both ends, dtype and shape of each array
    heard       4 bytes for each agent: its latest round that reached the sender (if nodes continue without others)
    the rest    the numbers of all arrays, little-endian

Whatever arrives is checked in every field before a number of it is used, and nothing in it is ever executed: a
message is either what was expected or a `Rejected` with the reason. The decoder does not raise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np

VERSION = 3
LONGEST_HEADER = 512
LONGEST_LIFE = 2**62
Header = TypeVar("Header")
Found = TypeVar("Found")


class _Header(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    version: int
    run: str
    sender: int
    round: int
    durable: int
    life: int
    known: int
    arrays: list[tuple[str, list[int]]]


NOBODY = np.zeros(0, np.int64)


class Message(NamedTuple):
    """What an agent tells its neighbours in a round."""

    sender: int
    round: int
    durable: int
    """The round up to which the sender will never fall back, as a checkpoint holds its state there."""
    values: tuple[np.ndarray, ...]
    """One array `(chains, …)` for each leaf of the sampler's message."""
    heard: np.ndarray = NOBODY
    """`(agents,)`: the latest round of each agent that has reached the sender; empty if nobody counts them."""
    life: int = 0
    """A number that the sender chose when it began; another one says that it has lost all memory."""
    known: int = 0
    """In a wish for an edge, the receiver's life in which the sender last used it; 0 if it did not."""


class Rejected(NamedTuple):
    """A message that was not taken."""

    reason: str
    other_run: bool = False
    """Whether it belongs to another run: then a plan differs."""


@dataclass(frozen=True)
class Codec:
    """Encodes and decodes the messages of one run.

    Attributes:
        run: the run's identity, a digest of its plan.
        arrays: shape and dtype of each array of a message.
        num_rounds: rounds lie between 0 and this.
        num_heard: of how many agents a message says what was heard.

    >>> codec = Codec("abc", (((1, 2), "float32"),), 10)
    >>> codec.decode(codec.encode(Message(3, 5, 0, (np.array([[1.0, 2.0]]),))), 3).values[0].tolist()
    [[1.0, 2.0]]
    >>> codec.decode(b"nonsense", 3).reason
    'its header is no header'
    """

    run: str
    arrays: tuple[tuple[tuple[int, ...], str], ...]
    num_rounds: int
    num_heard: int = 0

    @cached_property
    def longest(self) -> int:
        """Bytes that a message has at most."""
        return 4 + LONGEST_HEADER + self._num_bytes

    @cached_property
    def _num_bytes(self) -> int:
        return 4 * self.num_heard + sum(length for _, _, length in self._layout)

    def encode(self, message: Message) -> bytes:
        """A message as bytes."""
        header = msgspec.msgpack.encode(
            _Header(
                VERSION,
                self.run,
                message.sender,
                message.round,
                message.durable,
                message.life,
                message.known,
                self._announced,
            )
        )
        parts = [len(header).to_bytes(4, "little"), header]
        if self.num_heard:
            parts.append(message.heard.astype("<i4").tobytes())
        for values, (_, little, _) in zip(message.values, self._layout, strict=True):
            parts.append(np.ascontiguousarray(values, little).tobytes())
        return b"".join(parts)

    def decode(self, payload: Any, sender: int) -> Message | Rejected:
        """The message in some bytes from `sender`, or why it is none."""
        content = bytes(payload)
        numbers = self._num_bytes
        found = read_header(content, self.longest, _Header)
        if isinstance(found, Rejected):
            return found
        header, length = found
        refused = self._refusal(header, sender)
        if refused is not None:
            return refused
        if len(content) != 4 + length + numbers:
            return Rejected(f"it holds {len(content) - 4 - length:,} bytes behind its header, expected {numbers:,}")
        heard, values, place = NOBODY, [], 4 + length + 4 * self.num_heard
        if self.num_heard:
            heard = np.frombuffer(content, "<i4", self.num_heard, 4 + length).astype(np.int64)
            if not (heard.min() >= 0 and heard.max() <= self.num_rounds):
                return Rejected("it has heard of rounds that are none of this run's")
        for shape, little, size in self._layout:
            values.append(np.frombuffer(content, little, size // little.itemsize, place).reshape(shape))
            place += size
        if not all(map(is_finite, values)):
            return Rejected("it holds numbers that are not finite")
        return Message(header.sender, header.round, header.durable, tuple(values), heard, header.life, header.known)

    def decode_all(self, payload: Any, sender: int) -> list[Message | Rejected]:
        """The messages in what `join` made; after one that does not fit, nothing more is read."""
        return decode_each(payload, lambda one: self.decode(one, sender))

    @cached_property
    def _layout(self) -> list[tuple[tuple[int, ...], np.dtype[Any], int]]:
        """Shape, dtype on the wire and bytes of each array."""
        kinds = [(shape, np.dtype(dtype).newbyteorder("<")) for shape, dtype in self.arrays]
        return [(shape, little, math.prod(shape) * little.itemsize) for shape, little in kinds]

    @cached_property
    def _announced(self) -> list[tuple[str, list[int]]]:
        return [(dtype, list(shape)) for shape, dtype in self.arrays]

    def _refusal(self, header: _Header, sender: int) -> Rejected | None:
        if header.version != VERSION:
            return Rejected(f"it is of version {header.version}, expected {VERSION}")
        if header.run != self.run:
            return Rejected("it belongs to another run", other_run=True)
        if header.sender != sender:
            return Rejected(f"agent {sender} sent it in the name of agent {header.sender}")
        if not 0 <= header.round <= self.num_rounds:
            return Rejected(f"its round {header.round} is none of this run's")
        if not 0 <= header.durable <= header.round:
            return Rejected(f"its durable round {header.durable} is not before its round {header.round}")
        if not (0 <= header.life <= LONGEST_LIFE and 0 <= header.known <= LONGEST_LIFE):
            return Rejected("its life is none")
        if header.arrays != self._announced:
            return Rejected(f"it holds {_shown(header.arrays)}, expected {_shown(self._announced)}")
        return None


def is_finite(values: np.ndarray) -> bool:
    """Whether all numbers are finite: sure, and quick to see, if the sum of their squares is.

    >>> [is_finite(np.array(numbers)) for numbers in ([1.0, 2.0], [1e200, 3.0], [1.0, np.nan], [np.inf, np.nan])]
    [True, True, False, False]
    """
    flat = values.reshape(-1)
    return math.isfinite(np.dot(flat, flat)) or bool(np.isfinite(flat).all())


def _shown(arrays: list[tuple[str, list[int]]]) -> str:
    return ", ".join(f"{dtype[:16]} {shape[:8]}" for dtype, shape in arrays[:4]) or "nothing"


def read_header(content: bytes, longest: int, kind: type[Header]) -> tuple[Header, int] | Rejected:
    """The header in front of some bytes and its length, or why there is none."""
    if len(content) > longest:
        return Rejected(f"it is {len(content):,} bytes long, {longest:,} at most")
    length = int.from_bytes(content[:4], "little")
    if len(content) < 4 or length > LONGEST_HEADER or 4 + length > len(content):
        return Rejected("its header is no header")
    try:
        return msgspec.msgpack.decode(content[4 : 4 + length], type=kind), length
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return Rejected("its header is no header")


def decode_each(payload: Any, decode: Callable[[Any], Found | Rejected]) -> list[Found | Rejected]:
    """The messages in what `join` made; after one that does not fit, nothing more is read."""
    content = memoryview(bytes(payload))
    found: list[Found | Rejected] = []
    while content:
        length = int.from_bytes(content[:4], "little")
        if len(content) < 4 or length > len(content) - 4:
            return [*found, Rejected("it ends early")]
        found.append(decode(content[4 : 4 + length]))
        if isinstance(found[-1], Rejected):
            return found
        content = content[4 + length :]
    return found


def join(encoded: Iterable[bytes]) -> bytes:
    """Several messages, each behind its length."""
    return b"".join(len(one).to_bytes(4, "little") + one for one in encoded)
