"""One agent of a network that samples in unison: a replica of all chains, joined to the others by sums.

A step is a move of all chains (`moving.py`). A checkpoint holds the replica that all have adopted; a node that
restarts replays the totals it missed.

If an agent is lost and agents continue without one, those that are left agree on who takes part (`census.py`). A new
epoch begins: chains start again around the last common draw, where nobody has evaluated anything yet (otherwise the
difference of two totals would be what the lost agent had added), warm up again, and sample the posterior of those
that take part; their draws say so. An agent that comes back joins in the same way.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from consilience.engines.base import Alone, Segment, StateForm, Team
from consilience.engines.peers.census import Census
from consilience.engines.peers.clock import Clock, SteadyClock
from consilience.engines.peers.held import Held, HeldForm
from consilience.engines.peers.identity import common_entries, run_identity
from consilience.engines.peers.mask_exchange import MaskExchange
from consilience.engines.peers.mask_keys import Registry
from consilience.engines.peers.masks import require_enough
from consilience.engines.peers.measurements import Stopwatch
from consilience.engines.peers.member import Member, Write
from consilience.engines.peers.membership import Membership, names
from consilience.engines.peers.moving import Moving
from consilience.engines.peers.notices import Notice
from consilience.engines.peers.participants import Participants
from consilience.engines.peers.settings import NodeSettings, neighbours_of
from consilience.engines.peers.sum_messages import Label
from consilience.engines.peers.sum_wire import SumWire
from consilience.engines.peers.sums import Place, Sums
from consilience.engines.peers.transport import Connect
from consilience.engines.peers.whereabouts import Whereabouts
from consilience.engines.unison import MEASURED, Buffers, Replicas
from consilience.errors import Interrupted, NewEpoch, Retry, Stopped, SumError
from consilience.plans import Plan
from consilience.problems import Problem
from consilience.samplers.transitions.curvature import num_adopted
from consilience.samplers.transitions.replica import Replica

log = logging.getLogger("consilience.peers")
_LONGEST_SEGMENT = 4096


class UnisonNode(Member[SumWire]):
    """The stepper of one agent in unison; `problem` holds its own shard alone.

    Args:
        problem: what this agent knows (`Problem.of_agent`).
        plan: the whole network's plan.
        settings: who and where it is.
        clock: by which it waits; by default the machine's.
        alone: whether it has this process for itself, so that its sums may use a shorter way.
    """

    block_steps = 1
    segment_seconds = 2.0
    uses_up_state = False
    team: Team = Alone()

    def __init__(
        self, problem: Problem, plan: Plan, settings: NodeSettings, clock: Clock | None = None, alone: bool = False
    ) -> None:
        self.problem, self.plan, self.settings, self.time = problem, plan, settings, clock or SteadyClock()
        self.continues = settings.on_loss == "continue"
        self.masked = plan.num_agents > 2 if plan.masked is None else plan.masked
        if self.masked:
            require_enough(plan.num_agents)
        self.agent, self.participants = settings.agent, Participants.everybody(plan.graph)
        self.moving = Moving(settings.agent, alone)
        self.replicas = Replicas(problem, plan, self.moving.place, self.participants.root)
        self.moving.uses(self.replicas)
        self.parameters = self.replicas.parameters
        self.storage = self.replicas.storage._replace(presence=self.continues)
        self.form: StateForm = HeldForm(self.moving.blank)
        self.max_steps = min(_LONGEST_SEGMENT, plan.num_steps)
        self.members = Membership(settings.agent, neighbours_of(plan, settings.agent), plan.num_agents)
        self.stop = threading.Event()
        self.run = run_identity(plan, settings)
        chains, num_shared = plan.num_chains, self.parameters.num_shared
        self._most_words = max(
            self.moving.words.size + self.moving.num_counts, chains * (8 + num_shared),
            num_adopted(chains, num_shared), 1024 + chains,
        )  # fmt: skip
        entries, longest = common_entries(plan, settings), 8 * (self._most_words + 16) + 1024
        self.wire = SumWire(settings.agent, self.run, self.members, entries, self.time, longest)
        self.wire.status, self.wire.told, self.wire.differs = self.status, self._hear, self._refuse_other
        self.census = (
            Census(self.agent, plan.graph, settings.patience, self.time, settings.ask_seconds)
            if self.continues else None
        )  # fmt: skip
        self.sums: Sums | None = None
        self._masks: MaskExchange | None = None
        self.round, self.done = 0, False
        self._current: Held | None = None
        self._places: dict[int, Place] = {}
        self._kept_files: tuple[Path, ...] = ()
        self._of_other_runs: set[int] = set()
        self.whereabouts = Whereabouts(self.agent, plan, self.participants, self.time)
        self.phases, self.distance = Stopwatch(), float("nan")

    # --- joining and leaving -----------------------------------------------------------------------------------

    def connect(self, connect: Connect, first_step: int, state: Held | None) -> None:
        """Join the network, to continue with a step."""
        self._masks = self._mask_exchange()
        self.round, self._current = first_step, state
        place = None
        if state is not None:
            if state.participants is not None:
                who = state.participants
                self._take_part(who, state.replica)
                self.members.count_present(who.present(self.plan.num_agents), first_step)
                if self.census is not None:
                    self.census.resume(who)
            if first_step or state.retries:
                place = Place(self._move(first_step), state.retries)
                self.moving.attempt, self._places = len(state.retries), {first_step: place}
        self.whereabouts.arrive(first_step, self.participants)
        self._make_sums(place)
        self.wire.open(connect)
        if self._masks is not None:
            try:
                self._masks.collect(self.wire, self.settings.ask_seconds, self.stop)
            except Stopped as stopped:
                raise Interrupted(str(stopped)) from None
            self._share_masks()

    def _make_sums(self, place: Place | None = None) -> None:
        """Sums with those who take part, from a place in their history."""
        sums = self.sums = Sums(
            self.agent, self.participants, self.run, self._most_words, algorithm=self.plan.summation or "tree",
            masks=self._masks, census=self.census, num_agents=self.plan.num_agents, clock=self.time,
            ask_seconds=self.settings.ask_seconds, stop=self.stop,
        )  # fmt: skip
        sums.waiting.passing = self.whereabouts.say
        if place is not None:
            sums.start_at(place)
        for path in self._kept_files:
            sums.lines.log.load(path, sums.lines.codec, self.agent, self.participants.epoch)
        self.moving.sums = sums
        self.wire.join(sums, self._masks, self.census)

    def _hear(self, notice: Notice) -> None:
        """Take a last word: stop, or continue without the one that said it."""
        if self.census is None or notice.ends_all or self.round == 0:
            self.stop_for(notice)
        elif notice.agent in self.census.neighbours:
            log.error("agent %d cannot continue: %s", notice.agent, notice.reason)
            self.census.lose(notice.agent)

    def _refuse_other(self, number: int, why: str) -> None:
        """Stop for a neighbour of another run, with which there can be no first total.

        A node that is back stops only if all its neighbours are of another run: then it is the one that differs.
        """
        self._of_other_runs.add(number)
        begun = self.sums is not None and self.sums.lines.counts["operations"] > 0
        if not begun and (self.round == 0 or self._of_other_runs.issuperset(self.neighbours)):
            self.stop_for(Notice(self.agent, f"{why}: give both nodes the same, and start them again"))

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
        if self.census is not None:
            self.census.leave()

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
        """Make moves with all others; fewer if the node is told to stop meanwhile, or agents were lost."""
        made: list[Buffers] = []
        step, self._current = first_step, state
        try:
            while len(made) < num_steps and not self.stop.is_set():
                try:
                    self._current, buffers = self.moving.moved(self._current, self._move(step))
                except NewEpoch:
                    if not made:  # otherwise what was made comes first, and the epoch with the next call
                        first_step = step = self._begin_epoch(step)
                    break
                made.append(buffers)
                step += 1
                self._arrive(step)
        except Stopped:
            pass
        together = jax.tree.map(lambda *parts: np.concatenate(parts), *made) if made else self._nothing()
        segment = self.replicas.segment(first_step, len(made), together)
        if self.continues:
            present = np.tile(self.participants.present(self.plan.num_agents), (len(segment.draws), 1))
            segment = segment._replace(present=present)
        return self._current, segment

    def _arrive(self, step: int) -> None:
        self.round, self._places[step] = step, self.moving.sums.settled
        self.whereabouts.arrive(step, self.participants)

    def _move(self, step: int) -> int:
        """The number of the move that a step is, within its epoch; those before it warm up."""
        who = self.participants
        return step if who.epoch == 0 else step - max(who.step, self.plan.burn_in) + self.plan.burn_in

    # --- when agents were lost, or are back ----------------------------------------------------------------------

    def _begin_epoch(self, step: int) -> int:
        """Agree on who takes part, and warm up with these; the step to continue with."""
        assert self.census is not None
        while True:
            who = self.census.agree(step, self.moving.sums.lines, self.stop)
            self._require_hidden(who)
            try:
                self._warm_up_with(who)
            except NewEpoch:
                continue
            return max(who.step, self.plan.burn_in)

    def _require_hidden(self, who: Participants) -> None:
        """Masks hide nothing between two: an agent must not be unmasked because others were lost."""
        if self.masked and len(who.agents) == 2:
            raise SumError(
                f"only {names(who.agents)} are left, and masks hide nothing between two: bring others back and start "
                "these nodes again, or begin a new run with masked = false if both may see each other's gradients"
            )

    def _warm_up_with(self, who: Participants) -> None:
        """Begin an epoch from its source's replica, around which chains start again; all warm-up moves of it."""
        held, self.moving.attempt, self._kept_files = self._current, 0, ()
        assert held is not None
        self.participants = who
        self.members.count_present(who.present(self.plan.num_agents), who.step)
        self._make_sums()
        self._share_masks()
        held = self.moving.adopted(0, Held(held.replica, (), who), who.source, who.digest())
        self._take_part(who, held.replica)
        self._places = {}
        self.whereabouts.arrive(0, who)
        for move in range(self.plan.burn_in):
            held, _ = self.moving.moved(held, move)
            self.whereabouts.arrive(move + 1, who)
        self._current = held
        self._arrive(max(who.step, self.plan.burn_in))

    def _take_part(self, who: Participants, replica: Replica) -> None:
        """Sample with those who take part from now on: the prior is shared out among them."""
        self.participants, split = who, self.parameters.num_shared
        shared = np.broadcast_to(np.asarray(replica.shared)[:, None], (self.plan.num_chains, 1, split))
        start = np.concatenate([shared, np.asarray(replica.private)], -1)
        problem = replace(self.problem, network_size=len(who.agents))
        self.replicas = Replicas(problem, self.plan, self.moving.place, who.root, epoch=who.epoch, start=start)
        self.replicas.compile()
        self.moving.uses(self.replicas)

    def _share_masks(self) -> None:
        if self._masks is not None:
            who = self.participants
            self._masks.share_with(who.partners(self.agent) if len(who.agents) > 1 else (), who.digest())

    def _nothing(self) -> Buffers:
        """What no move leaves behind."""
        chains = self.plan.num_chains
        split, size = self.parameters.num_shared, self.parameters.size
        return Buffers(
            np.zeros((0, chains, split)), np.zeros((0, chains, 1, size - split)),
            {name: np.zeros((0, chains)) for name in MEASURED},
        )  # fmt: skip

    def by_variable(self, draws: np.ndarray) -> dict[str, np.ndarray]:
        """Shared parameters once, this agent's own for itself."""
        return self.replicas.by_variable(draws)

    def agree_to_stop(self, satisfied: bool) -> bool:
        """Whether all agents are satisfied: a total of those that are not."""
        while True:
            assert self._current is not None
            try:
                self._current = self.moving.together(self._move(self.round), self._current)
                return int(self.moving.sums.total(np.array([not satisfied], np.uint64))[0]) == 0
            except Retry as retry:
                self.moving.attempt = retry.attempt
            except (NewEpoch, Stopped):
                return False

    def found(self, state: Held) -> dict[str, Any]:
        """What the warm-up found."""
        return self.replicas.found(state.replica)

    def found_so_far(self, state: Held) -> dict[str, Any]:
        """What the warm-up found until now."""
        return self.replicas.found(state.replica)

    def is_finite(self, state: Held) -> bool:
        """Always."""
        return True

    def find_diverged(self, state: Any, first_step: int, num_steps: int) -> tuple[int, int, int] | None:
        """Nothing diverges in this sense."""
        return None

    # --- what is kept beside checkpoints -----------------------------------------------------------------------

    def _number(self, step: int) -> int:
        place = self._places.get(step, Place(max(0, self._move(step)), ()))
        return Label(0, len(place.retries), place.draw, 0).number

    @property
    def oldest_kept(self) -> int:
        """Every agent has a checkpoint past this step."""
        return Label.of(0, self.moving.sums.lines.durable_everywhere).draw - self._move(0)

    def save_kept(self, path: Path, first: int, last: int, write: Write) -> None:
        """Write the totals of some steps."""
        sums = self.moving.sums
        sums.lines.log.save(
            path, self._number(first), self._number(last), sums.lines.codec, write, self.participants.epoch
        )

    def load_kept(self, path: Path) -> None:
        """Have them read back when the node joins; the latest first."""
        self._kept_files = (path, *self._kept_files)

    def will_not_fall_behind(self, step: int) -> None:
        """Let others forget what came before."""
        self.moving.sums.keep_from(self._places.get(step, Place(max(0, self._move(step)), ())))
        self._places = {known: place for known, place in self._places.items() if known >= step}

    def _not_done(self) -> list[int]:
        """The neighbours that may still need this node; lost ones do not."""
        lost = set() if self.census is None else self.census.lost
        return [number for number in super()._not_done() if number not in lost]

    # --- telling -----------------------------------------------------------------------------------------------

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
            "epoch": self.participants.epoch,
            "neighbours": {str(number): number in self.members.here for number in self.members.neighbours},
            "lost": sorted(self.census.lost) if self.census is not None else [],
            "implausible": {},
            "present": list(self.participants.agents),
            "messages": {name: counts[name] for name in ("sent", "received", "rejected")},
        }
