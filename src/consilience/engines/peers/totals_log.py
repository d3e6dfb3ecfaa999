"""What all agents know alike: the results of the network's operations, kept for those that restart.

A node that is killed restarts from its checkpoint and replays the totals that it missed; any neighbour can give them.
So each node keeps results until every agent has a checkpoint past them: up-going messages carry the least durable
number of a subtree, down-going ones that of the whole network. What lies between the network's last durable number
and a node's own checkpoint is written beside that checkpoint, for the case that all are killed at once.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from pathlib import Path

from consilience.engines.peers.mailbox import AHEAD, MOST_BYTES
from consilience.engines.peers.messages import Rejected, join
from consilience.engines.peers.sum_messages import SumCodec, SumMessage
from consilience.errors import RunError


class TotalsLog:
    """Results by number; one thread keeps them, others read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[int, SumMessage] = {}
        self.oldest = 0
        """Of what came before this number, nothing is kept."""

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, result: SumMessage) -> None:
        """Keep the result of an operation."""
        with self._lock:
            self._kept[result.label.number] = result

    def since(self, number: int) -> list[SumMessage]:
        """The results from a number on, as many as may be sent at once."""
        with self._lock:
            kept = [self._kept[one] for one in sorted(one for one in self._kept if one >= number)[:AHEAD]]
        found: list[SumMessage] = []
        size = 0
        for one in kept:
            size += one.words.nbytes
            if found and size > MOST_BYTES:
                break
            found.append(one)
        return found

    def forget_before(self, number: int) -> None:
        """Drop what came before a number, which nobody can ask for any more."""
        if number <= self.oldest:
            return
        with self._lock:
            self.oldest = number
            for old in [one for one in self._kept if one < number]:
                del self._kept[old]

    def begin_at(self, number: int) -> None:
        """Begin with an empty log at a number; what `load` reads comes before it."""
        with self._lock:
            self._kept.clear()
            self.oldest = number

    def save(
        self,
        path: Path,
        since: int,
        before: int,
        codec: SumCodec,
        write: Callable[[Path, bytes], None],
        epoch: int = 0,
    ) -> None:
        """Write the results from `since` to before `before` to a file: what a restarted node could not compute."""
        with self._lock:
            since = max(since, self.oldest)
            wanted = [self._kept[one] for one in sorted(self._kept) if since <= one < before]
        start = since.to_bytes(8, "little") + epoch.to_bytes(8, "little")
        content = start + join(codec.encode(one._replace(durable=0)) for one in wanted)
        write(path, hashlib.sha256(content).digest() + content)

    def load(self, path: Path, codec: SumCodec, agent: int, epoch: int = 0) -> None:
        """Read back what `save` wrote in an epoch, on top of what there is; begin with the latest file."""
        try:
            whole = path.read_bytes()
        except OSError as error:
            raise RunError(f"the totals in {path} cannot be read ({error.strerror}): {_REMEDY}") from None
        content = whole[32:]
        if hashlib.sha256(content).digest() != whole[:32]:
            raise RunError(f"the totals in {path} are damaged: {_REMEDY}")
        if int.from_bytes(content[8:16], "little") != epoch:
            return  # nobody returns to an earlier epoch
        for one in codec.decode_all(content[16:], agent):
            if isinstance(one, Rejected):
                raise RunError(f"the totals in {path} are none of this run's ({one.reason}): {_REMEDY}")
            self.keep(one)
        self.oldest = min(self.oldest, int.from_bytes(content[:8], "little"))


_REMEDY = "restore the file, or remove it if all agents have checkpoints past it"
