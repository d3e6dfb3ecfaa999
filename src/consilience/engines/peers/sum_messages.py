"""What agents tell each other for a sum, as bytes: a small header in MessagePack, then 64-bit words.

    4 bytes     length of the header, little-endian
    header      version, run, sender, origin, phase, epoch, number, durable number, digest, number of words
    the rest    the words, little-endian

An operation of the network (a total, or the adoption of the root's words) has a label that is never used twice:

    number = attempt · 2^51 + draw · 2^20 + operation

The attempt counts how often agents went back to repeat a draw, and comes first. So numbers go up in time, also where
a draw is repeated, and every agent that knows attempt and draw knows the number without asking anybody.

Whatever arrives is checked in every field; the decoder does not raise.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any, NamedTuple

import msgspec
import numpy as np

from consilience.engines.base import MOST_ATTEMPTS
from consilience.engines.peers.messages import LONGEST_HEADER, Rejected, decode_each, read_header
from consilience.errors import SumError

VERSION = 1
MOST_DRAWS, MOST_OPERATIONS = 2**31, 2**20
MOST_EPOCHS = 2**32
LONGEST_DIGEST = 16
_LARGEST_NUMBER = MOST_ATTEMPTS * MOST_DRAWS * MOST_OPERATIONS


class Phase(IntEnum):
    """What a message is about."""

    PART = 0
    """The sum of a subtree, for the parent."""
    TOTAL = 1
    """The sum of all, for the children and for whoever asks."""
    FLOOD = 2
    """One agent's own part, for everybody."""
    ADOPT = 3
    """The root's words, for the children and for whoever asks."""
    AT = 4
    """Where the sender is; its words are the kind of its operation and how many words that has."""
    RETRY = 5
    """Which draws were repeated, one for each attempt after the first."""
    CENSUS = 6
    """What an agent says about its neighbours, before an epoch begins: version, step, and whom it has lost."""


_PHASES = tuple(Phase)
UNKNOWN = int(Phase.AT)
"""In `AT`, the kind of an operation that has not begun."""


class Label(NamedTuple):
    """Which operation of the network it is; labels are ordered as in time.

    >>> label = Label(0, 1, 17, 3)
    >>> Label.of(0, label.number) == label, label.number < Label(0, 1, 18, 0).number < Label(0, 2, 17, 0).number
    (True, True)
    """

    epoch: int
    attempt: int
    draw: int
    operation: int

    @property
    def number(self) -> int:
        """The label within its epoch, as one number."""
        return (self.attempt * MOST_DRAWS + self.draw) * MOST_OPERATIONS + self.operation

    @classmethod
    def of(cls, epoch: int, number: int) -> Label:
        """The label with a number."""
        rest, operation = divmod(number, MOST_OPERATIONS)
        return cls(epoch, *divmod(rest, MOST_DRAWS), operation)

    def __str__(self) -> str:
        again = f", attempt {self.attempt}" if self.attempt else ""
        return f"operation {self.operation} of draw {self.draw:,}{again}"

    def require_possible(self) -> None:
        """Check that the numbers are ones that a label can hold."""
        if not 0 <= self.attempt < MOST_ATTEMPTS:
            raise SumError(
                f"agents went back {self.attempt:,} times since they take different decisions: let all nodes run the "
                "same versions on the same kind of processor, or draw with a smaller step size"
            )
        if not (0 <= self.epoch < MOST_EPOCHS and 0 <= self.draw < MOST_DRAWS):
            raise SumError(f"draw {self.draw:,} of epoch {self.epoch:,} is more than a network can count")
        if not 0 <= self.operation < MOST_OPERATIONS:
            raise SumError(
                f"draw {self.draw:,} needs more than {MOST_OPERATIONS:,} sums: limit the length of a trajectory"
            )


