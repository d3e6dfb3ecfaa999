"""Agents spread over devices and hosts: the program of `simulate` on every device, messages by `ppermute`.

One program runs on all devices (`shard_map` over the axes `chains`, `agents` and `model` of a mesh). A device holds
the states and data of its agents and chains, exchanges messages along the edges that are cut (`exchange.py`) and
otherwise works as `simulate` does. The numbers of an agent depend on seed, chain, agent and step alone, so the draws
are those of `simulate` up to rounding, whatever the number of devices.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as Spec

from consilience.engines.base import Gossiping, Segment, StateForm, Storage, Team, first_bad_step
from consilience.engines.matching import require_batches, require_replicas
from consilience.engines.mesh.checkpoints import MeshForm
from consilience.engines.mesh.data import Held, MeshData, data_digest, sizes_in_line
from consilience.engines.mesh.devices import DeviceSettings, make_mesh
from consilience.engines.mesh.exchange import Exchange
from consilience.engines.mesh.joining import place
from consilience.engines.mesh.layout import Layout, agents_per_group, line_of_agents
from consilience.engines.mesh.local_arrays import local_part
from consilience.engines.mesh.model_axis import ModelAxis
from consilience.engines.mesh.team import ProcessTeam
from consilience.engines.mesh.tuned import on_devices, tuning_specs
from consilience.engines.program import (
    BLOCK_NUMBERS,
    LONGEST_BLOCK,
    Local,
    Place,
    Sizes,
    Stored,
    longest_segment,
    measurements,
    run_segment,
    segment_of,
    sizes_of,
)
from consilience.errors import MeshError, ProblemError
from consilience.kernel.consensus import consensus_error
from consilience.kernel.curvature import largest_curvature
from consilience.kernel.gradients import NetworkGradients, network_gradients
from consilience.kernel.grouping import by_number, group_numbers
from consilience.kernel.model_checks import require_usable
from consilience.kernel.noise import noise_of_steps
from consilience.kernel.parameters import Parameters, initial_positions
from consilience.kernel.randomness import Purpose, agent_keys
from consilience.kernel.step import each
from consilience.kernel.tuning import Tuning, anchor_of, blank_tuning, coordinates_of, tuned_sampler
from consilience.kernel.variates import corrected
from consilience.kernel.whitening import identity
from consilience.plans import Plan
from consilience.problems import Problem
from consilience.samplers import Leaf
from consilience.version import __version__

_PACKAGES = ("jax", "jaxlib", "numpy", "scipy", "networkx", "orbax-checkpoint", "zarr")
_DRAWS = Spec(None, "chains", "agents", "model")


class MeshSimulation(Gossiping):
    """Samples every agent of every chain on the devices of one process or of several.

    Args:
        problem: with the shards of all agents, or in each of several processes with those of `own_agents`.
        plan: how.
        settings: which devices; by default all.
    """

    segment_seconds = 0.4
    uses_up_state = True

    def __init__(self, problem: Problem, plan: Plan, settings: DeviceSettings | None = None) -> None:
        self.plan, team = plan, ProcessTeam()
        self.team: Team = team
        require_same_start(team, plan, settings)
        self.mesh, self.axes, self.layout = _laid_out(plan, settings)
        self.dtype = jnp.dtype(plan.dtype)
        self.problem = own = self.team.attempt(lambda: own_part(problem, plan, self.layout, team))
        self.parameters = Parameters.of(own, self.dtype)
        self._require_same_layout(team)
        self.model = ModelAxis(self.axes.model, self.parameters.size)
        sizes = sizes_in_line(own, self.layout, self.team)
        require_batches(sizes[np.argsort(self.layout.line)], plan)
        self._data = MeshData(own, plan, self.dtype, self.layout, self.team, sizes)
        self.team.attempt(self._require_usable)
        self.exchange = Exchange.of(plan.graph, self.layout, self.dtype)
        self._padded_chains = self.axes.chains * -(-plan.num_chains // self.axes.chains)
        self._gradients = self._gradients_by_group()
        self._choose_sizes()
        self.held = self._data.on_devices(
            self.mesh,
            self._data.host_arrays(self._padded_chains, self.exchange.tables, group_numbers(self.parameters)),
        )
        self.storage = Storage(
            self.layout.line, self._own_agents, agents_per_group(plan.num_agents), ("consensus_error",),
            measurements(plan, self.block_steps),
        )  # fmt: skip
        self.form: StateForm = MeshForm(self)
        self._program: Any = None

    def _gradients_by_group(self) -> Callable[[Any], NetworkGradients]:
        """From the numbers of the agents' groups, if they differ, to their gradients."""
        if self.parameters.groups:
            return by_number(self.problem, self.parameters, network_gradients)
        same = self.model.gradients(self.problem, self.parameters)
        return lambda _: same

    def _require_same_layout(self, team: ProcessTeam) -> None:
        """Check that this mesh can hold the parameters, which one program treats on all devices."""
        parameters = self.parameters
        if parameters.private and self.axes.model > 1:
            raise MeshError(
                f"the problem has private parameters ({', '.join(sorted(parameters.private))}), which are not spread "
                "over devices: leave model_devices out"
            )
        require_same_shapes(team, parameters)

    def _require_usable(self) -> None:
        """Check the model where the agents of this process start, without the network."""
        own = self.agents[self._own_agents]
        keys = agent_keys(self.plan.seed, Purpose.INIT, [0], own)
        with jax.default_device(self.mesh.local_devices[0]):
            start = initial_positions(self.problem, self.parameters, keys, self.dtype)
            data = self.problem.stacked_shards(self.dtype)
            require_usable(self.problem, self.parameters, start[0], data, own.tolist())

    def _choose_sizes(self) -> None:
        """Blocks and segments from the plan alone, so that a run resumes with other devices; their parts fit here."""
        plan, size = self.plan, self.parameters.size
        longest = longest_segment(plan, size, self.dtype.itemsize)
        self.block_steps = max(1, min(LONGEST_BLOCK, longest))
        here = self._padded_chains // self.axes.chains * self.layout.capacity
        numbers = here * (self.model.slice_size + (plan.batch_size or 0))
        part = max(1, min(self.block_steps, BLOCK_NUMBERS // numbers))
        part = next(steps for steps in range(part, 0, -1) if self.block_steps % steps == 0)
        self.sizes = sizes_of(plan, longest, self.block_steps, part)
        self.max_steps = self.sizes.max_steps

    @property
    def agents(self) -> np.ndarray:
        """All agents in the order in which they are stored."""
        return self.layout.line

    @property
    def _own_agents(self) -> slice:
        """Which of the stored agents this process holds."""
        first, end = self.layout.process_starts[self.team.index : self.team.index + 2]
        return slice(int(first), int(end))

    def data_digest(self) -> str:
        """Of all agents' data, from what each process says of its own."""
        return data_digest(self.problem, self.agents[self._own_agents], self.plan.num_agents, self.team)

    def largest_curvature(self) -> float:
        """Of all agents, from what each process finds of its own."""
        plan, agents = self.plan, self.agents[self._own_agents]
        own = self.team.attempt(lambda: largest_curvature(self.problem, plan.seed, plan.dtype, agents))
        return float(self.team.gather(np.array(own)).max())

    @property
    def own_is_agent(self) -> np.ndarray:
        """Which places of this process are an agent's own, not left over."""
        return self.layout.is_agent[self._data.devices].reshape(-1)

    @property
    def _places(self) -> np.ndarray:
        """Which of the agents of this process each of its places holds."""
        return self.layout.rank_at[self._data.devices].reshape(-1) - self._own_agents.start

    def spread(self, leaf: np.ndarray, shape: Any) -> jax.Array:
        """An array `(chains, agents, …)` of all agents in line, laid out on the devices."""
        chains = np.minimum(np.arange(shape.shape[0]), self.plan.num_chains - 1)
        places = self.layout.rank_at[self._data.devices].reshape(-1)
        own = leaf[chains][:, places]
        filling = [(0, wanted - there) for wanted, there in zip(shape.shape[2:], own.shape[2:], strict=True)]
        own = np.pad(own, [(0, 0), (0, 0), *filling])
        return jax.make_array_from_process_local_data(shape.sharding, own, shape.shape)

    # --- the program -------------------------------------------------------------------------------------------

    def initial_state(self) -> Any:
        """The sampler's state of every chain and agent before the first step, on the devices."""
        if not callable(self.problem.init):
            return self.placed(self._own_starts())

        def start(held: Held) -> Any:
            keys = agent_keys(self.plan.seed, Purpose.INIT, held.chain_numbers, held.agent_numbers)
            return each(self.plan.gossip.init)(self._start_of(keys))

        return jax.jit(self._on_each_device(start, (self._held_specs,), self._state_specs))(self.held)

    def _own_starts(self) -> np.ndarray:
        """`(chains, agents here, size)` where every agent starts by a function of its own."""
        chains = np.arange(self.plan.num_chains)
        keys = agent_keys(self.plan.seed, Purpose.INIT, chains, self.agents[self._own_agents])
        with jax.default_device(self.mesh.local_devices[0]):
            return np.asarray(initial_positions(self.problem, self.parameters, keys, self.dtype))

    def placed(self, positions: np.ndarray) -> Any:
        """The sampler's state at positions `(chains, agents here, size)`, laid out on the devices."""
        chains = np.minimum(np.arange(self._padded_chains), self.plan.num_chains - 1)
        with jax.default_device(self.mesh.local_devices[0]):
            state = each(self.plan.gossip.init)(jnp.asarray(positions[chains], self.dtype))
        places, filling = self._places, self.model.padded_size - self.parameters.size

        def on_devices(kind: Leaf, leaf: jax.Array, shape: Any) -> jax.Array:
            own = np.asarray(leaf)[:, places]
            if kind is Leaf.VECTOR:
                own = np.pad(own, [(0, 0)] * (own.ndim - 1) + [(0, filling)])
            return jax.make_array_from_process_local_data(shape.sharding, own, shape.shape)

        return jax.tree.map(
            lambda kind, *parts: jax.tree.map(lambda *leaves: on_devices(kind, *leaves), *parts),
            self.plan.gossip.state_leaves, state, self.state_shapes(),
        )  # fmt: skip

    def _start_of(self, keys: jax.Array) -> jax.Array:
        """This device's slice of where its agents start; whole vectors of one agent at a time, if it is a slice."""
        if self.model.devices == 1:
            return initial_positions(self.problem, self.parameters, keys, self.dtype)

        def one_agent(key: jax.Array) -> jax.Array:
            return self.model.own_slice(initial_positions(self.problem, self.parameters, key, self.dtype))

        return jax.lax.map(one_agent, keys.reshape(-1)).reshape(*keys.shape, -1)

    def compile(self) -> None:
        """Compile the program for segments of any length."""
        if self._program is None:
            self._program = self.lowered(self.held).compile()

    def lowered(self, held: Held, sizes: Sizes | None = None) -> Any:
        """The program before compilation, for segments of other sizes if they are given."""
        tuning = self._laid_out(self._blank_tuning)
        program = self._on_each_device(
            partial(self._segment, sizes or self.sizes),
            (self._state_specs, tuning_specs(tuning), Place(Spec(), Spec(), Spec()), self._held_specs),
            (self._state_specs, _DRAWS, Spec(None, "chains")),
        )
        place = Place(*[jax.ShapeDtypeStruct((), jnp.int32)] * 3)
        return jax.jit(program, donate_argnums=0).lower(self.state_shapes(), tuning, place, held)

    def advance(self, state: Any, first_step: int, num_steps: int) -> tuple[Any, Segment]:
        """Make `num_steps` steps from `first_step`; uses up the given state, whose buffers the new one takes."""
        return self.walked(state, None, first_step, num_steps, Stored.of(self.plan))

    def walked(
        self, state: Any, tuning: Tuning | None, first_step: int, num_steps: int, stored: Stored
    ) -> tuple[Any, Segment]:
        """Make steps with the numbers of a tuning; draws are stored as `stored` says."""
        self.compile()
        place = Place.of(first_step, num_steps, stored)
        new_state, draws, errors = self._program(state, self._laid_out(tuning), place, self.held)
        errors = local_part(errors)[:, : self.plan.num_chains]
        return new_state, segment_of(stored, self.block_steps, first_step, num_steps, self._own_draws(draws), errors)

    def is_finite(self, state: Any) -> bool:
        """Whether all numbers of the state are finite, in all processes."""
        return not self._bad_positions(state).any()

    def find_diverged(
        self, state: Any, first_step: int, num_steps: int, tuning: Tuning | None = None
    ) -> tuple[int, int, int] | None:
        """Bisect a segment for the first step after which a position is not finite."""
        stored = Stored.of(self.plan)

        def bad_after(steps: int) -> np.ndarray:
            reached = jax.tree.map(jnp.copy, state)
            if steps:
                reached, _ = self.walked(reached, tuning, first_step, steps, stored)
            return self._bad_positions(reached)

        found = first_bad_step(bad_after, num_steps)
        if found is None:
            return None
        steps, (chain, where) = found
        rank = self.layout.rank_at.reshape(-1)[where]
        return first_step + steps, min(int(chain), self.plan.num_chains - 1), int(self.agents[rank])

    # --- what a warm-up asks --------------------------------------------------------------------------------------

    def positions(self, state: Any) -> np.ndarray:
        """`(chains, agents here, size)` the positions in a state, in the sampler's coordinates."""
        found = local_part(self._positions_program(state))[: self.plan.num_chains, self.own_is_agent]
        return found[..., : self.parameters.size]

    @cached_property
    def _positions_program(self) -> Any:
        return jax.jit(each(self.plan.gossip.position))

    def total(self, values: np.ndarray) -> np.ndarray:
        """The sum over all agents of values `(agents here, …)`, the same in all processes."""
        return self.team.gather(values.sum(0)).sum(0)

    @property
    def _blank_tuning(self) -> Tuning | None:
        """A tuning as programs take it, if the sampler tunes itself."""
        if not self.plan.sampler.tunes_itself:
            return None
        shared, size = self.parameters.num_shared, self.parameters.size
        here = len(self.agents[self._own_agents])
        whitening = identity(shared, here, size - shared)
        return blank_tuning(whitening, here, size, self.plan.has_control_variates)

    def _laid_out(self, tuning: Tuning | None) -> Tuning | None:
        """A tuning on the devices."""
        return on_devices(tuning, self.mesh, self._places, self.team.size, self.dtype)

    # --- what the state is -------------------------------------------------------------------------------------

    def state_shapes(self) -> Any:
        """Shapes and places of the state's arrays."""
        position = jax.ShapeDtypeStruct((self.model.padded_size,), self.dtype)
        lead = (self._padded_chains, self.layout.num_devices * self.layout.capacity)
        one = jax.eval_shape(self.plan.gossip.init, position)
        return jax.tree.map(
            lambda leaf, spec: jax.ShapeDtypeStruct(
                (*lead, *leaf.shape), leaf.dtype, sharding=NamedSharding(self.mesh, spec)
            ),
            one,
            self._state_specs,
        )

    @property
    def _state_specs(self) -> Any:
        """A vector of the parameters is spread along `model`, anything else is the same there."""

        def spec(kind: Leaf, part: Any) -> Any:
            own = Spec("chains", "agents", "model") if kind is Leaf.VECTOR else Spec("chains", "agents")
            return jax.tree.map(lambda _: own, part)

        position = jax.ShapeDtypeStruct((self.model.padded_size,), self.dtype)
        return jax.tree.map(spec, self.plan.gossip.state_leaves, jax.eval_shape(self.plan.gossip.init, position))

    @property
    def _held_specs(self) -> Held:
        return self._data.specs(self.held)

    def _on_each_device(self, function: Any, in_specs: Any, out_specs: Any) -> Any:
        return jax.shard_map(function, mesh=self.mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)

    @cached_property
    def _bad_positions_program(self) -> Any:
        """Made once: a new function would be traced again in every segment."""

        def bad(state: Any) -> jax.Array:
            return ~jnp.isfinite(each(self.plan.gossip.position)(state)).all(-1)

        return jax.jit(bad, out_shardings=NamedSharding(self.mesh, Spec()))

    def _bad_positions(self, state: Any) -> np.ndarray:
        """`(chains, places)` which positions are not finite, the same in every process."""
        return np.asarray(self._bad_positions_program(state))

    def _own_draws(self, draws: jax.Array) -> np.ndarray:
        """`(slots, chains, agents, size)` of the agents of this process, in line."""
        part = local_part(draws)[:, : self.plan.num_chains, :, : self.parameters.size]
        real = self.own_is_agent
        return part if real.all() else part[:, :, real]

    def _segment(self, sizes: Sizes, state: Any, tuning: Tuning | None, place: Place, held: Held) -> Any:
        """One device's part of a segment."""
        chains, agents = held.chain_numbers, held.agent_numbers
        keys = {
            purpose: agent_keys(self.plan.seed, purpose, chains, agents) for purpose in (Purpose.NOISE, Purpose.BATCH)
        }
        sampler = tuned_sampler(self.plan.gossip, tuning, self.dtype)
        parameters, pulled_back = coordinates_of(tuning)
        common = None
        if sampler.has_common_noise:
            common = agent_keys(self.plan.seed, Purpose.COMMON_NOISE, chains, 0 * agents)
        tables = jax.tree.map(lambda leaf: leaf[0], held.tables)
        data, size = self._data.rows, self.model.slice_size

        own_sizes = np.array([group.parameters.size for group in self.parameters.groups])
        noise_from = noise_of_steps(
            keys[Purpose.NOISE], common, self.parameters.num_shared, sizes.prepared_steps, size, self.dtype,
            self.model.first(),
        )  # fmt: skip

        def noise(first: Any) -> jax.Array:
            numbers = noise_from(first)
            if held.groups is not None:
                entries = jnp.arange(size) < jnp.asarray(own_sizes)[held.groups][:, None]
                numbers = (numbers.reshape(-1, *entries.shape) * entries).reshape(numbers.shape)
            return self.model.without_filling(numbers)

        def gradients(positions: jax.Array, rows: jax.Array | None) -> jax.Array:
            own = rows is not None or data.per_chain
            used = data.used(held.shards, rows)

            def of_batch(where: jax.Array) -> jax.Array:
                return self._gradients(held.groups)(where, used, held.row_weights, held.scale, own)

            return pulled_back(corrected(of_batch, anchor_of(tuning))(positions))

        local = Local(
            sampler=sampler,
            shape=(chains.shape[0], agents.shape[0], size),
            noise=noise,
            chosen_rows=lambda steps: self._data.rows_chosen(keys[Purpose.BATCH], steps, held),
            gradients=gradients,
            disagreement=lambda messages: self.exchange.disagreement(messages, tables),
            consensus_error=lambda positions: self._consensus_error(positions, held.is_agent),
            private_start=self.parameters.private_start,
            parameters=parameters,
        )
        return run_segment(self.plan, sizes, self.dtype, local, state, place)

    def _consensus_error(self, positions: jax.Array, is_agent: jax.Array) -> jax.Array:
        def total(values: jax.Array) -> jax.Array:
            return jax.lax.psum(jnp.where(is_agent[:, None], values, 0).sum(1), "agents")

        return jax.lax.psum(consensus_error(positions, self.plan.num_agents, total), "model")


def own_part(problem: Problem, plan: Plan, layout: Layout, team: Team) -> Problem:
    """The shards of this process, in line."""
    require_replicas(problem, plan)
    ranks = layout.ranks_of_process(team.index)
    if problem.num_agents == plan.num_agents:
        return problem.of_agents(layout.line[ranks].tolist())
    if problem.num_agents == len(ranks) and problem.network_size == plan.num_agents:
        return problem
    raise ProblemError(
        f"the problem has {problem.num_agents} shards but the graph has {plan.num_agents} agents: give "
        "every agent one shard"
    )


def require_same_start(team: ProcessTeam, plan: Plan, settings: DeviceSettings | None) -> None:
    """Check that all processes were started for the same run, by the same packages."""
    team.require_same(
        "another plan, version or setting",
        _identity(plan, settings),
        "start all processes with the same command, but for --process-id, and the same packages",
    )


def require_same_shapes(team: ProcessTeam, parameters: Parameters) -> None:
    """Check that agents of several processes have parameters of the same shapes: one program serves them all."""
    if team.size == 1:
        return
    remedy = "use one process, or the engine peers, for agents that differ"
    digest = hashlib.sha256(repr((parameters.names, parameters.shapes, len(parameters.groups))).encode())
    team.require_same("private parameters of other lengths", digest.digest(), remedy)
    if parameters.groups:
        raise MeshError(f"agents have private parameters of different lengths: {remedy}")


def own_agents(plan: Plan, settings: DeviceSettings | None = None) -> np.ndarray:
    """The agents of this process, in the order in which `Mesh` wants their shards."""
    _, _, layout = _laid_out(plan, settings)
    return layout.line[layout.ranks_of_process(place()[0])]


def _identity(plan: Plan, settings: DeviceSettings | None) -> bytes:
    """A digest of all that must be the same in every process.

    A graph is made by NetworkX and put in line by SciPy: what they made is compared too, not only what was asked for.
    """
    versions = [importlib.metadata.version(name) for name in _PACKAGES]
    chosen = (settings or DeviceSettings()).model_dump_json()
    digest = hashlib.sha256("|".join([plan.digest(), __version__, *versions, chosen]).encode())
    for made in (plan.graph.edges, plan.graph.weights, line_of_agents(plan.graph)):
        digest.update(np.ascontiguousarray(made).tobytes())
    return digest.digest()


def _laid_out(plan: Plan, settings: DeviceSettings | None) -> Any:
    mesh, axes = make_mesh(settings or DeviceSettings(), plan.num_agents, plan.num_chains)
    return mesh, axes, Layout.of(plan.graph, place()[1], axes.agents)
