"""One agent of a network that samples in unison: a replica of all chains, joined to the others by sums.

A step is a move of all chains. Around it:

    meet      all agents adopt the root's replica, by a total to which nobody else adds: nobody is in the step before
              any more, and replicas are equal to the bit even if processors round differently
    move      the compiled program, which asks for totals by a callback
    meet      … at the start of the next step: only now is the move final

If agents took different decisions in a move, all go back to its start and repeat it with other random numbers
(`Retry`). A checkpoint holds the replica that all have adopted; a node that restarts replays the totals it missed.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from consilience.engines.base import Alone, PlainForm, Segment, StateForm, Team
from consilience.engines.peers.clock import Clock, SteadyClock
from consilience.engines.peers.mask_exchange import MaskExchange
from consilience.engines.peers.mask_keys import Registry
from consilience.engines.peers.masks import require_enough
from consilience.engines.peers.measurements import Stopwatch
from consilience.engines.peers.member import Member, Write
from consilience.engines.peers.membership import Membership
from consilience.engines.peers.settings import NodeSettings, neighbours_of
from consilience.engines.peers.sum_messages import Label
from consilience.engines.peers.sum_wire import SumWire
from consilience.engines.peers.sums import Place, Sums
from consilience.engines.peers.transport import Connect
from consilience.engines.unison import MEASURED, Buffers, Make, Replicas
from consilience.errors import NetworkError, Retry, Stopped, SumError
from consilience.graphs.spanning import centre
from consilience.plans import Plan
from consilience.problems import Problem
from consilience.samplers.transitions.replica import Replica, private_leaves

log = logging.getLogger("consilience.peers")
_SAY_SECONDS = 10.0
_LONGEST_SEGMENT = 4096
_DIGEST_BYTES = 16
_IN_TURN: dict[str, str | bool] = {"xla_cpu_multi_thread_eigen": False}


class Held(NamedTuple):
    """A replica at the start of a step, and which moves were repeated by then."""

    replica: Replica
    retries: tuple[int, ...] = ()


class HeldForm(PlainForm):
    """How it is written to a checkpoint: the replica's arrays; the moves that were repeated are noted."""

    def content(self, state: Held) -> list[np.ndarray]:
        """The replica's arrays."""
        return super().content(state.replica)

    def note(self, state: Held) -> dict[str, Any]:
        """Their digest, and the moves that were repeated."""
        return {**super().note(state), "retries": list(state.retries)}

    def restored(self, arrays: list[Any], note: dict[str, Any]) -> Held:
        """Both together."""
        return Held(super().restored(arrays, note), tuple(note["retries"]))


class OverNetwork:
    """One agent is here; a sum asks the others, by a callback from the compiled program."""

    moves_at_once = 1
    team: Team = Alone()

    def __init__(self, agent: int, total: Callable[[np.ndarray], np.ndarray]) -> None:
        self.agents = self.storage_agents = np.array([agent])
        self.own, self._total = slice(0, 1), total

    def compiled(self, make: Make, *arguments: Any) -> Callable[..., Any]:
        """A program that stops in each sum until the network has answered.

        Words travel as pairs of 32 bits: callbacks run in threads in which JAX may not know of double precision, and
        would silently cut longer ones to half.
        """

        def total(words: Any) -> Any:
            halves = jax.lax.bitcast_convert_type(words, jnp.uint32)
            like = jax.ShapeDtypeStruct(halves.shape, jnp.uint32)
            answer = jax.pure_callback(self._total, like, halves, vmap_method="broadcast_all")
            return jax.lax.bitcast_convert_type(answer, jnp.int64)

        return jax.jit(make(total, lambda values: values)).lower(*arguments).compile(_IN_TURN)


