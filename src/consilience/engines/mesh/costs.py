"""What a mesh costs, before anything runs: what it sends from the layout, the rest from the compiler.

Memory is that of the whole program, work that of a program of one step. The compiler counts the body of a loop once:
where gradients go over agents one after the other (large models, and those on a model axis) the work is more than it
says, and `work_is_more` says so. What is sent are the messages of the permutations in `exchange.py` and, on a model
axis, the slices of `model_axis.py`; the consensus error, measured once in a block of steps, is left out. Times follow
from three rates, which are assumptions and stand beside them.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import jax

from consilience.engines.mesh.engine import MeshSimulation
from consilience.engines.program import Sizes
from consilience.kernel.step import message_after, message_before
from consilience.samplers import SpeaksFirst


@dataclass(frozen=True)
class Rates:
    """What is assumed of devices and of the network between them.

    Attributes:
        memory_bandwidth: bytes a second between a device and its memory, which bounds small models.
        bandwidth: bytes a second that a device sends.
        latency: seconds that a message takes at least.
    """

    memory_bandwidth: float = 10e9
    bandwidth: float = 1.25e9
    latency: float = 50e-6


@dataclass(frozen=True)
class Costs:
    """What one device holds, does and sends; the one with most where they differ."""

    devices: int
    devices_along_chains: int
    devices_along_agents: int
    devices_along_model: int
    agents_per_device: int
    fewest_agents_per_device: int
    edges_cut: int
    rounds: int
    bytes_sent_per_step: int
    bytes_permuted_per_step: int
    messages_per_step: int
    flops_per_step: float
    memory_traffic_per_step: float
    memory_bytes: int
    state_bytes: int
    compute_seconds: float
    network_seconds: float
    speed_up: float
    work_is_more: bool

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


class Traffic(NamedTuple):
    """What a device sends in a step."""

    permuted_bytes: int
    sliced_bytes: int
    messages: int
    """How many go out one after the other."""


def traffic_of(mesh: MeshSimulation) -> Traffic:
    """Messages to neighbours on other devices, and slices of parameters and gradients on a model axis.

    Among `g` devices an algorithm that shares the work evenly sends `(g − 1)` slices to gather a vector, and as many
    to sum and scatter one.
    """
    chains = -(-mesh.plan.num_chains // mesh.axes.chains)
    permuted = sum(width for _, width in mesh.exchange.rounds) * chains * _message_bytes(mesh)
    others = mesh.axes.model - 1
    vectors = 2 * chains * mesh.layout.capacity if others else 0
    slices = vectors * others * mesh.model.slice_size * mesh.dtype.itemsize
    turns = vectors * math.ceil(math.log2(mesh.axes.model))
    return Traffic(permuted, slices, len(mesh.exchange.rounds) + turns)


def _message_bytes(mesh: MeshSimulation) -> int:
    """One agent's message, or a device's part of it; of private parameters it has none."""
    sampler = mesh.plan.gossip
    shared = mesh.parameters.private_start or mesh.model.slice_size
    vector = jax.ShapeDtypeStruct((1, 1, shared), mesh.dtype)

    def message(position: jax.Array) -> Any:
        state = jax.vmap(jax.vmap(sampler.init))(position)
        if isinstance(sampler, SpeaksFirst):
            return message_before(sampler, state)
        numbers = sampler.coefficients(0, mesh.plan.num_agents)
        return message_after(sampler, state, position, numbers, position)

    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(jax.eval_shape(message, vector)))


def costs_of(mesh: MeshSimulation, rates: Rates | None = None) -> Costs:
    """The costs of a mesh; compiles its programs and runs none."""
    rates, layout = rates or Rates(), mesh.layout
    memory = mesh.lowered(mesh.held).compile().memory_analysis()
    counted = mesh.lowered(mesh.held, Sizes(1, 1, 1, 2)).compile().cost_analysis()
    touched, sent = float(counted["bytes accessed"]), traffic_of(mesh)
    sent_bytes = sent.permuted_bytes + sent.sliced_bytes
    compute = touched / rates.memory_bandwidth
    network = sent.messages * rates.latency + sent_bytes / rates.bandwidth
    chains = -(-mesh.plan.num_chains // mesh.axes.chains)
    alone = compute * mesh.plan.num_agents / layout.capacity * mesh.plan.num_chains / chains * mesh.axes.model
    return Costs(
        devices=mesh.mesh.size,
        devices_along_chains=mesh.axes.chains,
        devices_along_agents=layout.num_devices,
        devices_along_model=mesh.axes.model,
        agents_per_device=layout.capacity,
        fewest_agents_per_device=int(layout.counts.min()),
        edges_cut=layout.edges_cut(mesh.plan.graph),
        rounds=len(mesh.exchange.rounds),
        bytes_sent_per_step=sent_bytes,
        bytes_permuted_per_step=sent.permuted_bytes,
        messages_per_step=sent.messages,
        flops_per_step=float(counted.get("flops", 0.0)),
        memory_traffic_per_step=touched,
        memory_bytes=int(
            memory.argument_size_in_bytes
            + memory.output_size_in_bytes
            + memory.temp_size_in_bytes
            - memory.alias_size_in_bytes
        ),
        state_bytes=sum(
            math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize
            for leaf in jax.tree.leaves(mesh.state_shapes())
        ),
        compute_seconds=compute,
        network_seconds=network,
        speed_up=alone / (compute + network),
        work_is_more=mesh.model.one_after_the_other,
    )
