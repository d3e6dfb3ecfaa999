"""How processes join: JAX's distributed runtime, with an address or as a cluster's environment says.

The runtime watches over its processes. If one is silent for `HEARTBEAT_SECONDS` (or its coordinator, process 0, is
gone) it ends all the others at once, from below Python; `supervision.py` says in words what it meant.
"""

from __future__ import annotations

import jax

from consilience.engines.mesh.rendezvous import HEARTBEAT_SECONDS, LEAVE_SECONDS, Rendezvous
from consilience.errors import InputError, MeshError

_place: tuple[int, int] | None = None


def join(rendezvous: Rendezvous, devices: int | None = None) -> None:
    """Become one of several processes; `devices` CPU devices in each, if so many are wanted of all together."""
    global _place
    rendezvous.require_complete()
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    if rendezvous.processes and devices is not None:
        jax.config.update("jax_num_cpu_devices", devices_of_each(devices, rendezvous.processes))
    try:
        jax.distributed.initialize(
            rendezvous.coordinator,
            rendezvous.num_processes,
            rendezvous.process_id,
            cluster_detection_method="deactivate" if rendezvous.is_given else None,
            initialization_timeout=rendezvous.join_seconds,
            heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
            shutdown_timeout_seconds=LEAVE_SECONDS,
        )
    except (RuntimeError, ValueError, OSError) as error:
        if isinstance(error, InputError):
            raise
        where = rendezvous.coordinator or "the cluster's coordinator"
        raise MeshError(f"cannot join the processes at {where}: {str(error).splitlines()[0][:300]}") from error
    _place = (jax.process_index(), jax.process_count())


def devices_of_each(devices: int, processes: int) -> int:
    """How many devices each process has.

    >>> devices_of_each(8, 2)
    4
    """
    if devices % processes:
        raise MeshError(
            f"{devices} devices cannot be shared evenly among {processes} processes: take a multiple of it"
        )
    return devices // processes


def place() -> tuple[int, int]:
    """The number of this process, and how many there are; does not start JAX's devices if it is alone."""
    if _place is not None:
        return _place
    if jax.distributed.is_initialized():
        return jax.process_index(), jax.process_count()
    return 0, 1


def is_first() -> bool:
    """Whether this process lays out runs, writes their small files and shows progress."""
    return place()[0] == 0


def is_alone() -> bool:
    """Whether there are no other processes."""
    return place()[1] == 1


def part() -> None:
    """Leave the others, if `join` joined them: each can then take its own time for what it does alone."""
    if _place is not None and jax.distributed.is_initialized():
        jax.distributed.shutdown()
