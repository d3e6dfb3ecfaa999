"""How the public halves of all mask keys reach every node: from neighbour to neighbour, before the first sum.

    exchange = MaskExchange(agent, graph, registry, run / "mask.key", clock)
    sums = Sums(agent, graph, run, most_words, masks=exchange)
    exchange.collect(transport, ask_seconds, stop)      # then totals

A node tells its neighbours what it learns, and asks for what is still missing. It answers as long as it runs, since a
node that restarts asks again. What an agent announced first counts. One that comes back with another key, since its
run directory was lost, is told so and stops: its masks would not cancel.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from pathlib import Path

import numpy as np

from consilience.engines.peers.clock import Clock
from consilience.engines.peers.mailbox import MOST_BYTES
from consilience.engines.peers.mask_keys import Registry, own_key, shared_secret
from consilience.engines.peers.masks import Masks, partners
from consilience.engines.peers.membership import names
from consilience.engines.peers.messages import Rejected, decode_each, join
from consilience.engines.peers.transport import Transport
from consilience.errors import NetworkError, Stopped
from consilience.graphs import Graph

log = logging.getLogger("consilience.peers")
MARK = b"mask keys"
"""What is sent begins with it, and so differs from a sum's message."""
QUESTION = "keys"
_ASK_SECONDS = 5.0
_TELL_SECONDS = 10.0


class MaskExchange:
    """One node's end of the exchange.

    Args:
        agent: the node's number.
        graph: who talks to whom.
        registry: makes and checks announcements.
        key_file: where the node's own key is, or will be.
        clock: by which it waits.
    """

    def __init__(self, agent: int, graph: Graph, registry: Registry, key_file: Path, clock: Clock) -> None:
        self._partners = partners(graph)[agent]  # first: it refuses networks in which masks hide nothing
        self.agent, self._registry, self._clock = agent, registry, clock
        self._neighbours = sorted({*graph.edges[(graph.edges == agent).any(1)].ravel().tolist()} - {agent})
        self._key = own_key(key_file)
        public = self._key.public_key().public_bytes_raw()
        self._changed = threading.Condition()
        self._known: dict[int, tuple[bytes, bytes]] = {agent: (public, registry.announce(agent, public))}
        self._failure: NetworkError | None = None
        self._masks: Masks | None = None
        self.transport: Transport | None = None
        self.rejected: Callable[[int, Rejected], None] = lambda number, found: log.warning(
            "a mask key that agent %d sent was rejected: %s", number, found.reason
        )

    def of(self, epoch: int, number: int, size: int) -> np.ndarray:
        """The mask of an operation, `(size,)` words of uint64, once all keys are known."""
        if self._failure is not None:
            raise self._failure
        if self._masks is None:
            raise NetworkError(f"agent {self.agent} has not collected the mask keys: call `collect` before a sum")
        return self._masks.of(epoch, number, size)

    def collect(self, transport: Transport, ask_seconds: float, stop: threading.Event) -> None:
        """Wait until the keys of all agents are known, and make the masks with this agent's partners."""
        self.transport, told_at = transport, self._clock.now()
        self._tell(self._known, self._neighbours)
        while missing := self._missing():
            with self._changed:
                self._clock.wait_for(
                    self._changed, lambda: not self._missing() or self._failure is not None, ask_seconds
                )
            self._require_going_on(stop)
            for number in self._neighbours if self._missing() else ():
                said = transport.ask(number, QUESTION, _ASK_SECONDS, self._bitmap())
                self._take(number, said or b"")
                self._require_going_on(stop)
            if self._missing() and self._clock.now() - told_at >= _TELL_SECONDS:
                told_at = self._clock.now()
                log.info("agent %d waits for the mask keys of %s", self.agent, names(missing[:10]))
        self.share_with(self._partners)

    def share_with(self, agents: Collection[int], epoch: bytes = b"") -> None:
        """Make the masks with some agents, whose keys are known.

        Args:
            agents: the partners.
            epoch: what all know of it, its number is not enough: if all who agreed on an epoch are killed before a
                checkpoint holds it, they agree on another one with the same number, from another position, and the
                same masks would cover both.
        """
        run, key = self._registry.run, self._key
        self._masks = Masks(self.agent, {
            partner: shared_secret(key, self._known[partner][0], run, self.agent, partner, epoch)
            for partner in agents
        })  # fmt: skip

    def _require_going_on(self, stop: threading.Event) -> None:
        if self._failure is not None:
            raise self._failure
        if stop.is_set():
            raise Stopped(f"agent {self.agent} was told to stop while it waited for mask keys")

    def receive(self, number: int, content: bytes) -> bool:
        """Take in what a neighbour sent, if it is about keys; whether it is."""
        if not content.startswith(MARK):
            return False
        self._take(number, content[len(MARK) :])
        return True

    def answer(self, what: str, content: bytes) -> bytes | None:
        """Answer a neighbour with keys that it lacks, as many as may be sent at once; `None` to other questions."""
        if what != QUESTION:
            return None
        has = np.unpackbits(np.frombuffer(content, np.uint8), count=self._registry.num_agents)
        found: list[bytes] = []
        for agent, (_, said) in list(self._known.items()):
            if not has[agent] and (not found or sum(map(len, found)) + len(said) <= MOST_BYTES):
                found.append(said)
        return join(found)

    def _bitmap(self) -> bytes:
        """Whose keys are known, a bit for each agent; not the own one, to learn what others hold for it."""
        has = np.zeros(self._registry.num_agents, bool)
        has[[agent for agent in self._known if agent != self.agent]] = True
        return np.packbits(has).tobytes()

    def _missing(self) -> list[int]:
        return [agent for agent in range(self._registry.num_agents) if agent not in self._known]

    def _take(self, number: int, content: bytes) -> None:
        fresh, other = {}, {}
        for said in decode_each(content, bytes):
            if isinstance(said, Rejected):
                return self.rejected(number, said)
            found = self._registry.read(said)
            if isinstance(found, Rejected):
                self.rejected(number, found)
                continue
            with self._changed:
                known = self._known.setdefault(found.agent, (found.public, said))
                if known[1] is said:
                    fresh[found.agent] = known
                elif known[0] != found.public:
                    other[found.agent] = known
                self._changed.notify()
        self._tell(fresh, [one for one in self._neighbours if one != number])
        self._refuse(other, number)
        return None

    def _tell(self, known: dict[int, tuple[bytes, bytes]], numbers: Collection[int]) -> None:
        transport = self.transport
        if transport is not None and known:
            for number in numbers:
                transport.send(number, MARK + join(said for _, said in known.values()))

    def _refuse(self, other: dict[int, tuple[bytes, bytes]], number: int) -> None:
        """Keep to the keys that agents announced first; an agent that has another one is told, and stops."""
        for agent in other:
            reason = (
                f"agent {agent} announces another mask key than before: its run directory was lost, or somebody else "
                f"has its certificate. Restore the run directory of agent {agent} from a copy; without one, move the "
                "run directories of all agents away and start anew"
            )
            log.error(reason)
            if agent == self.agent:
                self._failure = NetworkError(reason)
        self._tell({agent: known for agent, known in other.items() if agent != self.agent}, [number])
