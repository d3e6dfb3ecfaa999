"""What a mesh costs, before anything runs: from the layout, and from what the compiler says of the program.

Memory is that of the whole program. Work and traffic are those of a program of one step, because compilers count the
body of a loop once. Times follow from three rates, which are assumptions and stand beside them.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from consilience.engines.mesh.engine import Mesh
from consilience.engines.program import Sizes

_PERMUTED = re.compile(r"= \(?(f32|f64)\[([\d,]*)\][^=\n]* collective-permute(?:-start)?\(")


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
    flops_per_step: float
    memory_traffic_per_step: float
    memory_bytes: int
    state_bytes: int
    compute_seconds: float
    network_seconds: float
    speed_up: float

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
    sent = bytes_permuted(step.as_text())
    compute = traffic / rates.memory_bandwidth
    network = len(mesh.exchange.rounds) * rates.latency + sent / rates.bandwidth
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
        bytes_sent_per_step=sent,
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
    )


def bytes_permuted(program: str) -> int:
    """The bytes that a device sends in the permutations of a compiled program.

    >>> bytes_permuted("  %a = f32[2,3]{1,0} collective-permute(%b), channel_id=1")
    24
    """
    total = 0
    for kind, shape in _PERMUTED.findall(program):
        total += int(kind[1:]) // 8 * int(np.prod([int(length) for length in shape.split(",") if length]))
    return total