class _Header(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    version: int
    run: str
    sender: int
    origin: int
    phase: int
    epoch: int
    number: int
    durable: int
    digest: bytes
    size: int


class SumMessage(NamedTuple):
    """What an agent tells a neighbour about an operation."""

    sender: int
    phase: Phase
    label: Label
    words: np.ndarray
    """`(words,)` of uint64."""
    digest: bytes = b""
    """Of the state that the sender adopted at the start of the draw."""
    durable: int = 0
    """Nobody that the message speaks for will fall back behind this number: a checkpoint holds its state there."""
    origin: int = 0
    """Whose part it is, if parts are flooded."""


@dataclass(frozen=True)
class SumCodec:
    """Encodes and decodes the sums' messages of one run.

    Attributes:
        run: the run's identity, a digest of its plan.
        num_agents: of the whole network.
        most_words: that an operation has at most.

    >>> codec = SumCodec("abc", 5, 100)
    >>> sent = codec.encode(SumMessage(3, Phase.PART, Label(0, 0, 7, 1), np.array([1, 2**64 - 1], np.uint64)))
    >>> codec.decode(sent, 3).words.tolist()
    [1, 18446744073709551615]
    >>> codec.decode(sent, 2).reason
    'agent 2 sent it in the name of agent 3'
    """

    run: str
    num_agents: int
    most_words: int

    @cached_property
    def longest(self) -> int:
        """Bytes that a message has at most."""
        return 4 + LONGEST_HEADER + 8 * max(self.most_words, MOST_ATTEMPTS, 2 + self.num_agents)

    @cached_property
    def _sizes(self) -> list[tuple[int, int]]:
        """The fewest and the most words of a message in each phase."""
        special = {
            Phase.AT: (2, 2), Phase.RETRY: (0, MOST_ATTEMPTS), Phase.CENSUS: (2, 2 + self.num_agents),
        }  # fmt: skip
        return [special.get(phase, (0, self.most_words)) for phase in _PHASES]

    def encode(self, message: SumMessage, sender: int | None = None) -> bytes:
        """A message as bytes; who passes on another's is its `sender`."""
        label, words = message.label, np.ascontiguousarray(message.words, "<u8")
        header = msgspec.msgpack.encode(
            _Header(
                VERSION, self.run, message.sender if sender is None else sender, message.origin, message.phase,
                label.epoch, label.number,
                message.durable, message.digest, words.size,
            )
        )  # fmt: skip
        return b"".join((len(header).to_bytes(4, "little"), header, words.tobytes()))

    def decode(self, payload: Any, sender: int) -> SumMessage | Rejected:
        """The message in some bytes from `sender`, or why it is none."""
        content = bytes(payload)
        found = read_header(content, self.longest, _Header)
        if isinstance(found, Rejected):
            return found
        header, length = found
        refused = self._refusal(header, sender)
        if refused is not None:
            return refused
        behind = len(content) - 4 - length
        if behind != 8 * header.size:
            return Rejected(f"it holds {behind:,} bytes behind its header, expected {8 * header.size:,}")
        words = np.frombuffer(content, "<u8", header.size, 4 + length)
        phase = _PHASES[header.phase]
        if phase == Phase.RETRY and words.size and int(words.max()) >= MOST_DRAWS:
            return Rejected("it repeats draws that are none")
        if phase == Phase.CENSUS and (int(words[1]) >= MOST_DRAWS or (words[2:] >= self.num_agents).any()):
            return Rejected("its statement names a step or an agent that is none")
        return SumMessage(
            sender, phase, Label.of(header.epoch, header.number), words, header.digest, header.durable, header.origin
        )

    def decode_all(self, payload: Any, sender: int) -> list[SumMessage | Rejected]:
        """The messages in what `join` made; after one that does not fit, nothing more is read."""
        return decode_each(payload, lambda one: self.decode(one, sender))

    def _refusal(self, header: _Header, sender: int) -> Rejected | None:
        if header.version != VERSION:
            return Rejected(f"it is of version {header.version}, expected {VERSION}")
        if header.run != self.run:
            return Rejected("it belongs to another run", other_run=True)
        if header.sender != sender:
            return Rejected(f"agent {sender} sent it in the name of agent {header.sender}")
        if not 0 <= header.phase < len(_PHASES):
            return Rejected(f"its phase {header.phase} is none")
        if not 0 <= header.origin < self.num_agents:
            return Rejected(f"its origin {header.origin} is no agent")
        if not (0 <= header.epoch < MOST_EPOCHS and 0 <= header.number < _LARGEST_NUMBER):
            return Rejected("its label is none")
        if not 0 <= header.durable <= header.number:
            return Rejected(f"its durable number {header.durable} is not before its number {header.number}")
        if len(header.digest) > LONGEST_DIGEST:
            return Rejected(f"its digest has {len(header.digest)} bytes, {LONGEST_DIGEST} at most")
        least, most = self._sizes[header.phase]
        if not least <= header.size <= most:
            return Rejected(f"it announces {header.size} words, {most:,} at most")
        return None
