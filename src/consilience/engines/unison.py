"""The stepper of samplers in unison, for every engine: replicas of all chains, moved by one compiled program.

Engines differ in which agents are here and in how a sum over the others is made: `Place` says that. A step is a move
of all chains; the first `num_warmup` steps warm up.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from consilience.engines.base import MOST_ATTEMPTS, Alone, Segment, StateForm, Storage, Team
from consilience.engines.spreading import Agents, Buffers, OneDevice, Spread
from consilience.engines.unison_findings import findings
from consilience.errors import PlanError, ProblemError
from consilience.kernel.gradients import network_potentials
from consilience.kernel.grouping import by_number
from consilience.kernel.model_checks import require_usable
from consilience.kernel.network_sums import NetworkSums
from consilience.kernel.parameters import Parameters, initial_positions
from consilience.kernel.randomness import Purpose, agent_keys, chain_keys
from consilience.kernel.rows import Rows
from consilience.plans import Plan
from consilience.problems import Problem
from consilience.samplers import Unison
from consilience.samplers.transitions.adaptation import adapted, schedule
from consilience.samplers.transitions.replica import NEAR_RADIUS, Keys, Replica, start
from consilience.samplers.unison import FACTS

_BUFFER_BYTES = 2**24
_MOST_MOVES = 256
MEASURED = (*FACTS, "step_size")
"""What is measured with every move."""


class Place(Protocol):
    """Where replicas are, and how they are joined."""

    agents: np.ndarray
    """The numbers of the agents whose data is here."""
    storage_agents: np.ndarray
    """The numbers of all agents whose private draws the run holds, in the order of storing."""
    own: slice
    """Which of them this process writes."""
    team: Team
    moves_at_once: int
    """The most moves in one call of a compiled program."""

    def compiled(self, make: Make, *arguments: Any) -> Callable[..., Any]:
        """The program that `make` describes, compiled for arguments like these."""


Make = Callable[[Callable[[Any], Any], Callable[[Any], Any]], Callable[..., Any]]
"""From `total` and `vary` to a function of `(data, agents, …)` that uses them."""


class OneProcess:
    """All agents are here; there is nobody else to add."""

    moves_at_once = _MOST_MOVES
    team: Team = Alone()

    def __init__(self, num_agents: int) -> None:
        self.agents = self.storage_agents = np.arange(num_agents)
        self.own = slice(0, num_agents)

    def compiled(self, make: Make, *arguments: Any) -> Callable[..., Any]:
        """A plain program."""
        return jax.jit(make(_same, _same)).lower(*arguments).compile()


def _same(values: Any) -> Any:
    return values


def require_sampler(problem: Problem, plan: Plan) -> Unison:
    """The plan's sampler, if it can sample the problem."""
    sampler = plan.sampler
    assert isinstance(sampler, Unison)
    if problem.private and not sampler.takes_private:
        raise PlanError(
            f"the sampler {sampler.kind} does not take private parameters ({', '.join(problem.private)}): take hmc, "
            "which does"
        )
    if problem.replicas is not None:
        raise PlanError(f"the sampler {sampler.kind} samples one posterior: chains with data of their own need dula")
    return sampler


