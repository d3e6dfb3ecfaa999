"""Where the processes of a mesh come together: an address that the user gives, or what a cluster's environment says.

This is known before JAX is loaded, so that the process that watches over a sampling process stays small.
"""

from __future__ import annotations

import os
from typing import Annotated

from pydantic import Field

from consilience.errors import MeshError
from consilience.validation import Record

HEARTBEAT_SECONDS = 30  # less, and a busy machine is taken for a dead one
JOIN_SECONDS = 60
LEAVE_SECONDS = 15
_CLUSTERS = {
    "Slurm": ("SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID"),
    "Kubernetes": ("KUBERNETES_SERVICE_HOST", "JOB_COMPLETION_INDEX"),
    "Open MPI": ("OMPI_MCA_orte_hnp_uri", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
}
_SIZES = {"Slurm": "SLURM_NTASKS", "Open MPI": "OMPI_COMM_WORLD_SIZE"}
_PLACES = {
    "Slurm": "SLURM_PROCID",
    "Kubernetes": "JOB_COMPLETION_INDEX",
    "Open MPI": "OMPI_COMM_WORLD_RANK",
}


class Rendezvous(Record):
    """Where processes come together; entries that are missing come from the cluster's environment.

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

    @property
    def processes(self) -> int | None:
        """How many processes there are, from the cluster's environment if the user did not say it."""
        return self.num_processes if self.num_processes is not None else _number(_SIZES)

    @property
    def process(self) -> int | None:
        """Which one this is, from the cluster's environment if the user did not say it."""
        return self.process_id if self.process_id is not None else _number(_PLACES)

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
                f"process {self.process_id} of {self.num_processes}: they are numbered 0 to {self.num_processes - 1}"
            )


def cluster() -> str | None:
    """The kind of cluster that started this process as one of several, if its environment says so."""
    for name, variables in _CLUSTERS.items():
        if all(variable in os.environ for variable in variables):
            if name == "Slurm" and os.environ["SLURM_NTASKS"] == "1":
                continue
            return name
    return None


def _number(variables: dict[str, str]) -> int | None:
    """What the environment of this process's cluster says, by the kind of cluster; `None` if it does not."""
    value = os.environ.get(variables.get(cluster() or "", ""), "")
    return int(value) if value.isdigit() else None
