"""Samplers in unison on a mesh: replicas on all devices, private parts on the device of their agent.

One program runs on all devices (`shard_map` over the axis `agents`). A sum over the network is one `psum` of
integers, so its bits do not depend on the number of devices. JAX checks which values vary from device to device
(`check_vma`): what agents share must not, or the program is not made. For that, `vary` marks a position before local
gradients are taken at it; without, JAX would sum those gradients over devices once more, and they would be so many
times too large.

Chains adapt together, so no devices stand along `chains`. Where devices do not share agents evenly, places are left
over as in `layout.py`: they repeat an agent and count in no sum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as Spec

from consilience.engines.base import StateForm, Stepper, Team
from consilience.engines.mesh.data import data_digest, sizes_in_line
from consilience.engines.mesh.devices import DeviceSettings, make_mesh
from consilience.engines.mesh.engine import MeshSimulation, own_part, require_same_shapes, require_same_start
from consilience.engines.mesh.joining import place
from consilience.engines.mesh.layout import Layout, agents_per_group
from consilience.engines.mesh.local_arrays import local_part
from consilience.engines.mesh.replica_form import EVERYWHERE, ReplicaForm, agent_axes
from consilience.engines.mesh.team import ProcessTeam
from consilience.engines.spreading import Agents, Buffers
from consilience.engines.unison import Make, Replicas
from consilience.engines.warmed import WarmedStepper
from consilience.errors import MeshError
from consilience.graphs.spanning import centre
from consilience.kernel.grouping import group_numbers
from consilience.kernel.parameters import Parameters
from consilience.kernel.rows import Rows
from consilience.plans import Plan
from consilience.problems import Problem
from consilience.samplers.transitions.replica import Replica

_MOST_MOVES = 256


class MeshPlace:
    """Agents spread over the devices of one process or of several; says to `Replicas` where they are, and how."""

    moves_at_once = _MOST_MOVES
    uses_up_state = True

    def __init__(self, plan: Plan, settings: DeviceSettings, team: ProcessTeam) -> None:
        self.mesh, self.layout = _laid_out(plan, settings)
        self.team: Team = team
        first, end = self.layout.process_starts[team.index : team.index + 2]
        self.own = slice(int(first), int(end))
        self.storage_agents = self.layout.line
        self.agents = self.layout.line[self.own]
        per_process = self.layout.num_devices // team.size
        devices = slice(team.index * per_process, (team.index + 1) * per_process)
        self.places = self.layout.rank_at[devices].reshape(-1) - self.own.start
        """Which of the agents here each place holds."""
        self.is_agent = self.layout.is_agent[devices].reshape(-1)
        """Which places are an agent's own, not left over."""

    # --- programs ----------------------------------------------------------------------------------------------

    def compiled(self, make: Make, *arguments: Any) -> Callable[..., Any]:
        """The program on all devices; `arguments` lie on them already, or are numbers."""

        def total(values: jax.Array) -> jax.Array:
            return jax.lax.psum(values, "agents")

        axes = agent_axes(jax.eval_shape(make(_same, _same), *arguments))
        program = jax.shard_map(
            make(total, vary), mesh=self.mesh, in_specs=jax.tree.map(_spec_of, arguments),
            out_specs=jax.tree.map(_spec, axes), check_vma=True,
        )  # fmt: skip
        used_up = [number for number, argument in enumerate(arguments) if isinstance(argument, Replica)]
        lies = self._shardings(axes)  # said here too, as JAX guesses otherwise for arrays without entries
        return jax.jit(program, donate_argnums=used_up, out_shardings=lies).lower(*arguments).compile()

    # --- arrays on devices -------------------------------------------------------------------------------------

    def agents_per_file(self, agents_here: int) -> int:
        """So many that processes hold whole files."""
        return agents_per_group(len(self.storage_agents))

    def num_places(self, agents_here: int) -> int:
        """The same in every process."""
        return len(self.places)

    def digest(self, problem: Problem) -> str:
        """Of all agents' data, from what each process says of its own."""
        return data_digest(problem, self.agents, len(self.storage_agents), self.team)

    def held(self, data: Any, agents: Agents, start: np.ndarray, parameters: Parameters) -> Any:
        """The same on the devices, with an entry for every place."""
        known = agents._replace(groups=group_numbers(parameters))
        data, known = jax.tree.map(lambda leaf: np.asarray(leaf)[self.places], (data, known))
        data, known = jax.tree.map(lambda leaf: self.put(leaf, 0), (data, known._replace(counts=self.is_agent)))
        return data, known, self.put(np.asarray(start)[:, self.places], 1)

    def made(self, function: Callable[..., Replica], start: Any) -> Replica:
        """A replica that lies on the devices as programs take it."""
        axes = agent_axes(jax.eval_shape(function, start))
        return jax.jit(function, out_shardings=self._shardings(axes))(start)

    def _shardings(self, axes: Any) -> Any:
        return jax.tree.map(lambda axis: NamedSharding(self.mesh, _spec(axis)), axes)

    def fetched(self, buffers: Buffers) -> Buffers:
        """What is on the devices of this process, without places left over."""
        found = jax.tree.map(local_part, buffers)
        return found if self.is_agent.all() else found._replace(private=found.private[:, :, self.is_agent])

    def put(self, own: np.ndarray, axis: int) -> jax.Array:
        """An array whose entries along an axis are those of this process's places; or the same everywhere."""
        shape = list(own.shape)
        if axis != EVERYWHERE:
            shape[axis] *= self.team.size
        return jax.make_array_from_process_local_data(NamedSharding(self.mesh, _spec(axis)), own, tuple(shape))

    def form(self, like: Replica) -> StateForm:
        """Arrays as they lie on the devices, read into any other layout."""
        return ReplicaForm(self, like)