class Replicas:
    """Moves all chains; `problem` holds the shards of the agents that are here.

    In an epoch after the first, which begins when agents were lost or are back, chains have other random numbers, and
    `start` says around which positions `(chains, agents here, size)` they begin.
    """

    block_steps = 1
    segment_seconds = 0.4

    def __init__(
        self,
        problem: Problem,
        plan: Plan,
        place: Place,
        root: int,
        rows: Rows | None = None,
        spread: Spread | None = None,
        epoch: int = 0,
        start: np.ndarray | None = None,
    ) -> None:
        self.problem, self.plan, self.place, self.root, self.epoch = problem, plan, place, root, epoch
        self.spread = spread or OneDevice()
        self.uses_up_state = self.spread.uses_up_state
        self.sampler = require_sampler(problem, plan)
        self.team = place.team
        self.parameters = Parameters.of(problem, np.float64)
        self._rows = rows or Rows(problem, plan, jnp.float64, grouped=not self.parameters.groups)
        self._windows = schedule(plan.num_warmup or 0)
        start = self.team.attempt(self._usable_start) if start is None else start
        self._held, self._start = self._put(start)
        self.max_steps = self._moves_at_once()
        private = self.parameters.private
        self.storage = Storage(
            place.storage_agents, place.own, self.spread.agents_per_file(len(place.agents)), MEASURED, plan.num_steps,
            without_agents=frozenset(self.parameters.names) - private,
        )  # fmt: skip
        self.form: StateForm = self.spread.form(jax.eval_shape(self._blank, self._start))
        self._programs: dict[str, Any] = {}

    def _usable_start(self) -> np.ndarray:
        """Where agents start, if the model can be evaluated there."""
        start = self._first_positions()
        numbers = self.place.agents.tolist()
        require_usable(self.problem, self.parameters, jnp.asarray(start[0]), self._rows.stacked, numbers)
        return start

    def _put(self, start: np.ndarray) -> tuple[tuple[Any, Agents], Any]:
        """What programs are given of the agents that are here: their data, what is known of them, their start."""
        entries, shape = self.parameters.entries, (len(self.place.agents), self.parameters.size)
        own = np.ones(shape) if entries is None else np.asarray(entries, np.float64)
        agents = Agents(self.place.agents, own[:, self.parameters.num_shared :])
        data, agents, start = self.spread.held(self._rows.arrays, agents, start, self.parameters)
        return (data, agents), start

    def _first_positions(self) -> np.ndarray:
        """`(chains, agents here, size)` where `init` lets agents start; what is shared by keys without an agent."""
        plan, agents, split = self.plan, self.place.agents, self.parameters.num_shared
        chains = np.arange(plan.num_chains)
        own, common = (
            np.asarray(initial_positions(
                self.problem, self.parameters, agent_keys(plan.seed, Purpose.INIT, chains, numbers), jnp.float64
            )) for numbers in (agents, np.zeros_like(agents))
        )  # fmt: skip
        return np.concatenate([common[..., :split], own[..., split:]], -1)

    def _moves_at_once(self) -> int:
        places = self.spread.num_places(len(self.place.agents))
        entry = 8 * self.plan.num_chains * places * self.parameters.size
        return max(1, min(_MOST_MOVES, _BUFFER_BYTES // entry, self.place.moves_at_once))

    # --- a stepper ---------------------------------------------------------------------------------------------

    def data_digest(self) -> str:
        """Of the shards that are here, or of all that the team holds."""
        return self.spread.digest(self.problem)

    def largest_curvature(self) -> None:
        """Nobody needs it: the sampler finds its step size itself."""
        return None

    def initial_state(self) -> Replica:
        """Where the chains are before `start`, which needs the network and is part of the first segment."""
        return self.spread.made(self._blank, self._start)

    def _blank(self, own: Any) -> Replica:
        split = self.parameters.num_shared
        template = jax.eval_shape(self._program(self._started)(_same, _same), *self._held, own)
        blank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), template)
        return blank._replace(shared=own[:, 0, :split], private=own[..., split:])

    def compile(self) -> None:
        """Compile both programs, so that sampling can be timed apart."""
        if not self._programs:
            state = self.initial_state()
            numbers = (np.int32(0), np.int32(1), np.int32(0))
            self._programs = {
                "start": self.place.compiled(self._program(self._started), *self._held, self._start),
                "moves": self.place.compiled(self._program(self._moves), *self._held, state, *numbers),
            }

    def advance(self, state: Replica, first_step: int, num_steps: int) -> tuple[Replica, Segment]:
        """Make `num_steps` moves."""
        state, buffers = self.moved(state, first_step, num_steps)
        return state, self.segment(first_step, num_steps, buffers)

    def moved(self, state: Replica, first_step: int, num_steps: int, attempt: int = 0) -> tuple[Replica, Buffers]:
        """The replica after some moves, and what they left behind; the first of all begins with the start."""
        self.compile()
        if first_step == 0:
            state = self._programs["start"](*self._held, self._start)
            self._require_started(state)
        numbers = (np.int32(first_step), np.int32(num_steps), np.int32(attempt))
        state, buffers = jax.block_until_ready(self._programs["moves"](*self._held, state, *numbers))
        return state, self.spread.fetched(buffers)

    def segment(self, first_step: int, num_steps: int, buffers: Buffers) -> Segment:
        """What some moves leave behind, from buffers that may be longer."""
        warmup = max(0, self.plan.burn_in - first_step)
        shared, private = (values[warmup:num_steps] for values in (buffers.shared, buffers.private))
        flat = np.concatenate([shared, private.reshape(*private.shape[:2], math.prod(private.shape[2:]))], -1)
        measured = {name: values[:num_steps] for name, values in buffers.measured.items()}
        steps = first_step + 1 + np.arange(num_steps)
        return Segment(first_step + num_steps, flat, self.plan.draws_after(first_step), steps, measured)

    def by_variable(self, draws: np.ndarray) -> dict[str, np.ndarray]:
        """Draws by name: shared ones `(chains, draws, …)`, private ones `(chains, agents here, draws, …)`."""
        split, agents = self.parameters.num_shared, len(self.place.agents)
        ordered = np.moveaxis(draws, 0, 1)  # chains, draws, entries
        private = (
            ordered[..., split:].reshape(*ordered.shape[:2], agents, self.parameters.size - split).swapaxes(1, 2)
        )
        shared = np.broadcast_to(ordered[:, None, :, :split], (*private.shape[:3], split))
        found = self.parameters.variables(np.concatenate([shared, private], -1), agent_axis=1)
        return {name: values if name in self.parameters.private else values[:, 0] for name, values in found.items()}

    def agree_to_stop(self, satisfied: bool) -> bool:
        """Whether all agents are satisfied."""
        return satisfied

    def found(self, state: Replica) -> dict[str, Any]:
        """What the warm-up found."""
        now = state.adaptation
        own = self.spread.fetched(Buffers((), now.own_inverse_mass[None, None], ())).private[0, 0]
        return findings(now, self.parameters, self.place.agents.tolist(), own)

    def found_so_far(self, state: Replica) -> dict[str, Any]:
        """What the warm-up found until now."""
        return self.found(state)

    def is_finite(self, state: Replica) -> bool:
        """Always: what is not finite is not accepted."""
        return True

    def find_diverged(self, state: Any, first_step: int, num_steps: int) -> tuple[int, int, int] | None:
        """Nothing diverges in this sense."""
        return None

    def _require_started(self, state: Replica) -> None:
        bad = ~np.isfinite(np.asarray(state.log_density))
        if bad.any():
            raise ProblemError(
                f"the log-posterior of everybody's data is not finite where chain {int(bad.argmax())} starts: let "
                "init return a point at which every agent's rows have a positive likelihood, and of a sensible size"
            )

    # --- the programs ------------------------------------------------------------------------------------------

    def _program(self, function: Callable[..., Any]) -> Make:
        """A function of the network as a function of data, agents and the rest."""

        def make(total: Callable[[Any], Any], vary: Callable[[Any], Any]) -> Callable[..., Any]:
            def program(data: Any, agents: Any, *rest: Any) -> Any:
                return function(self._network(data, agents, total, vary), *rest)

            return program

        return make

    def _network(self, data: Any, agents: Agents, total: Any, vary: Any) -> NetworkSums:
        """What the sampler sees of the network, while a program is traced."""
        potentials: Callable[..., Any]
        if agents.groups is None:
            potentials = self._rows.evaluated(network_potentials(self.problem, self.parameters))
        else:
            potentials = by_number(self.problem, self.parameters, network_potentials)(agents.groups)
        shards, weights, scale = data
        rows = self._rows.used(shards)
        return NetworkSums(
            lambda positions: potentials(positions, rows, weights, scale, False), self.parameters.num_shared,
            self.plan.num_agents, total, agents.numbers, agents.entries, self.root, vary, agents.counts,
        )  # fmt: skip

    def _keys(self, step: Any, attempt: Any = 0) -> Keys:
        """The keys of a move; as another attempt, or in another epoch, it gets others."""
        keys = Keys(*chain_keys(self.plan.seed, Purpose.MOVE, self.plan.num_chains, step))
        attempt = self.epoch * MOST_ATTEMPTS + attempt
        again = jax.tree.map(
            lambda key: jax.vmap(lambda one: jax.random.fold_in(one, attempt))(key.reshape(-1)).reshape(key.shape),
            keys,
        )
        return jax.tree.map(lambda new, old: jnp.where(attempt > 0, new, old), again, keys)

    def _started(self, network: NetworkSums, positions: Any) -> Replica:
        """The replica at the start."""
        split = self.parameters.num_shared
        shared = network.adopt(jnp.swapaxes(positions[..., :split], 0, 1))
        least = NEAR_RADIUS if self.epoch else 0.0
        begun = start(self.sampler, network, self._keys(0), shared, positions[..., split:], least)
        return begun._replace(sums=begun.sums + 1)

    def _moves(self, network: NetworkSums, state: Replica, first_step: Any, num_steps: Any, attempt: Any) -> Any:
        """The replica after some moves, and what they left behind."""
        moves = self.max_steps
        lead = (moves, state.shared.shape[0])
        buffers = Buffers(
            jnp.zeros((lead[0], *state.shared.shape)), network.vary(jnp.zeros((lead[0], *state.private.shape))),
            {name: jnp.zeros(lead) for name in MEASURED},
        )  # fmt: skip

        def one(place: Any, carry: Any) -> Any:
            state, buffers = carry
            step = first_step + place
            used, sums = state.adaptation.step_size, state.sums
            state, facts = self.sampler.move(
                state._replace(sums=jnp.zeros_like(sums)), self._keys(step + 1, attempt), network,
                step < self.plan.burn_in,
            )  # fmt: skip
            state = adapted(self.sampler, self._windows, step, state, facts, network)
            measured = {**facts._asdict(), "step_size": jnp.broadcast_to(used, lead[1:])}
            measured["evaluations"] += sums
            left = Buffers(state.shared, state.private, {name: measured[name] for name in MEASURED})
            return state, jax.tree.map(
                lambda buffer, new: buffer.at[place].set(new.astype(buffer.dtype)), buffers, left
            )

        return jax.lax.fori_loop(0, num_steps, one, (state, buffers))
