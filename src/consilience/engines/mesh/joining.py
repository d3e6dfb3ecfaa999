"""How processes find each other: JAX's distributed runtime, with an address or as a cluster's environment says.

The runtime watches over its processes. If one is silent for `HEARTBEAT_SECONDS` (or its coordinator, process 0, is gone)
it ends all the others at once, from below Python; `teamwork.supervision` says in words what it meant.
"""

from __future__ import annotations

import os
from typing import Annotated

import jax
from pydantic import Field

from consilience.errors import InputError, MeshError
from consilience.validation import Record

HEARTBEAT_SECONDS = 10
JOIN_SECONDS = 60
_LEAVE_SECONDS = 15
_CLUSTERS = {
    "Slurm": ("SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID"),
    "Kubernetes": ("KUBERNETES_SERVICE_HOST", "JOB_COMPLETION_INDEX"),
    "Open MPI": ("OMPI_MCA_orte_hnp_uri", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
}

_place: tuple[int, int] | None = None


class Meeting(Record):
    """Where processes meet; entries that are missing come from the cluster's environment.

    Attributes:
        coordinator: `host:port` at which process 0 waits for the others.
        num_processes: how many there are.
        process_id: which one this is.
        join_seconds: how long to wait for all of them.
    """

    mistake = MeshError

    coordinator: Annotated[str, Field(pattern=r"^\S+:\d+$")] | None = None
    num_processes: Annotated[int, Field(ge=1)] | None = None
    process_id: Annotated[int, Field(ge=0)] | None = None
    join_seconds: Annotated[int, Field(ge=1)] = JOIN_SECONDS

    @property
    def is_given(self) -> bool:
        """Whether the user named everything."""
        return None not in (self.coordinator, self.num_processes, self.process_id)

    def require_complete(self) -> None:
        """Check that it is all there, or none of it."""
        named = {
            "--coordinator": self.coordinator,
            "--num-processes": self.num_processes,
            "--process-id": self.process_id,
        }
        missing = [name for name, value in named.items() if value is None]
        if missing and len(missing) < len(named):
            raise MeshError(f"{', '.join(missing)} is missing: give all of {', '.join(named)}, or none on a cluster")
        if self.process_id is not None and self.num_processes is not None and self.process_id >= self.num_processes:
            raise MeshError(
                f"process {self.process_id} of {self.num_processes}: processes are numbered 0 to {self.num_processes - 1}"
            )


def cluster() -> str | None:
    """The kind of cluster that started this process as one of several, if its environment says so."""
    for name, variables in _CLUSTERS.items():
        if all(variable in os.environ for variable in variables):
            if name == "Slurm" and os.environ["SLURM_NTASKS"] == "1":
                continue
            return name
    return None


def join(meeting: Meeting, devices: int | None = None) -> None:
    """Become one of several processes; `devices` CPU devices in each, if so many are wanted of all together."""
    global _place
    meeting.require_complete()
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    if meeting.num_processes and devices is not None:
        if devices % meeting.num_processes:
            raise MeshError(
                f"{devices} devices cannot be shared evenly among {meeting.num_processes} processes: take a multiple of it"
            )
        jax.config.update("jax_num_cpu_devices", devices // meeting.num_processes)
    try:
        jax.distributed.initialize(
            meeting.coordinator,
            meeting.num_processes,
            meeting.process_id,
            cluster_detection_method="deactivate" if meeting.is_given else None,
            initialization_timeout=meeting.join_seconds,
            heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
            shutdown_timeout_seconds=_LEAVE_SECONDS,
        )
    except (RuntimeError, ValueError, OSError) as error:
        if isinstance(error, InputError):
            raise
        where = meeting.coordinator or "the cluster's coordinator"
        raise MeshError(f"cannot join the processes at {where}: {str(error).splitlines()[0][:300]}") from error
    _place = (jax.process_index(), jax.process_count())


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
