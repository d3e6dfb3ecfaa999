"""One agent in a process of its own: the step of `simulate`, with the neighbours' messages from the network.

In round `k` a node publishes its message first, computes its gradient while messages travel, waits for the messages
of all its neighbours, and then mixes and steps. Randomness is derived from the round, so a node that was killed
recomputes from its checkpoint just what it had computed before, and asks for the messages that it missed.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from consilience.engines.base import Segment
from consilience.engines.peers.edges import EdgeRecord, Edges
from consilience.engines.peers.mailbox import Inbox, Outbox
from consilience.engines.peers.measurements import Stopwatch
from consilience.engines.peers.messages import Codec, Message, Rejected, join
from consilience.engines.peers.settings import NodeSettings, neighbours_of
from consilience.engines.peers.step import AgentStep
from consilience.engines.peers.transport import Transport, read_object
from consilience.plans import Plan
from consilience.problems import Problem

log = logging.getLogger("consilience.peers")
_MOST_BAD = 100
_LONGEST_SEGMENT = 4096
_ASK_AGAIN_SECONDS = 0.25  # for an edge that was lost
_SLOWEST_LINE = 125_000  # bytes a second, with which a message must still come in time
_RECENT_SECONDS = 5.0


class NodeState(NamedTuple):
    """What a node's checkpoint holds."""

    sampler: Any
    """The sampler's state of this agent in every chain."""
    edges: EdgeRecord | None
    """Of a node that goes on without lost neighbours."""


