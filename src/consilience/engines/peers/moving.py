"""How a node moves its replica together with all who take part, by sums with them.

    meet      all agents adopt the root's replica, by a total to which nobody else adds: nobody is in the move before
              any more, and replicas are equal to the bit even if processors round differently
    move      the compiled program, which asks for totals by a callback
    meet      … at the start of the next move: only now is this one final

If agents took different decisions in a move, all go back to its start and repeat it with other random numbers
(`Retry`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from consilience.engines.base import Alone, Team
from consilience.engines.peers.held import CommonWords, Held
from consilience.engines.peers.network_call import FAILED, NetworkCall
from consilience.engines.peers.sums import Sums
from consilience.engines.unison import Buffers, Make, Replicas
from consilience.errors import Retry, SumError
from consilience.samplers.transitions.replica import Replica

_DIGEST_BYTES = 16
_IN_TURN: dict[str, str | bool] = {"xla_cpu_multi_thread_eigen": False}


class OverNetwork:
    """One agent is here; a sum asks the others, by a callback from the compiled program."""

    moves_at_once = 1
    team: Team = Alone()

    def __init__(self, agent: int, total: Callable[[np.ndarray], np.ndarray]) -> None:
        self.agents = self.storage_agents = np.array([agent])
        self.own, self._total = slice(0, 1), NetworkCall(total)

    def compiled(self, make: Make, *arguments: Any) -> Callable[..., Any]:
        """A program that stops in each sum until the network has answered."""
        return jax.jit(make(self._total, lambda values: values)).lower(*arguments).compile(_IN_TURN)


class Moving:
    """One agent's moves.

    Attributes:
        place: where its replica is, for `Replicas`.
        replicas: moves it; set before the first move.
        sums: with those who take part; set when the node joins them.
        attempt: how often moves were repeated in this epoch.
    """

    replicas: Replicas
    sums: Sums

    def __init__(self, agent: int) -> None:
        self.agent, self.attempt = agent, 0
        self.place = OverNetwork(agent, self._total)
        self._met: tuple[int, int, int] | None = None
        self._raised: BaseException | None = None

    def uses(self, replicas: Replicas) -> None:
        """Move with these programs from now on."""
        self.replicas, self.blank = replicas, jax.eval_shape(replicas.initial_state)
        self.words = CommonWords(self.blank)

    def moved(self, held: Held, move: int) -> tuple[Held, Buffers]:
        """A replica after a move that all agents made alike, adopted by all."""
        replica, moved, buffers = held.replica, None, None
        while True:
            try:
                if moved is None:
                    replica = self.together(move, replica)
                    moved, buffers = self._run(replica, move)
                after = self.together(move + 1, moved)
                assert buffers is not None  # its draw is the one that all adopted, not as this processor rounded it
                adopted = buffers._replace(shared=np.asarray(after.shared)[None])
                return held._replace(replica=after, retries=self.sums.settled.retries), adopted
            except Retry as retry:
                if retry.draw < move:
                    raise SumError(
                        f"agent {self.agent} is asked to repeat move {retry.draw:,}, which is final: its run "
                        "directory was replaced by another one's; restore it"
                    ) from None
                self.attempt = retry.attempt
                moved = moved if retry.draw > move else None

    def together(self, move: int, replica: Replica) -> Replica:
        """The root's replica at the start of a move, with this agent's own part; nothing to do if all have met."""
        if self._met == (self.sums.participants.epoch, move, self.attempt):
            return replica
        return self.adopted(move, replica, self.sums.participants.root)

    def adopted(self, move: int, replica: Replica, giver: int, digest: bytes = b"") -> Replica:
        """The replica of one agent, adopted by all, with this agent's own part."""
        sums = self.sums
        sums.begin_draw(move, self.attempt, digest)
        words = self.words.of(replica)
        adopted = sums.total(words if self.agent == giver else np.zeros_like(words))
        sums.starts_from(hashlib.sha256(adopted.tobytes()).digest()[:_DIGEST_BYTES])
        self._met = (self.sums.participants.epoch, move, self.attempt)
        return self.words.adopted(replica, adopted)

    def _run(self, replica: Replica, move: int) -> tuple[Replica, Buffers]:
        """The compiled move; what stopped it inside a sum is raised as it was."""
        self._raised = None
        try:
            return self.replicas.moved(replica, move, 1, self.attempt)
        finally:
            if self._raised is not None:
                raise self._raised

    def _total(self, words: np.ndarray) -> np.ndarray:
        """A sum over all agents, for the compiled program; if there is none, words that let it end soon."""
        if self._raised is None:
            try:
                return self.sums.total(words)
            except BaseException as error:  # an interrupt too: nothing may be raised inside a program
                self._raised = error
        return np.full_like(words, FAILED)
