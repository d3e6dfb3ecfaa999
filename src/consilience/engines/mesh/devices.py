"""Which devices a mesh has, and how its axes `chains`, `agents` and `model` are laid over them."""

from __future__ import annotations

import contextlib
import os
from typing import Annotated, NamedTuple

import jax
import numpy as np
from pydantic import Field

from consilience.engines.mesh.joining import devices_of_each, is_alone, place
from consilience.errors import MeshError
from consilience.validation import Record


class DeviceSettings(Record):
    """How to lay a mesh over devices.

    Attributes:
        devices: how many devices to use, of all processes together; by default all there are.
        model_devices: over how many devices the parameters of an agent are spread.

    >>> DeviceSettings(devices=4).model_devices
    1
    """

    devices: Annotated[int, Field(ge=1)] | None = None
    model_devices: Annotated[int, Field(ge=1)] = 1


class Axes(NamedTuple):
    """How many devices of a process stand along each axis."""

    chains: int
    agents: int
    model: int


def prepare_devices(wanted: int | None) -> None:
    """Let the CPU count as so many devices; to be called before anything else uses JAX, which counts them once.

    Real devices come first where there are enough. Among several processes, `join` has done this already.
    """
    if wanted is None or not is_alone() or "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", ""):
        return
    with contextlib.suppress(RuntimeError):  # JAX has started: `own_devices` says so, if there are too few
        jax.config.update("jax_num_cpu_devices", wanted)


def own_devices(wanted: int | None, num_processes: int) -> list[jax.Device]:
    """The devices of this process that take part, `wanted` in all processes together."""
    if wanted is None:
        return jax.local_devices()
    count = devices_of_each(wanted, num_processes)
    found = jax.local_devices()
    if len(found) < count:
        found = jax.local_devices(backend="cpu")
    if len(found) < count:
        raise MeshError(
            f"{count} devices were asked for, but JAX has started with {len(found)}: use `consilience run --devices "
            f"{wanted}`, or set XLA_FLAGS=--xla_force_host_platform_device_count={count} before Python starts"
        )
    return found[:count]


def axes_of(count: int, most_agents: int, num_chains: int, model: int) -> Axes:
    """Along which axes the devices of a process stand: agents first, chains for those to spare.

    Of all ways that leave the fewest devices idle, the one with most devices along `agents`.

    >>> axes_of(8, 100, 4, 1)
    Axes(chains=1, agents=8, model=1)
    >>> axes_of(8, 5, 4, 1)
    Axes(chains=2, agents=4, model=1)
    """
    if count % model:
        raise MeshError(f"{count} devices cannot hold models spread over {model} each: take a multiple of {model}")
    rest = count // model
    ways = [(chains, min(most_agents, rest // chains)) for chains in range(1, min(num_chains, rest) + 1)]
    chains, agents = max(ways, key=lambda way: (way[0] * way[1], way[1]))
    return Axes(chains, agents, model)


def make_mesh(settings: DeviceSettings, num_agents: int, num_chains: int) -> tuple[jax.sharding.Mesh, Axes]:
    """The mesh over all processes, and the axes of each.

    Every process holds whole chains and whole models of its agents: only the axis `agents` spans processes.
    """
    process, processes = place()
    own = own_devices(settings.devices, processes)
    if processes > num_agents:
        raise MeshError(
            f"{processes} processes cannot share {num_agents} agents: start at most {num_agents} processes"
        )
    axes = axes_of(len(own), num_agents // processes, num_chains, settings.model_devices)
    used = axes.chains * axes.agents * axes.model
    by_process = [
        [device for device in jax.devices(own[0].platform) if device.process_index == number][:used]
        for number in range(processes)
    ]
    for number, some in enumerate(by_process):
        if len(some) < used:
            raise MeshError(
                f"process {number} has {len(some)} devices, but process {process} has {len(own)}: give "
                "every process the same number"
            )
    shape = (processes, axes.agents, axes.chains, axes.model)
    grid = np.array(by_process).reshape(shape).transpose(2, 0, 1, 3).reshape(axes.chains, -1, axes.model)
    return jax.sharding.Mesh(grid, ("chains", "agents", "model")), axes
