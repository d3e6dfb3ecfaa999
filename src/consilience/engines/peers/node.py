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
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from consilience.engines.base import Segment
from consilience.engines.peers.mailbox import Inbox, Outbox
from consilience.engines.peers.measurements import Stopwatch
from consilience.engines.peers.messages import Codec, Message, Rejected
from consilience.engines.peers.settings import NodeSettings, neighbours_of
from consilience.engines.peers.transport import Transport
from consilience.engines.rows import Rows
from consilience.gradients import network_gradients
from consilience.plans import Plan
from consilience.problems import Parameters, Problem, initial_positions, require_usable
from consilience.randomness import Purpose, agent_keys, normals

log = logging.getLogger("consilience.peers")
_MOST_BAD = 100
_LONGEST_SEGMENT = 4096


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
        self.dtype = jnp.dtype(plan.dtype)
        self.parameters = Parameters.of(problem, self.dtype)
        self.weights = neighbours_of(plan, settings.agent)
        self.max_steps = min(_LONGEST_SEGMENT, plan.num_steps)
        self._rows = Rows(problem, plan, self.dtype)
        chains = np.arange(plan.num_chains)
        self._keys = {purpose: agent_keys(plan.seed, purpose, chains, [settings.agent]) for purpose in Purpose}
        self._start = initial_positions(problem, self.parameters, self._keys[Purpose.INIT], self.dtype)
        require_usable(problem, self.parameters, self._start[0], self._rows.stacked)
        self._gradients = network_gradients(problem, self.parameters)
        shape = (plan.num_chains, self.parameters.size)
        self.codec = Codec(plan.digest(), shape, plan.dtype, plan.num_steps)
        self.outbox, self.inbox = Outbox(), Inbox(list(self.weights), 0)
        self.counts: Counter[str] = Counter()
        self.clock = Stopwatch()
        self.alive: set[int] = set()
        self.round, self.durable, self.done = 0, 0, False
        self.neighbours_done: set[int] = set()
        self.error = float("nan")
        self.stop = threading.Event()
        self._bad: Counter[int] = Counter()
        self._transport: Transport | None = None
        self._prepare, self._finish = jax.jit(self._before_mixing), jax.jit(self._after_mixing)
        self._share = jax.jit(jax.vmap(jax.vmap(plan.sampler.share)))
        self._position = jax.jit(jax.vmap(jax.vmap(plan.sampler.position)))

    def connect(self, first_round: int) -> None:
        """Join the network, to go on with a round."""
        self.round = self.durable = first_round
        self.inbox = Inbox(list(self.weights), first_round)
        self._transport = Transport(self.settings, self._receive, self._answer, self._change, "operator")

    def close(self) -> None:
        """Leave the network."""
        if self._transport is not None:
            self._transport.close()

    def initial_state(self) -> Any:
        """The sampler's state of this agent in every chain before the first round."""
        return jax.vmap(jax.vmap(self.plan.sampler.init))(self._start)

    def compile(self) -> None:
        """Compile a round."""
        state = self.initial_state()
        prepared = self._prepare(state, np.int32(0))
        others = np.zeros((len(self.weights), *self.codec.shape), self.dtype)
        jax.block_until_ready((self._finish(state, prepared, others), self._share(state), self._position(state)))

    def advance(self, state: Any, first_step: int, num_steps: int) -> tuple[Any, Segment]:
        """Make rounds with the neighbours; fewer if the node is told to stop meanwhile."""
        plan, draws = self.plan, []
        last, apart = first_step, np.zeros(plan.num_chains)
        for k in range(first_step, first_step + num_steps):
            self.clock.begin()
            message = np.asarray(self._share(state))[:, 0]
            if not np.isfinite(message).all():
                break
            self._publish(k, message)
            self.clock.end("publish")
            prepared = jax.block_until_ready(self._prepare(state, np.int32(k)))
            self.clock.end("gradient")
            if not self._wait(k):
                break
            self.clock.end("wait")
            others = np.stack(self.inbox.take(k)) if self.weights else np.zeros((0, *message.shape), self.dtype)
            apart = ((others - message) ** 2).sum((0, 2))
            state = jax.block_until_ready(self._finish(state, prepared, others))
            last = self.round = k + 1
            if last > plan.burn_in and (last - plan.burn_in) % plan.store_every == 0:
                draws.append(np.asarray(self._position(state)))
            self.outbox.forget_before(min(self.inbox.durable.values(), default=last))
            self.clock.end("mix")
        self.error = float(apart.mean())
        shape = (0, *self.codec.shape[:1], 1, self.codec.shape[1])
        stacked = np.stack(draws) if draws else np.zeros(shape, self.dtype)
        measured = np.array([last] if last > first_step else [], int)
        return state, Segment(last, stacked, measured, apart[None][: len(measured)])

    def find_non_finite(self, state: Any, first_step: int, num_steps: int) -> tuple[int, int, int] | None:
        """Rounds end at the first position that is not finite, so it is that of the last one."""
        return self.round, 0, self.settings.agent

    def linger(self, seconds: float) -> list[int]:
        """Serve neighbours that are not done for so long; those that are still not done."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self.stop.is_set():
            for number in set(self.weights) - self.neighbours_done:
                self._ask_status(number)
            if len(self.neighbours_done) == len(self.weights):
                return []
            self.stop.wait(0.3)
        return sorted(set(self.weights) - self.neighbours_done)

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
            "messages": {name: self.counts[name] for name in ("sent", "received", "rejected")},
            "distance_to_neighbours": None if np.isnan(self.error) else self.error,
        }

    def _before_mixing(self, state: Any, k: Any) -> Any:
        sampler, plan = self.plan.sampler, self.plan
        numbers = jax.tree.map(lambda x: jnp.asarray(x, self.dtype), sampler.coefficients(k, plan.num_agents))
        noise = normals(self._keys[Purpose.NOISE], k[None], self.parameters.size, self.dtype)
        positions = jax.vmap(jax.vmap(sampler.position))(state)
        shards, row_weights, scale = self._rows.arrays
        rows = self._rows.chosen_rows(self._keys[Purpose.BATCH], k)
        used = self._rows.used(shards, rows)
        own = rows is not None or self._rows.per_chain
        return numbers, noise.reshape(positions.shape), self._gradients(positions, used, row_weights, scale, own)

    def _after_mixing(self, state: Any, prepared: Any, others: jax.Array) -> Any:
        sampler = self.plan.sampler
        numbers, noise, gradient = prepared
        message = jax.vmap(jax.vmap(sampler.share))(state)
        disagreement = jnp.zeros_like(message)
        for place, weight in enumerate(self.weights.values()):
            disagreement = disagreement + jnp.asarray(weight, self.dtype) * (message - others[place][:, None])
        one = jax.vmap(jax.vmap(lambda s, g, d, v: sampler.step(s, g, d, numbers, v)))
        return one(state, gradient, disagreement, noise)

    def _publish(self, k: int, message: np.ndarray) -> None:
        self.outbox.keep(k, message)
        if self._transport is not None:
            content = self.codec.encode(Message(self.settings.agent, k, min(self.durable, k), message))
            self._transport.publish(content)
            self.counts["sent"] += 1
            self.counts["bytes_sent"] += len(content)

    def _wait(self, k: int) -> bool:
        """Wait for the messages of a round, asking for those that do not come; `False` if told to stop."""
        told = False
        while missing := self.inbox.wait(k, self.settings.ask_seconds):
            if self.stop.is_set():
                return False
            for number in missing:
                answer = self._ask(number, f"since/{k}")
                if answer:
                    for one in self.codec.decode_all(answer, number):
                        self._take(number, one)
            if not told and self.inbox.wait(k, 5 * self.settings.ask_seconds):
                about = {"round": k}
                log.info("agent %d waits for %s in round %d", self.settings.agent, _names(missing), k, extra=about)
                told = True
        return True

    def _ask(self, number: int, what: str) -> bytes | None:
        return None if self._transport is None else self._transport.ask(number, what, 2.0)

    def _ask_status(self, number: int) -> None:
        if self._ask_json(number, "status").get("done") is True:
            self.neighbours_done.add(number)

    def _ask_json(self, number: int, what: str) -> dict[str, Any]:
        """What a neighbour answers, if it is a JSON object; otherwise an empty one."""
        try:
            found = json.loads(self._ask(number, what) or b"{}")
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    def _receive(self, number: int, content: bytes) -> None:
        self.counts["bytes_received"] += len(content)
        self._take(number, self.codec.decode(content, number))

    def _take(self, number: int, found: Message | Rejected) -> None:
        if isinstance(found, Message):
            self.counts["received"] += 1
            self.inbox.put(found)
            return
        self.counts["rejected"] += 1
        self._bad[number] += 1
        if self._bad[number] == 1:
            log.warning("a message of agent %d was rejected: %s", number, found.reason)
            if found.other_run:
                threading.Thread(target=self._compare_plans, args=(number,), daemon=True).start()
        elif self._bad[number] == _MOST_BAD:
            log.error("agent %d keeps sending messages that are rejected (%d so far)", number, _MOST_BAD)

    def _compare_plans(self, number: int) -> None:
        theirs, ours = self._ask_json(number, "plan"), self.plan.model_dump(mode="json")
        different = [name for name in ours if theirs.get(name) != ours[name]]
        log.error("agent %d follows another plan: it differs in %s", number, ", ".join(different) or "its answer")

    def _answer(self, what: str) -> bytes | None:
        if what == "status":
            return json.dumps(self.status()).encode()
        if what == "plan":
            return json.dumps(self.plan.model_dump(mode="json")).encode()
        first = what.removeprefix("since/")
        if not first.isdigit():
            return None
        kept = self.outbox.since(int(first))
        agent = self.settings.agent
        return self.codec.encode_all(Message(agent, k, min(self.durable, k), values) for k, values in kept)

    def _change(self, number: int, here: bool) -> None:
        if here:
            self.alive.add(number)
        else:
            self.alive.discard(number)
        log.info("agent %d is %s", number, "here" if here else "gone")


def outbox_file(run: Path, step: int) -> Path:
    """Where the kept messages of a checkpoint are."""
    return run / "outbox" / f"{step}.npz"


def _names(numbers: list[int]) -> str:
    return ", ".join(f"agent {number}" for number in numbers)
