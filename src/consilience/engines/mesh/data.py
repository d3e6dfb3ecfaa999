"""The data of the agents, on the devices that hold them: every process brings those of its own agents alone."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from consilience.engines.base import Team
from consilience.engines.mesh.layout import Layout
from consilience.kernel.rows import Rows
from consilience.plans import Plan
from consilience.problems import Problem

_DIGEST_BYTES = 32


class Held(NamedTuple):
    """What devices hold besides the state: arrays over all devices, or in a program those of one device."""

    shards: Any
    row_weights: Any
    scale: Any
    sizes: Any
    """Rows of each agent's shard; `None` if all have the same number."""
    chain_numbers: Any
    agent_numbers: Any
    is_agent: Any
    """Whether a place is an agent's own, not left over."""
    tables: Any
    """`exchange.Tables`."""
    groups: Any = None
    """The number of each agent's group of equal shapes; `None` if all have the same."""


class MeshData:
    """Brings data to the devices.

    Attributes:
        rows: how steps choose rows, and what is known of the shards of this process.
        same_size: the number of rows of every shard, or `None` if they differ.
    """

    def __init__(self, own: Problem, plan: Plan, dtype: Any, layout: Layout, team: Team, sizes: np.ndarray) -> None:
        self.plan, self.layout, self.team = plan, layout, team
        self.per_process = layout.num_devices // team.size
        self.devices = slice(team.index * self.per_process, (team.index + 1) * self.per_process)
        self.sizes = sizes
        self.same_size = int(sizes[0]) if len(set(sizes)) == 1 else None
        places = layout.rank_at[self.devices].reshape(-1) - layout.process_starts[team.index]
        with jax.default_device(jax.local_devices(backend="cpu")[0]):
            self.rows = Rows(own.of_agents(places.tolist()), plan, dtype, sizes)

    def specs(self, like: Held) -> Held:
        """How each array lies on the axes of the mesh."""
        agents = PartitionSpec("agents")
        shards = PartitionSpec("chains", "agents") if self.rows.per_chain else agents
        whole = Held(shards, agents, agents, agents, PartitionSpec("chains"), agents, agents, agents, agents)
        return Held(*(jax.tree.map(lambda _, spec=spec: spec, part) for spec, part in zip(whole, like, strict=True)))

    def host_arrays(self, padded_chains: int, tables: Any, groups: np.ndarray | None = None) -> Held:
        """This process's part of every array; `groups` are those of its agents, in line."""
        shards, row_weights, scale = jax.tree.map(np.asarray, self.rows.arrays)
        chains = np.minimum(np.arange(padded_chains), self.plan.num_chains - 1)  # spare chains repeat the last one
        if self.rows.per_chain:
            shards = jax.tree.map(lambda leaf: leaf[chains], shards)
        ranks = self.layout.rank_at[self.devices].reshape(-1)
        return Held(
            shards,
            row_weights,
            scale,
            None if self.same_size is not None else self.sizes[ranks].astype(np.int32),
            chains.astype(np.int32),
            self.layout.line[ranks].astype(np.int32),
            self.layout.is_agent[self.devices].reshape(-1),
            jax.tree.map(lambda leaf: leaf[self.devices], tables),
            None if groups is None else groups[ranks - self.layout.process_starts[self.team.index]],
        )

    def on_devices(self, mesh: Mesh, held: Held) -> Held:
        """Every process's part put together into arrays over all devices."""

        def place(part: np.ndarray, spec: PartitionSpec) -> jax.Array:
            axis = next((axis for axis, name in enumerate(spec) if name == "agents"), None)
            shape = list(part.shape)
            if axis is not None:
                shape[axis] *= self.team.size
            return jax.make_array_from_process_local_data(NamedSharding(mesh, spec), part, tuple(shape))

        return jax.tree.map(place, held, self.specs(held))

    def rows_chosen(self, keys: jax.Array, steps: jax.Array, held: Held) -> jax.Array | None:
        """The rows of the minibatches of steps, on one device."""
        if self.same_size is not None:
            return self.rows.chosen_rows(keys, steps, jnp.full(keys.shape[1], self.same_size))
        return self.rows.chosen_rows(keys, steps, held.sizes)


def sizes_in_line(own: Problem, layout: Layout, team: Team) -> np.ndarray:
    """`(num_agents,)` rows of every agent's shard, in line; each process knows its own."""
    sizes = np.zeros(len(layout.line), np.int64)
    sizes[layout.ranks_of_process(team.index)] = own.shard_sizes
    return team.gather(sizes).sum(0)


def data_digest(own: Problem, agents: np.ndarray, num_agents: int, team: Team) -> str:
    """A digest of all agents' data, from what each process says of its own agents'."""
    digests = np.zeros((num_agents, _DIGEST_BYTES), np.uint8)
    digests[agents] = [np.frombuffer(one, np.uint8) for one in own.shard_digests()]
    return hashlib.sha256(team.gather(digests).sum(0, dtype=np.uint8).tobytes()).hexdigest()
