"""How a node moves its replica together with all who take part, by sums with them.

    meet      all agents adopt the root's replica, by a total to which nobody else adds: nobody is in the move before
              any more, and replicas are equal to the bit even if processors round differently; after the warm-up
              only what moves change, as all have adopted the rest; with private parameters each also counts the
              chains that it moved, as it keeps its own part of them
    move      the compiled program, which asks for totals by a callback
    meet      … at the start of the next move: only now is this one final

If agents took different decisions in a move, all go back to its start and repeat it with other random numbers
(`Retry`). They see it by the labels of their sums; or, where one accepted what another rejected, by the counts: of
every chain either all have moved it or none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from consilience.engines.base import Alone, Team
from consilience.engines.peers.held import CommonWords, Held
from consilience.engines.peers.network_call import NetworkCall
from consilience.engines.peers.sums import Sums
from consilience.engines.unison import Buffers, Make, Replicas
from consilience.errors import Retry, SumError
from consilience.samplers.transitions.replica import Replica

_DIGEST_BYTES = 16
_IN_TURN: dict[str, str | bool] = {
    "xla_cpu_multi_thread_eigen": False,
    "xla_cpu_enable_concurrency_optimized_scheduler": False,  # operations are small: handing them on costs more
}


class OverNetwork:
    """One agent is here; a sum asks the others, by a callback from the compiled program."""

    moves_at_once = 1
    team: Team = Alone()

    def __init__(self, agent: int, total: Callable[[np.ndarray], np.ndarray], alone: bool = False) -> None:
        self.agents = self.storage_agents = np.array([agent])
        self.own, self._total = slice(0, 1), NetworkCall(total, alone)

    def compiled(self, make: Make, *arguments: Any) -> Callable[..., Any]:
        """A program that stops in each sum until the network has answered."""
        program = jax.jit(make(self._total, lambda values: values)).lower(*arguments).compile(_IN_TURN)
        return self._total.kept(program)


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

    def __init__(self, agent: int, alone: bool = False) -> None:
        self.agent, self.attempt = agent, 0
        self.place = OverNetwork(agent, self._total, alone)
        self._met: tuple[int, int, int] | None = None
        self._raised: BaseException | None = None

    def uses(self, replicas: Replicas) -> None:
        """Move with these programs from now on."""
        self.replicas, self.blank = replicas, jax.eval_shape(replicas.initial_state)
        self.words, self._moving = CommonWords(self.blank), CommonWords(self.blank, after_warmup=True)
        self.num_counts = replicas.plan.num_chains if replicas.problem.private else 0
        self._found: bytes | None = None

    def moved(self, held: Held, move: int) -> tuple[Held, Buffers]:
        """A replica after a move that all agents made alike, adopted by all."""
        moved, buffers = None, None
        while True:
            try:
                if moved is None:
                    held = self.together(move, held)
                    moved, buffers = self._run(held, move)
                after = self.together(move + 1, moved)
                assert buffers is not None  # its draw is the one that all adopted, not as this processor rounded it
                adopted = buffers._replace(shared=np.asarray(after.replica.shared)[None])
                return after._replace(retries=self.sums.settled.retries), adopted
            except Retry as retry:
                if retry.draw < move:
                    raise SumError(
                        f"agent {self.agent} is asked to repeat move {retry.draw:,}, which is final: its run "
                        "directory was replaced by another one's; restore it"
                    ) from None
                self.attempt = retry.attempt
                moved = moved if retry.draw > move else None

    def together(self, move: int, held: Held) -> Held:
        """The root's replica at the start of a move, with this agent's own part; nothing to do if all have met."""
        if self._met == (self.sums.participants.epoch, move, self.attempt):
            return held
        return self.adopted(move, held, self.sums.participants.root)

    def adopted(self, move: int, held: Held, giver: int, digest: bytes = b"") -> Held:
        """The replica of one agent, adopted by all, with this agent's own part."""
        sums, replica, which = self.sums, held.replica, self._moving if self._is_warm(move) else self.words
        words, counts = which.of(replica), np.zeros(self.num_counts, np.uint64)
        counts[: len(held.moved)] = held.moved
        sums.begin_draw(move, self.attempt, digest)
        total = sums.total(np.concatenate([words if self.agent == giver else np.zeros_like(words), counts]))
        adopted, counts = np.split(total, [words.size])
        if not np.isin(counts, (0, sums.num_agents)).all():
            why = f"some agents accepted draw {move - 1:,} and others rejected it"
            sums.waiting.repeat(move - 1, sums.label, why)
        if not np.array_equal(adopted, words):
            replica = which.adopted(replica, adopted)
        sums.starts_from(self._digest(move, replica, adopted))
        self._met = (sums.participants.epoch, move, self.attempt)
        return held._replace(replica=replica)

    def _is_warm(self, move: int) -> bool:
        """Whether all agents have adopted what the warm-up found, at the start of an earlier move."""
        return move > max(1, self.replicas.plan.burn_in)

    def _digest(self, move: int, replica: Replica, adopted: np.ndarray) -> bytes:
        """Of all that is common of a replica: what was adopted now and, after the warm-up, what that found."""
        if not self._is_warm(move):
            self._found = None
        elif self._found is None:
            self._found = hashlib.sha256(self.words.of(replica)[self._moving.size :].tobytes()).digest()
        return hashlib.sha256((self._found or b"") + adopted.tobytes()).digest()[:_DIGEST_BYTES]

    def _run(self, held: Held, move: int) -> tuple[Held, Buffers]:
        """The compiled move; what stopped it inside a sum is raised as it was."""
        self._raised = None
        try:
            replica, buffers = self.replicas.moved(held.replica, move, 1, self.attempt)
        except Exception:
            if self._raised is not None:
                raise self._raised from None
            raise
        elsewhere = np.asarray(replica.log_density) != np.asarray(held.replica.log_density)
        return held._replace(replica=replica, moved=tuple(elsewhere[: self.num_counts].tolist())), buffers

    def _total(self, words: np.ndarray) -> np.ndarray:
        """A sum over all agents, for the compiled program."""
        if self._raised is not None:
            raise self._raised
        try:
            return self.sums.total(words)
        except BaseException as error:  # an interrupt too: the program says no more than that it failed
            self._raised = error
            raise
