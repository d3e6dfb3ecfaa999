"""What a node has received and not used, and what it has sent and must keep.

A neighbour that is killed restarts from its checkpoint, at a round that lies behind. It then asks for the messages it
missed, so a node keeps what it sent until every neighbour has a checkpoint beyond it: messages carry the sender's
durable round. What is kept is so bounded by the checkpoints' interval.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Collection
from pathlib import Path

import numpy as np

from consilience.engines.peers.clock import Clock, SteadyClock
from consilience.engines.peers.messages import Message

Arrays = tuple[np.ndarray, ...]

AHEAD = 64
"""How many rounds ahead messages are kept, and sent at once to a neighbour that asks."""
MOST_BYTES = 128_000
"""How much is sent at once to a neighbour that asks, beyond a first message: slow lines must bring it in time."""


_NOTHING: dict[int, Message] = {}


class Inbox:
    """Messages of the neighbours by round; one thread puts them in, another waits for them."""

    def __init__(self, neighbours: list[int], next_round: int, clock: Clock | None = None) -> None:
        self._clock = clock or SteadyClock()
        self._changed = threading.Condition()
        self._next = next_round
        self._awaited: tuple[int, Collection[int]] | None = None
        self._neighbours, self._kept = neighbours, dict[int, dict[int, Message]]()
        self.durable = dict.fromkeys(neighbours, 0)
        """Up to which round each neighbour's checkpoints reach."""
        self.latest = dict.fromkeys(neighbours, -1)
        """The latest round that was heard of each neighbour."""
        self.heard_at = dict.fromkeys(neighbours, 0.0)
        """When each neighbour was last heard, by this machine's steady clock."""

    def put(self, message: Message) -> None:
        """Take a message in; what is behind, or far ahead, is not kept.

        A neighbour is at most one round ahead, unless this node was restarted and is catching up.
        """
        with self._changed:
            sender = message.sender
            self.durable[sender] = max(self.durable[sender], message.durable)
            self.latest[sender] = max(self.latest[sender], message.round)
            self.heard_at[sender] = self._clock.now()
            if self._next <= message.round < self._next + AHEAD:
                self._kept.setdefault(message.round, {})[sender] = message
            if self._awaited is not None and self._is_over(*self._awaited):
                self._changed.notify()  # not before: to wake up for nothing costs more than all the rest

    def wait(self, round_: int, seconds: float, wanted: Collection[int]) -> list[int]:
        """Wait for the wanted neighbours' messages of a round, at most so long; those whose are missing."""
        with self._changed:
            if seconds > 0 and not self._is_over(round_, wanted):
                self._awaited = (round_, wanted)
                self._clock.wait_for(self._changed, lambda: self._is_over(round_, wanted), seconds)
                self._awaited = None
            return self._missing(round_, wanted)

    def _missing(self, round_: int, wanted: Collection[int]) -> list[int]:
        here = self._kept.get(round_, _NOTHING)
        return [number for number in wanted if number not in here]

    def _is_over(self, round_: int, wanted: Collection[int]) -> bool:
        """Whether all messages are there, or one was passed by and will not come by itself."""
        missing = self._missing(round_, wanted)
        return not missing or any(self.latest[number] > round_ for number in missing)

    def take(self, round_: int) -> dict[int, Message]:
        """The messages of a round that came, in the neighbours' order; older ones are dropped."""
        with self._changed:
            here = self._kept.get(round_, _NOTHING)
            self._drop_before(round_ + 1)
            return {number: here[number] for number in self._neighbours if number in here}

    def skip_to(self, round_: int) -> None:
        """Expect messages of a round and later ones only."""
        with self._changed:
            self._drop_before(round_)

    def _drop_before(self, round_: int) -> None:
        self._next = round_
        for old in [number for number in self._kept if number < round_]:
            del self._kept[old]


class Outbox:
    """Messages that were sent, kept for neighbours that may have to ask for them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[int, Arrays] = {}
        self.oldest = 0
        """No message before this round is kept."""

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, round_: int, values: Arrays) -> None:
        """Keep the message of a round."""
        with self._lock:
            self._kept[round_] = values

    def since(self, round_: int) -> list[tuple[int, Arrays]]:
        """The kept messages from a round on, as many as may be sent at once."""
        with self._lock:
            kept = [(number, self._kept[number]) for number in range(round_, round_ + AHEAD) if number in self._kept]
        return kept[: max(1, MOST_BYTES // sum(one.nbytes for one in kept[0][1]))] if kept else []

    def forget_before(self, round_: int) -> None:
        """Drop the messages before a round, which nobody can ask for any more."""
        with self._lock:
            if round_ <= self.oldest:
                return
            self.oldest = round_
            for old in [number for number in self._kept if number < round_]:
                del self._kept[old]

    def save(self, path: Path, wanted: range, write: Callable[[Path, bytes], None]) -> None:
        """Write the kept messages of some rounds to a file: what a restarted node could not compute again."""
        with self._lock:
            rounds = [number for number in wanted if number in self._kept]
            values = [self._kept[number] for number in rounds]
        stream, count = io.BytesIO(), len(values[0]) if values else 0
        arrays = {f"array_{i}": np.array([one[i] for one in values]) for i in range(count)}
        np.savez(stream, allow_pickle=False, rounds=np.array(rounds, np.int64), **arrays)
        write(path, stream.getvalue())

    def load(self, path: Path) -> None:
        """Read back what `save` wrote."""
        with np.load(path, allow_pickle=False) as content:
            arrays = [content[f"array_{i}"] for i in range(len(content.files) - 1)]
            for place, number in enumerate(content["rounds"].tolist()):
                self._kept[number] = tuple(one[place] for one in arrays)