def vary(values: Any) -> Any:
    """The same values, of which every device then makes its own."""
    return jax.lax.pcast(values, "agents", to="varying")


def _same(values: Any) -> Any:
    return values


def _spec(axis: int) -> Spec:
    return Spec() if axis == EVERYWHERE else Spec(*[None] * axis, "agents")


def _spec_of(argument: Any) -> Spec:
    where = argument.sharding if isinstance(argument, jax.Array) else None
    return where.spec if isinstance(where, NamedSharding) else Spec()


def _laid_out(plan: Plan, settings: DeviceSettings) -> tuple[Mesh, Layout]:
    if settings.model_devices > 1:
        raise MeshError(
            f"the sampler {plan.sampler.kind} keeps replicas of all parameters on every device: leave model_devices "
            "out, or take dula"
        )
    mesh, axes = make_mesh(settings, plan.num_agents, num_chains=1)
    return mesh, Layout.of(plan.graph, place()[1], axes.agents)


def mesh_stepper(problem: Problem, plan: Plan, settings: DeviceSettings | None = None) -> Stepper:
    """The stepper of a plan's sampler."""
    if plan.is_unison:
        return mesh_replicas(problem, plan, settings)
    plain = MeshSimulation(problem, plan, settings)
    if not plan.sampler.tunes_itself:
        return plain
    if plain.axes.model > 1:
        raise MeshError(
            f"the warm-up of the sampler {plan.sampler.kind} needs all parameters of an agent on one device: leave "
            'model_devices out, or give step_size and exchanges by hand with whitening = "none"'
        )
    if problem.chains_apart:
        raise MeshError(
            f"the sampler {plan.sampler.kind} warms up for one posterior on a mesh, and here chains have data of "
            "their own: take one repetition (--runs 1), or the engine simulate"
        )
    return WarmedStepper(plain)


def mesh_replicas(problem: Problem, plan: Plan, settings: DeviceSettings | None = None) -> Replicas:
    """The stepper of a plan whose sampler is in unison.

    Args:
        problem: with the shards of all agents, or in each of several processes with those of `own_agents`.
        plan: how.
        settings: which devices; by default all.
    """
    team, settings = ProcessTeam(), settings or DeviceSettings()
    require_same_start(team, plan, settings)
    where = MeshPlace(plan, settings, team)
    own = team.attempt(lambda: own_part(problem, plan, where.layout, team))
    require_same_shapes(team, Parameters.of(own, np.float64))
    rows = Rows(own, plan, np.float64, sizes_in_line(own, where.layout, team))
    return Replicas(own, plan, where, centre(plan.graph), rows, spread=where)
