"""What a mesh costs, before anything runs: from the layout, and from what the compiler says of the program.

Memory is that of the whole program. Work and traffic are those of a program of one step. The compiler counts the body
of a loop once: where gradients go over agents one after the other (large models, and those on a model axis) the work
is more than it says, and `work_is_more` says so. Times follow from three rates, which are assumptions and stand
beside them.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from consilience.engines.mesh.engine import Mesh
from consilience.engines.mesh.traffic import traffic_of
from consilience.engines.program import Sizes

_ONCE_A_BLOCK = "all-reduce"  # the consensus error is measured after a block of steps, all else happens in each


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
    messages_per_step: float
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


def costs_of(mesh: Mesh, rates: Rates | None = None) -> Costs:
    """The costs of a mesh; compiles its programs and runs none."""
    rates, layout = rates or Rates(), mesh.layout
    memory = mesh.lowered(mesh.held).compile().memory_analysis()
    step = mesh.lowered(mesh.held, Sizes(1, 1, 1, 2)).compile()
    counted = step.cost_analysis()
    traffic = float(counted["bytes accessed"])
    found = traffic_of(step.as_text())
    sent, messages = (
        sum(number / (mesh.block_steps if kind == _ONCE_A_BLOCK else 1) for kind, number in counts.items())
        for counts in found
    )
    compute = traffic / rates.memory_bandwidth
    network = messages * rates.latency + sent / rates.bandwidth
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
        bytes_sent_per_step=round(sent),
        bytes_permuted_per_step=found.bytes["collective-permute"],
        messages_per_step=messages,
        flops_per_step=float(counted.get("flops", 0.0)),
        memory_traffic_per_step=traffic,
        memory_bytes=int(
            memory.argument_size_in_bytes
            + memory.output_size_in_bytes
            + memory.temp_size_in_bytes
            - memory.alias_size_in_bytes
        ),
        state_bytes=chains * layout.capacity * mesh.model.slice_size * mesh.dtype.itemsize,
        compute_seconds=compute,
        network_seconds=network,
        speed_up=alone / (compute + network),
        work_is_more=mesh.model.one_after_the_other,
    )