class UnisonNode(Member[SumWire]):
    """The stepper of one agent in unison; `problem` holds its own shard alone.

    Args:
        problem: what this agent knows (`Problem.of_agent`).
        plan: the whole network's plan.
        settings: who and where it is.
        clock: by which it waits; by default the machine's.
    """

    block_steps = 1
    segment_seconds = 2.0
    uses_up_state = False
    team: Team = Alone()

    def __init__(self, problem: Problem, plan: Plan, settings: NodeSettings, clock: Clock | None = None) -> None:
        self.problem, self.plan, self.settings, self.time = problem, plan, settings, clock or SteadyClock()
        if settings.on_loss == "continue":
            raise NetworkError(
                f'the sampler {plan.sampler.kind} needs all agents: set on_loss = "wait" in the node\'s file, or '
                "take a sampler by gossip (dula), which can do without one"
            )
        self.masked = plan.num_agents > 2 if plan.masked is None else plan.masked
        if self.masked:
            require_enough(plan.num_agents)
        self.agent, self.root = settings.agent, centre(plan.graph)
        self.replicas = Replicas(problem, plan, OverNetwork(settings.agent, self._total), self.root)
        self.parameters, self.storage = self.replicas.parameters, self.replicas.storage
        blank = jax.eval_shape(self.replicas.initial_state)
        self.form: StateForm = HeldForm(blank)
        self._own = jax.tree.leaves(private_leaves(blank))
        self.max_steps = min(_LONGEST_SEGMENT, plan.num_steps)
        self.members = Membership(settings.agent, neighbours_of(plan, settings.agent), plan.num_agents)
        self.stop = threading.Event()
        self.run = " ".join([plan.digest(), settings.on_loss])
        leaves = zip(jax.tree.leaves(blank), self._own, strict=True)
        state_words = sum(int(np.prod(leaf.shape)) for leaf, own in leaves if not own)
        self._most_words = max(
            state_words, plan.num_chains * (8 + self.parameters.num_shared), 1024 + plan.num_chains
        )
        self.wire = SumWire(settings.agent, self.run, self.members, self._entries(), self.time, self._longest())
        self.wire.status, self.wire.told = self.status, self.stop_for
        self.sums: Sums | None = None
        self.round, self.attempt, self.done = 0, 0, False
        self._met: tuple[int, int] | None = None
        self._current: Held | None = None
        self._places: dict[int, Place] = {}
        self._raised: Exception | None = None
        self._said_at = self.time.now()
        self.phases, self.distance = Stopwatch(), float("nan")

    def _entries(self) -> dict[str, Any]:
        return {**self.plan.model_dump(mode="json"), "on_loss": self.settings.on_loss, "jax": jax.__version__}

    def _longest(self) -> int:
        return 8 * (self._most_words + 16) + 1024

    # --- joining and leaving -----------------------------------------------------------------------------------

    def connect(self, connect: Connect, first_step: int, state: Held | None) -> None:
        """Join the network, to continue with a step."""
        masks = self._mask_exchange()
        sums = self.sums = Sums(
            self.agent, self.plan.graph, self.run, self._most_words, algorithm=self.plan.summation or "tree",
            masks=masks, clock=self.time, ask_seconds=self.settings.ask_seconds, stop=self.stop,
        )  # fmt: skip
        self.round, self._current = first_step, state
        if state is not None and (first_step or state.retries):
            place = Place(first_step, state.retries)
            sums.start_at(place)
            self.attempt, self._places = len(state.retries), {first_step: place}
        for path in self._kept_files:
            sums.lines.log.load(path, sums.lines.codec, self.agent)
        self.wire.join(sums, masks)
        self.wire.open(connect)
        if masks is not None:
            masks.collect(self.wire, self.settings.ask_seconds, self.stop)

    _kept_files: tuple[Path, ...] = ()

    def _mask_exchange(self) -> MaskExchange | None:
        if not self.masked:
            why = (
                "masks hide nothing between two agents" if self.plan.num_agents == 2 else "masked = false in the plan"
            )
            log.info("agent %d sends its part of sums unmasked: %s", self.agent, why)
            return None
        registry = Registry(self.run, self.plan.num_agents, self.settings.tls)
        return MaskExchange(self.agent, self.plan.graph, registry, self.settings.run / "mask.key", self.time)

    def close(self) -> None:
        """Leave the network."""
        self.wire.close()

    def finish(self) -> None:
        """Say that all steps are made."""
        self.done = True

    # --- a stepper ---------------------------------------------------------------------------------------------

    def data_digest(self) -> str:
        """Of its own shard."""
        return self.problem.fingerprint()

    def largest_curvature(self) -> None:
        """Nobody needs it."""
        return None

    def initial_state(self) -> Held:
        """Before the first step."""
        return Held(self.replicas.initial_state())

    def compile(self) -> None:
        """Compile the programs."""
        self.replicas.compile()

    def advance(self, state: Held, first_step: int, num_steps: int) -> tuple[Held, Segment]:
        """Make moves with all others; fewer if the node is told to stop meanwhile."""
        made: list[Buffers] = []
        step, self._current = first_step, state
        try:
            while len(made) < num_steps and not self.stop.is_set():
                self._current, buffers = self._moved(self._current, step)
                made.append(buffers)
                step += 1
                self.round, self._places[step] = step, self._sums.settled
                self._say(step)
        except Stopped:
            pass
        together = jax.tree.map(lambda *parts: np.concatenate(parts), *made) if made else self._nothing()
        return self._current, self.replicas.segment(first_step, len(made), together)

    def _nothing(self) -> Buffers:
        """What no move leaves behind."""
        chains = self.plan.num_chains
        split, size = self.parameters.num_shared, self.parameters.size
        return Buffers(
            np.zeros((0, chains, split)), np.zeros((0, chains, 1, size - split)),
            {name: np.zeros((0, chains)) for name in MEASURED},
        )  # fmt: skip

    def _moved(self, held: Held, step: int) -> tuple[Held, Buffers]:
        """One move that all agents made alike, adopted by all."""
        replica, moved, buffers = held.replica, None, None
        while True:
            try:
                if moved is None:
                    replica = self._together(step, replica)
                    moved, buffers = self._run(replica, step)
                after = self._together(step + 1, moved)
                assert buffers is not None  # its draw is the one that all adopted, not as this processor rounded it
                adopted = buffers._replace(shared=np.asarray(after.shared)[None])
                return Held(after, self._sums.settled.retries), adopted
            except Retry as retry:
                if retry.draw < step:
                    raise SumError(
                        f"agent {self.agent} is asked to repeat step {retry.draw:,}, which is final: its run "
                        "directory was replaced by another one's; restore it"
                    ) from None
                self.attempt = retry.attempt
                moved = moved if retry.draw > step else None

    def _together(self, step: int, replica: Replica) -> Replica:
        """The root's replica at the start of a step, with this agent's own part; nothing to do if all have met."""
        if self._met == (step, self.attempt):
            return replica
        sums, leaves = self._sums, jax.tree.leaves(replica)
        sums.begin_draw(step, self.attempt)
        common = [np.asarray(leaf) for leaf, own in zip(leaves, self._own, strict=True) if not own]
        words = np.concatenate([_to_words(leaf) for leaf in common])
        adopted = sums.total(words if self.agent == self.root else np.zeros_like(words))
        sums.starts_from(hashlib.sha256(adopted.tobytes()).digest()[:_DIGEST_BYTES])
        self._met = (step, self.attempt)
        parts = iter(np.split(adopted, np.cumsum([leaf.size for leaf in common])[:-1]))
        found = [
            leaf if own else jnp.asarray(_from_words(next(parts), np.asarray(leaf)))
            for leaf, own in zip(leaves, self._own, strict=True)
        ]
        return jax.tree.unflatten(jax.tree.structure(replica), found)

    def _run(self, replica: Replica, step: int) -> tuple[Replica, Buffers]:
        """The compiled move; what stopped it inside a sum is raised as it was."""
        self._raised = None
        try:
            return self.replicas.moved(replica, step, 1, self.attempt)
        except Exception:
            if self._raised is not None:
                raise self._raised from None
            raise

    def _total(self, halves: np.ndarray) -> np.ndarray:
        """A sum over all agents, for the compiled program; words come and go as pairs of 32 bits."""
        if self._raised is not None:
            raise self._raised
        own = np.ascontiguousarray(halves)
        assert own.dtype == np.uint32
        try:
            return self._sums.total(own.reshape(-1).view(np.uint64)).view(np.uint32).reshape(own.shape)
        except Exception as error:
            self._raised = error
            raise

    @property
    def _sums(self) -> Sums:
        assert self.sums is not None, "the node has not joined its network"
        return self.sums

    def by_variable(self, draws: np.ndarray) -> dict[str, np.ndarray]:
        """Shared parameters once, this agent's own for itself."""
        return self.replicas.by_variable(draws)

    def agree_to_stop(self, satisfied: bool) -> bool:
        """Whether all agents are satisfied: a total of those that are not."""
        while True:
            assert self._current is not None
            try:
                self._current = self._current._replace(replica=self._together(self.round, self._current.replica))
                return int(self._sums.total(np.array([not satisfied], np.uint64))[0]) == 0
            except Retry as retry:
                self.attempt = retry.attempt
            except Stopped:
                return False

    def found(self, state: Held) -> dict[str, Any]:
        """What the warm-up found."""
        return self.replicas.found(state.replica)

    def is_finite(self, state: Held) -> bool:
        """Always."""
        return True

    def find_diverged(self, state: Any, first_step: int, num_steps: int) -> tuple[int, int, int] | None:
        """Nothing diverges in this sense."""
        return None

    # --- what is kept beside checkpoints -----------------------------------------------------------------------

    def _number(self, step: int) -> int:
        place = self._places.get(step, Place(step, ()))
        return Label(0, len(place.retries), place.draw, 0).number

    @property
    def oldest_kept(self) -> int:
        """Every agent has a checkpoint past this step."""
        return Label.of(0, self._sums.lines.durable_everywhere).draw

    def save_kept(self, path: Path, first: int, last: int, write: Write) -> None:
        """Write the totals of some steps."""
        sums = self._sums
        sums.lines.log.save(path, self._number(first), self._number(last), sums.lines.codec, write)

    def load_kept(self, path: Path) -> None:
        """Have them read back when the node joins; the latest first."""
        self._kept_files = (path, *self._kept_files)

    def will_not_fall_behind(self, step: int) -> None:
        """Let others forget what came before."""
        self._sums.keep_from(self._places.get(step, Place(step, ())))
        self._places = {known: place for known, place in self._places.items() if known >= step}

    # --- telling -----------------------------------------------------------------------------------------------

    def _say(self, step: int) -> None:
        now = self.time.now()
        if now - self._said_at < _SAY_SECONDS:
            return
        self._said_at, warmup = now, self.plan.burn_in
        where = f"warming up, {step:,} of {warmup:,}" if step < warmup else f"{step - warmup:,} draws"
        log.info("agent %d: %s", self.agent, where, extra={"round": step})

    def status(self) -> dict[str, Any]:
        """What the node says of itself when it is asked."""
        counts = self.wire.all_counts()
        return {
            "agent": self.agent,
            "round": self.round,
            "num_rounds": self.plan.num_steps,
            "durable": self.oldest_kept if self.sums is not None else 0,
            "done": self.done,
            "warming_up": self.round < self.plan.burn_in,
            "masked": self.masked,
            "neighbours": {str(number): number in self.members.here for number in self.members.neighbours},
            "lost": [],
            "implausible": {},
            "present": list(range(self.plan.num_agents)),
            "messages": {name: counts[name] for name in ("sent", "received", "rejected")},
        }


def _to_words(leaf: np.ndarray) -> np.ndarray:
    """The bits of an array's numbers, or its integers, as words."""
    flat = leaf.reshape(-1)
    return flat.view(np.uint64) if flat.dtype == np.float64 else flat.astype(np.int64).view(np.uint64)


def _from_words(words: np.ndarray, like: np.ndarray) -> np.ndarray:
    flat = words.view(np.float64) if like.dtype == np.float64 else words.view(np.int64).astype(like.dtype)
    return flat.reshape(like.shape)
