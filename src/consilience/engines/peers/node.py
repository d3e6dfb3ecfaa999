"""One agent in a process of its own: the step of every engine, with the neighbours' messages from a network.

In round `k` a node says its message, computes its gradient while messages travel (or before it speaks, if its sampler
speaks last), waits for the messages of all its neighbours, and then mixes and steps. Randomness is derived from the
round, so a node that was killed recomputes from its checkpoint just what it had computed before, and asks for the
messages that it missed.

What is pure is in `rounds.py`, who takes part in `membership.py`, the wire in `wire.py`; a node puts them together.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import numpy as np

from consilience.engines.base import Alone, Gossiping, PlainForm, Segment, StateForm, Storage, Team, leaves_are_finite
from consilience.engines.peers.agent_step import AgentStep, Arrays, Prepared
from consilience.engines.peers.clock import Clock, SteadyClock
from consilience.engines.peers.identity import common_entries, run_identity
from consilience.engines.peers.measurements import Stopwatch
from consilience.engines.peers.member import Member, Write
from consilience.engines.peers.membership import Membership, names
from consilience.engines.peers.messages import Codec, is_finite
from consilience.engines.peers.notices import Notice
from consilience.engines.peers.pace import Pace
from consilience.engines.peers.rejoining import Rejoining
from consilience.engines.peers.rounds import NodeState, Rounds
from consilience.engines.peers.settings import NodeSettings, neighbours_of
from consilience.engines.peers.transport import Connect
from consilience.engines.peers.wire import Wire
from consilience.errors import NetworkError
from consilience.kernel.curvature import largest_curvature
from consilience.plans import Plan
from consilience.problems import Problem
from consilience.samplers import Corrected

log = logging.getLogger("consilience.peers")
_LONGEST_SEGMENT = 4096
DISTANCE = "distance_to_neighbours"


class Node(Gossiping, Member[Wire]):
    """The stepper of one agent; `problem` holds its own shard alone.

    Args:
        problem: what this agent knows (`Problem.of_agent`).
        plan: the whole network's plan.
        settings: who and where it is.
        clock: by which it waits; by default the machine's.
    """

    block_steps = 1
    segment_seconds = 2.0  # a node shares its machine with its rounds: it writes less often
    uses_up_state = False
    team: Team = Alone()

    def __init__(self, problem: Problem, plan: Plan, settings: NodeSettings, clock: Clock | None = None) -> None:
        self.problem, self.plan, self.settings, self.time = problem, plan, settings, clock or SteadyClock()
        weights, continues = neighbours_of(plan, settings.agent), settings.on_loss == "continue"
        if continues:
            _require_losable(plan)
        self.step = AgentStep(problem, plan, settings.agent, weights)
        self.parameters = self.step.parameters
        self.max_steps = min(_LONGEST_SEGMENT, plan.num_steps)
        self.rounds = Rounds(self.step, plan, continues, settings.on_implausible == "clip", self.time)
        self.members = Membership(settings.agent, weights, plan.num_agents)
        codec = Codec(
            run_identity(plan, settings), tuple(self.step.message_shapes), self.most_rounds,
            plan.num_agents if continues else 0,
        )  # fmt: skip
        self.wire: Wire = self._wire(codec, common_entries(plan, settings))
        self.wire.status, self.wire.told = self.status, self._hear
        self.rejoining = Rejoining(self.rounds, self.members, self.wire, self.time)
        self.storage = Storage(
            np.array([settings.agent]), slice(0, 1), 1, (DISTANCE,), plan.num_steps, presence=continues
        )
        self.phases, self.distance, self.pace = Stopwatch(), float("nan"), Pace(self.time)
        self.stop, self._left = threading.Event(), threading.Event()
        self.form: StateForm = self._form()

    @property
    def most_rounds(self) -> int:
        """Rounds lie between 0 and this; a message of this one says that the sender is done."""
        return self.plan.num_steps

    def _wire(self, codec: Codec, entries: dict[str, Any]) -> Wire:
        return Wire(self.settings.agent, codec, self.rounds, self.members, entries, self.time)

    def _form(self) -> StateForm:
        return PlainForm(self.initial_state())

    def connect(self, connect: Connect, first_round: int, state: NodeState | None) -> None:
        """Join the network, to continue with a round."""
        self.rounds.start_at(first_round, state)
        self.wire.open(connect)
        self._ask_for_lost_edges()

    def _ask_for_lost_edges(self) -> None:
        """Ask for them as long as the node is in the network, if it continues without."""
        if self.rounds.continues:
            self.time.beside(lambda: self.rejoining.ask_until(self._left))

    def close(self) -> None:
        """Leave the network."""
        self._left.set()
        self.wire.close()

    def _hear(self, notice: Notice) -> None:
        """Take a last word: stop, or lose the one that said it if nodes continue and this one has begun."""
        if not self._may_lose() or notice.ends_all or self.rounds.round == 0:
            self.stop_for(notice)
        elif notice.agent in self.rounds.neighbours and self.rounds.edges.is_up(notice.agent):
            log.error("agent %d cannot continue: %s", notice.agent, notice.reason)
            self.rounds.edges.lose(notice.agent)

    def _may_lose(self) -> bool:
        """Whether the node would go on now without a neighbour."""
        return self.rounds.continues

    # --- a stepper ---------------------------------------------------------------------------------------------

    def data_digest(self) -> str:
        """Of its own shard."""
        return self.problem.fingerprint()

    def largest_curvature(self) -> float | None:
        """Of its own potential, where it starts."""
        agent = np.array([self.settings.agent])
        return largest_curvature(self.problem, self.plan.seed, self.plan.dtype, agent, self.step.start[0])

    def initial_state(self) -> NodeState:
        """The state of this agent in every chain before the first round."""
        return self.rounds.initial_state()

    def compile(self) -> None:
        """Compile a round."""
        self.step.compile()

    def advance(self, state: NodeState, first_step: int, num_steps: int) -> tuple[NodeState, Segment]:
        """Make rounds with the neighbours; fewer if the node is told to stop meanwhile, or skips to a later round."""
        plan, draws, present = self.plan, [], []
        first = self._skipped(first_step)
        last, heard, sampler = first, None, state.sampler
        end = min(first + num_steps, plan.num_steps)
        due = {plan.step_of_draw(number) for number in range(plan.draws_after(first), plan.draws_after(end))}
        for k in range(first, end):
            self.phases.begin()
            self.pace.begin()
            made = self._round(k, sampler)
            if made is None:
                break
            (sampler, heard), last = made, k + 1
            if last in due:
                draws.append(self.step.position(sampler))
                present.append(self.members.present)
            self.phases.end("mix")
            if self.rounds.continues:
                self.pace.end(not self.rounds.edges.lost(), self.stop)
            if self.notice is not None:
                break
        distance = np.zeros((0, plan.num_chains)) if heard is None else _squared(*heard)[None]
        if heard is not None:
            self.distance = float(distance.mean())
        empty = np.zeros((0, plan.num_chains, 1, self.parameters.size), self.step.dtype)
        counted = np.array(present, bool).reshape(-1, plan.num_agents) if self.rounds.continues else None
        return self.rounds.state(sampler), Segment(
            last, np.stack(draws) if draws else empty, plan.draws_after(first),
            np.array([last] if last > first else [], int), {DISTANCE: distance}, counted,
        )  # fmt: skip

    def _skipped(self, step: int) -> int:
        first = self.rounds.skip_to_others(step)
        if first > step:
            log.info("agent %d takes up round %d; it was absent since %d", self.settings.agent, first, step)
        return first

    def _round(self, k: int, sampler: Any) -> tuple[Any, tuple[Arrays, Arrays]] | None:
        """The sampler's state after a round, what it said and what neighbours said; `None` if it is not made."""
        prepared = None if self.step.speaks_first else self._prepare(sampler, k)
        message = self.step.message(sampler, prepared)
        if not all(map(is_finite, message)):
            return None
        self.wire.say(k, message)
        self.phases.end("publish")
        if prepared is None:
            prepared = self._prepare(sampler, k)
        if not self._wait(k):
            return None
        self.phases.end("wait")
        after, others = self.rounds.mixed(k, sampler, prepared, message)
        if self.rounds.continues:
            self.members.count_present(self.rounds.edges.present(k), k)
        self._doubt(k)
        return after, (message, others)

    def _doubt(self, k: int) -> None:
        """Say whose message was implausible in a round, and stop if nodes do that."""
        for number, times in self.rounds.doubted:
            self.members.doubt(number, k, times)
            if self.settings.on_implausible == "stop":
                self.stop_for(Notice(self.settings.agent, (
                    f"what agent {number} says in round {k:,} is {times:.3g} times as far away as it was at most in "
                    "the first rounds after burn-in: ask its operator what has changed"
                ), ends_all=True))  # fmt: skip
        self.rounds.doubted.clear()

    def _prepare(self, sampler: Any, k: int) -> Prepared:
        prepared = self.step.prepare(sampler, np.int32(k), None)  # as it was compiled; left out, it would be again
        prepared.gradient.block_until_ready()
        self.phases.end("gradient")
        return prepared

    def is_finite(self, state: NodeState) -> bool:
        """Whether all numbers of the state are finite."""
        return leaves_are_finite(state)

    def find_diverged(self, state: Any, first_step: int, num_steps: int) -> tuple[int, int, int] | None:
        """Rounds end at the first position that is not finite, so it is that of the last one."""
        return self.rounds.round, 0, self.settings.agent

    # --- waiting for others ------------------------------------------------------------------------------------

    def _wait(self, k: int) -> bool:
        """Wait for the messages of a round, asking for those that do not come; `False` if the round is not made."""
        began, told, rounds = self.time.now(), False, self.rounds
        last_sign = dict.fromkeys(rounds.neighbours, began)
        while missing := rounds.inbox.wait(k, self.settings.ask_seconds, rounds.edges.used(k)):
            if self.stop.is_set() or rounds.edges.must_jump(k):
                return False
            for number in missing:
                answered = self.wire.ask_for_messages(number, k)
                if answered:  # it is there: it computes, or waits for others itself
                    last_sign[number] = self.time.now()
                else:
                    self.wire.revive(number)
                if not self._may_lose() and self._is_gone(number, k):
                    self.stop_for(Notice(self.settings.agent, self._cannot_recover(number, k)))
                    return False
                if self._may_lose() and self._is_lost(number, k, answered, last_sign[number]):
                    rounds.edges.lose(number)
                    log.warning("agent %d continues without agent %d from round %d", self.settings.agent, number, k)
            if not told and self.time.now() - began > 5 * self.settings.ask_seconds:
                log.info(
                    "agent %d waits for %s in round %d", self.settings.agent, names(missing), k, extra={"round": k}
                )
                told = True
        return not rounds.edges.must_jump(k)

    def _is_lost(self, number: int, k: int, answered: bool, last_sign: float) -> bool:
        """Whether a neighbour is silent, has continued by itself, or sends what cannot be used."""
        gone = self.wire.gone.pop(number, None) is not None
        if not self.rounds.inbox.wait(k, 0.0, [number]):
            return False
        ahead = answered and (self.rounds.inbox.latest[number] > k or gone)
        silent = self.time.now() - last_sign > self.settings.patience and self._can_return(number, k)
        return ahead or silent or not self.members.is_believed(number)

    def _can_return(self, number: int, k: int) -> bool:
        """Whether a neighbour that is silent in a round could come back later; the first round waits for all."""
        return k > 0

    def _is_gone(self, number: int, k: int) -> bool:
        """Whether a neighbour says twice that it no longer has a message, and it has not come meanwhile."""
        if self.wire.gone.pop(number, None) is None:
            return False
        self.wire.ask_for_messages(number, k)
        return self.wire.gone.pop(number, None) is not None and bool(self.rounds.inbox.wait(k, 0.0, [number]))

    def _cannot_recover(self, number: int, k: int) -> str:
        own = self.settings.agent
        return (
            f"agent {own} needs what agent {number} said in round {k:,}, and agent {number} no longer has it. The "
            f"run directory of agent {own} or of agent {number} was lost or damaged: restore it from a copy and "
            "start the nodes again; without a copy, move the run directories of all agents away and start anew"
        )

    # --- what is kept beside checkpoints -----------------------------------------------------------------------

    @property
    def oldest_kept(self) -> int:
        """No message before this round is kept."""
        return self.rounds.outbox.oldest

    def save_kept(self, path: Path, first: int, last: int, write: Write) -> None:
        """Write the messages of some rounds."""
        self.rounds.outbox.save(path, range(first, last), write)

    def load_kept(self, path: Path) -> None:
        """Read them back."""
        self.rounds.outbox.load(path)

    def will_not_fall_behind(self, step: int) -> None:
        """Let neighbours forget what came before."""
        self.rounds.durable = step

    def finish(self) -> None:
        """Tell the neighbours that all rounds are made."""
        self.rounds.round = self.rounds.durable = self.plan.num_steps
        self.wire.say_done()

    def _not_done(self) -> list[int]:
        """The neighbours that may still need messages of this node."""
        waiting = sorted(set(self.rounds.neighbours) - self.members.done)
        if not self.rounds.continues:
            return waiting
        return [number for number in waiting if self.rounds.edges.is_up(number) and not self._silent(number)]

    def _silent(self, number: int) -> bool:
        """Whether a neighbour has been gone for longer than this node's patience."""
        heard = self.time.now() - self.rounds.inbox.heard_at[number]
        return number not in self.members.here and heard > self.settings.patience

    def status(self) -> dict[str, Any]:
        """What the node says of itself when it is asked."""
        rounds, counts = self.rounds, self.wire.counts
        return {
            "agent": self.settings.agent,
            "round": rounds.round,
            "num_rounds": self.plan.num_steps,
            "durable": rounds.durable,
            "done": rounds.round == self.plan.num_steps,
            "kept_messages": len(rounds.outbox),
            "neighbours": {str(number): number in self.members.here for number in rounds.neighbours},
            "lost": [number for number in rounds.neighbours if not rounds.edges.is_up(number)],
            "implausible": {str(number): count for number, count in self.members.implausible.items()},
            "present": np.flatnonzero(self.members.present).tolist(),
            "messages": {name: counts[name] for name in ("sent", "received", "rejected")},
            DISTANCE: None if np.isnan(self.distance) else self.distance,
        }


def _require_losable(plan: Plan) -> None:
    """Check that the sampler can do without an edge: what it has moved must be known at both its ends."""
    sampler = plan.gossip
    if plan.stops_itself:
        raise NetworkError(
            f"nodes of {sampler.kind} ask all agents whether their draws suffice, and with on_loss = 'continue' some "
            "may not answer: say how many draws are wanted (num_draws, --draws), or set on_loss = 'wait' in the "
            "node's file"
        )
    if isinstance(sampler, Corrected):  # flows.py knows
        return
    if sampler.edge_rate(sampler.coefficients(0, plan.num_agents)) is None:
        raise NetworkError(
            f"the sampler {sampler.kind} cannot do without an edge: what it has moved is not known at its ends. Set "
            "on_loss = 'wait' in the node's file, or take kinetic, langevin or dula"
        )


def _squared(own: Arrays, others: Arrays) -> np.ndarray:
    """`(chains,)` the squared distance to all neighbours, whose messages are `(neighbours, chains, …)`."""
    apart = [other - mine for other, mine in zip(others, own, strict=True)]
    return sum((one**2).sum((0, *range(2, one.ndim))) for one in apart)