class Node:
    """The engine of one agent; `problem` holds its own shard alone.

    Args:
        problem: what this agent knows (`Problem.of_agent`).
        plan: the whole network's plan.
        settings: who and where it is.
    """

    block_steps = 1

    def __init__(self, problem: Problem, plan: Plan, settings: NodeSettings) -> None:
        self.problem, self.plan, self.settings = problem, plan, settings
        self.weights = neighbours_of(plan, settings.agent)
        self.step = AgentStep(problem, plan, settings.agent, self.weights)
        self.parameters, shape = self.step.parameters, self.step.shape
        self.max_steps = min(_LONGEST_SEGMENT, plan.num_steps)
        self.continues = settings.on_loss == "continue"
        self.codec = Codec(
            f"{plan.digest()} {settings.on_loss}", shape, plan.dtype, plan.num_steps,
            plan.num_agents if self.continues else 0,
        )  # fmt: skip
        self.edges = Edges(settings.agent, self.weights, shape, plan.num_agents)
        self.outbox, self.inbox = Outbox(), Inbox(list(self.weights), 0)
        self.counts: Counter[str] = Counter()
        self.clock = Stopwatch()
        self.alive: set[int] = set()
        self.round, self.durable, self.done = 0, 0, False
        self.neighbours_done: set[int] = set()
        self.error = float("nan")
        self.stop, self._left = threading.Event(), threading.Event()
        self._bad: Counter[int] = Counter()
        self._present = np.ones(plan.num_agents, bool)
        self._transport: Transport | None = None

    def connect(self, first_round: int, state: NodeState) -> None:
        """Join the network, to go on with a round."""
        self.round = self.durable = first_round
        self.inbox = Inbox(list(self.weights), first_round)
        if state.edges is not None:
            self.edges.restore(state.edges)
        self._transport = Transport(self.settings, self._receive, self._answer, self._change, "operator")
        if self.continues:
            threading.Thread(target=self._win_back, daemon=True).start()

    def close(self) -> None:
        """Leave the network."""
        self._left.set()
        if self._transport is not None:
            self._transport.close()

    def initial_state(self) -> NodeState:
        """The state of this agent in every chain before the first round."""
        return NodeState(self.step.initial_state(), self.edges.record() if self.continues else None)

    def compile(self) -> None:
        """Compile a round."""
        self.step.compile()

    def advance(self, state: NodeState, first_step: int, num_steps: int) -> tuple[NodeState, Segment]:
        """Make rounds with the neighbours; fewer if the node is told to stop meanwhile, or takes up a later round."""
        plan, draws, present = self.plan, [], []
        first = self._take_up(first_step)
        last, apart, sampler = first, None, state.sampler
        for k in range(first, min(first + num_steps, plan.num_steps)):
            self.clock.begin()
            message = self.step.message(sampler)
            if not np.isfinite(message).all():
                break
            self._publish(k, message)
            self.clock.end("publish")
            prepared = self.step.prepare(sampler, np.int32(k))
            prepared[-1].block_until_ready()
            self.clock.end("gradient")
            if not self._wait(k):
                break
            self.clock.end("wait")
            others = self._others(k, message, prepared)
            apart, sampler = others - message, self.step.finish(sampler, prepared, others)
            last = self.round = k + 1
            if last > plan.burn_in and (last - plan.burn_in) % plan.store_every == 0:
                draws.append(self.step.position(sampler))
                present.append(self._present)
            kept_for = [self.inbox.durable[number] for number in self.weights if self.edges.is_up(number)]
            self.outbox.forget_before(min(kept_for, default=last))
            self.clock.end("mix")
        error = np.zeros((0, plan.num_chains)) if apart is None else (apart**2).sum((0, 2))[None]
        if apart is not None:
            self.error = float(error.mean())
        shape = (0, *self.codec.shape[:1], 1, self.codec.shape[1])
        stacked = np.stack(draws) if draws else np.zeros(shape, self.step.dtype)
        measured = np.array([last] if last > first else [], int)
        new = NodeState(sampler, self.edges.record() if self.continues else None)
        counted = np.array(present, bool).reshape(-1, plan.num_agents) if self.continues else None
        return new, Segment(last, stacked, measured, error, plan.draws_after(first), counted)

    def _take_up(self, step: int) -> int:
        """The round to go on with: the next, or that of neighbours who have gone on without this node."""
        first = self.edges.jump(step)
        if first > step:
            log.info("agent %d takes up round %d; it was absent since %d", self.settings.agent, first, step)
            self.round = first
            self.inbox.skip_to(first)
            self.outbox.forget_before(first)
        return first

    def _others(self, k: int, message: np.ndarray, prepared: Any) -> np.ndarray:
        """The neighbours' messages of a round, `(neighbours, chains, size)`."""
        found = self.inbox.take(k)
        if self.continues:
            pull = float(prepared[0].pull)
            came = {number: (one.values, one.heard) for number, one in found.items()}
            others = self.edges.settle(k, message, came, pull)
            self._count_present(k)
            return others
        values = [one.values for one in found.values()]
        return np.stack(values) if values else np.zeros((0, *message.shape), message.dtype)

    def _count_present(self, k: int) -> None:
        present = self.edges.present(k)
        if not (present == self._present).all():
            who = _names(np.flatnonzero(present).tolist())
            log.warning(
                "agent %d from round %d: %s", self.settings.agent, k,
                "the data of all agents counts again" if present.all() else f"samples the posterior of {who} only",
            )  # fmt: skip
            self._present = present

    def find_non_finite(self, state: Any, first_step: int, num_steps: int) -> tuple[int, int, int] | None:
        """Rounds end at the first position that is not finite, so it is that of the last one."""
        return self.round, 0, self.settings.agent

    def finish(self) -> None:
        """Tell the neighbours that all rounds are made, by a message of the round after the last."""
        self.round = self.durable = self.plan.num_steps
        self.done = True
        if self._transport is not None:
            self._transport.publish(self._encode(self.plan.num_steps, np.zeros(self.codec.shape)))

    def linger(self, seconds: float) -> list[int]:
        """Serve neighbours that are not done for so long; those that are still not done."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self.stop.is_set():
            for number in self._not_done():
                self._ask_status(number)
            if not self._not_done():
                return []
            self.stop.wait(0.3)
        return self._not_done()

    def _not_done(self) -> list[int]:
        """The neighbours that may still need messages of this node."""
        waiting = sorted(set(self.weights) - self.neighbours_done)
        if not self.continues:
            return waiting
        return [number for number in waiting if self.edges.is_up(number) and not self._silent(number)]

    def _silent(self, number: int) -> bool:
        """Whether a neighbour has been gone for longer than this node's patience."""
        heard = time.monotonic() - self.inbox.heard_at[number]
        return number not in self.alive and heard > self.settings.patience

    def status(self) -> dict[str, Any]:
        """What the node says of itself when it is asked."""
        return {
            "agent": self.settings.agent,
            "round": self.round,
            "num_rounds": self.plan.num_steps,
            "durable": self.durable,
            "done": self.done,
            "kept_messages": len(self.outbox),
            "neighbours": {str(number): number in self.alive for number in self.weights},
            "lost": [number for number in self.weights if not self.edges.is_up(number)],
            "present": np.flatnonzero(self._present).tolist(),
            "messages": {name: self.counts[name] for name in ("sent", "received", "rejected")},
            "distance_to_neighbours": None if np.isnan(self.error) else self.error,
        }

    def _publish(self, k: int, message: np.ndarray) -> None:
        self.outbox.keep(k, message)
        if self._transport is not None:
            content = self._encode(k, message)
            self._transport.publish(content)
            self.counts["sent"] += 1
            self.counts["bytes_sent"] += len(content)

    def _encode(self, k: int, values: np.ndarray) -> bytes:
        heard = self.edges.heard if self.continues else np.zeros(0, np.int64)
        return self.codec.encode(Message(self.settings.agent, k, min(self.durable, k), values, heard))

    def _wait(self, k: int) -> bool:
        """Wait for the messages of a round, asking for those that do not come; `False` if the round is not made."""
        began, told = time.monotonic(), False
        last_sign = dict.fromkeys(self.weights, began)
        while missing := self.inbox.wait(k, self.settings.ask_seconds, self.edges.used(k)):
            if self.stop.is_set() or self.edges.must_jump(k):
                return False
            for number in missing:
                answer = self._ask(number, f"since/{k}")
                for one in self.codec.decode_all(answer or b"", number):
                    self._take(number, one)
                    self.counts["asked_for"] += isinstance(one, Message)
                if answer is not None:  # it is there: it computes, or waits for others itself
                    last_sign[number] = time.monotonic()
                if self.continues and self._is_lost(number, k, answer is not None, last_sign[number]):
                    self.edges.lose(number)
                    log.warning("agent %d goes on without agent %d from round %d", self.settings.agent, number, k)
            if not told and time.monotonic() - began > 5 * self.settings.ask_seconds:
                log.info(
                    "agent %d waits for %s in round %d", self.settings.agent, _names(missing), k, extra={"round": k}
                )
                told = True
        return not self.edges.must_jump(k)

    def _is_lost(self, number: int, k: int, answered: bool, last_sign: float) -> bool:
        """Whether a neighbour is silent, has gone on by itself, or sends what cannot be used."""
        if not self.inbox.wait(k, 0.0, [number]):
            return False
        gone_on = answered and self.inbox.latest[number] > k
        silent = k > 0 and time.monotonic() - last_sign > self.settings.patience  # the first round waits for all
        return gone_on or silent or self._bad[number] >= _MOST_BAD

    def _win_back(self) -> None:
        """Ask neighbours that are heard again for their lost edges, until the node leaves the network."""
        patience, round_, then = dict.fromkeys(self.weights, 1.0), self.round, time.monotonic()
        while not self._left.wait(_ASK_AGAIN_SECONDS):
            now = time.monotonic()
            rate, round_, then = (self.round - round_) / (now - then), self.round, now
            for number in self.edges.lost():
                recent = now - self.inbox.heard_at[number] < _RECENT_SECONDS
                if recent and self._bad[number] < _MOST_BAD and not self.done:
                    won = self._ask_for_edge(number, 4 + int(rate * patience[number]))
                    patience[number] = 1.0 if won else min(2 * patience[number], 8.0)

    def _ask_for_edge(self, number: int, margin: int) -> bool:
        """Ask a neighbour to use an edge again, from a round on that both will reach only after its answer."""
        agent, own, latest = self.settings.agent, self.round, self.inbox.latest[number]
        first = max(own, latest) + margin
        ledger = self.edges.ask(number) if first < self.plan.num_steps else None
        if ledger is None:
            return False
        wish = self.codec.encode(Message(agent, first, own, ledger, self.edges.heard))
        answer = self._ask(number, f"edge/{agent}", wish)
        found = self.codec.decode(answer, number) if answer else None
        theirs, their_round = None, 0
        if isinstance(found, Message) and found.round == first:
            theirs, their_round = found.values, found.durable
        won = self.edges.agreed(number, first, theirs, self.round, their_round)
        if won:
            log.info("agent %d uses the edge to agent %d again from round %d", agent, number, first)
        return won

    def _grant_edge(self, number: int, content: bytes) -> bytes | None:
        """Answer a neighbour that wants to use an edge again."""
        wish = self.codec.decode(content, number) if number in self.weights and self.continues else None
        if not isinstance(wish, Message) or self.done or wish.round == self.plan.num_steps:
            return None
        own = self.round
        mine = self.edges.accept(number, wish.round, wish.values, own, wish.durable)
        if mine is None:
            return None
        agent = self.settings.agent
        log.info("agent %d uses the edge to agent %d again from round %d", agent, number, wish.round)
        return self.codec.encode(Message(agent, wish.round, min(own, wish.round), mine, self.edges.heard))

    def _ask(self, number: int, what: str, content: bytes | None = None) -> bytes | None:
        seconds = 2.0 + self.codec.longest / _SLOWEST_LINE
        return None if self._transport is None else self._transport.ask(number, what, seconds, content)

    def _ask_status(self, number: int) -> None:
        if self._ask_json(number, "status").get("done") is True:
            self.neighbours_done.add(number)

    def _ask_json(self, number: int, what: str) -> dict[str, Any]:
        """What a neighbour answers, if it is a JSON object; otherwise an empty one."""
        return read_object(self._ask(number, what) or b"")

    def _receive(self, number: int, content: bytes) -> None:
        self.counts["bytes_received"] += len(content)
        self._take(number, self.codec.decode(content, number))

    def _take(self, number: int, found: Message | Rejected) -> None:
        if isinstance(found, Message) and self._bad[number] < _MOST_BAD:
            self.counts["received"] += 1
            if found.round == self.plan.num_steps:
                self.neighbours_done.add(number)
            else:
                self.inbox.put(found)
            return
        self.counts["rejected"] += 1
        if isinstance(found, Message):
            return
        self._bad[number] += 1
        if self._bad[number] == 1:
            log.warning("a message of agent %d was rejected: %s", number, found.reason)
            if found.other_run:
                threading.Thread(target=self._compare_plans, args=(number,), daemon=True).start()
        elif self._bad[number] == _MOST_BAD:
            log.error(
                "agent %d keeps sending messages that are rejected (%d so far): it counts as lost until it is "
                "started again", number, _MOST_BAD,
            )  # fmt: skip

    def _compare_plans(self, number: int) -> None:
        theirs, ours = self._ask_json(number, "plan"), self._entries()
        different = [name for name in ours if theirs.get(name) != ours[name]] if theirs else []
        log.error(
            "agent %d follows another plan: it differs in %s",
            number, ", ".join(different) or "what it does not say when it is asked",
        )  # fmt: skip

    def _entries(self) -> dict[str, Any]:
        """What all nodes of a network must have in common."""
        return {**self.plan.model_dump(mode="json"), "on_loss": self.settings.on_loss}

    def _answer(self, what: str, content: bytes) -> bytes | None:
        if what == "status":
            return json.dumps(self.status()).encode()
        if what == "plan":
            return json.dumps(self._entries()).encode()
        kind, _, number = what.partition("/")
        if not _is_number(number):
            return None
        if kind == "edge":
            return self._grant_edge(int(number), content)
        kept = self.outbox.since(int(number))
        return join(self._encode(k, values) for k, values in kept)

    def _change(self, number: int, here: bool) -> None:
        if here:
            self.alive.add(number)
            self._bad[number] = 0
        else:
            self.alive.discard(number)
        log.info("agent %d is %s", number, "here" if here else "gone")


def _is_number(word: str) -> bool:
    """Whether a part of a key is a number that this node reads.

    >>> [_is_number(word) for word in ("17", "", "-1", "²", "9" * 5000)]
    [True, False, False, False, False]
    """
    return word.isascii() and word.isdigit() and len(word) < 12


def outbox_file(run: Path, step: int) -> Path:
    """Where the kept messages of a checkpoint are."""
    return run / "outbox" / f"{step}.npz"


def _names(numbers: list[int]) -> str:
    return ", ".join(f"agent {number}" for number in numbers)
