"""Clusters are known by their environment, and what the runtime says is put into words."""

import signal

import pytest

from consilience.deployment import supervision
from consilience.engines.mesh import team
from consilience.engines.mesh.rendezvous import Rendezvous, cluster
from consilience.errors import MeshError, ProcessLostError, RunError, StorageError
from consilience.runs.files import disk_errors
from tests.engines.mesh.processes import SLURM

PARTING = (
    "Shutdown barrier has failed.\nBarrier result: 'DEADLINE_EXCEEDED: Barrier timed out.\n# of tasks that reached "
    "the barrier: 1/2.\nThe first task at the barrier: 0. Some timed out task names:\n1\n [type.googleapis.com/...] "
    "Failed to disconnect from coordination service"
)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, None),
        (SLURM, "Slurm"),
        ({**SLURM, "SLURM_NTASKS": "1"}, None),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "JOB_COMPLETION_INDEX": "0"}, "Kubernetes"),
    ],
)
def test_a_cluster_is_known_by_its_environment(variables, expected, monkeypatch):
    for name in SLURM:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert cluster() == expected
    assert (Rendezvous().process, Rendezvous().processes) == {
        None: (None, None), "Slurm": (1, 2), "Kubernetes": (0, None)
    }[expected]  # fmt: skip


@pytest.mark.parametrize(
    ("said", "process", "kind", "words"),
    [
        ("unhealthy (stopped sending heartbeats):\n1, 3\nThe", 0, ProcessLostError, "process 1, 3 was lost"),
        ("error polled from coordination service: Socket closed", 1, ProcessLostError, "process 0, the coordinator"),
        ("DEADLINE_EXCEEDED RPC: /RegisterTask", 1, MeshError, "did not answer within 60 s"),
        ("DEADLINE_EXCEEDED RPC: /RegisterTask", 0, MeshError, "not all 2 processes came"),
        ("", 1, ProcessLostError, "it said nothing"),
        (PARTING, 0, ProcessLostError, "process 1 was lost"),
        (PARTING, 1, ProcessLostError, "process 0 stopped early"),
        ("Polled an error from coordination service", 0, ProcessLostError, "another process was lost"),
        (f"consilience stops with RunError: run is taken\n{PARTING}", 0, RunError, "run is taken"),
    ],
)  # fmt: skip
def test_what_the_runtime_says_in_words(said, process, kind, words):
    rendezvous = Rendezvous(coordinator="host:1", num_processes=2, process_id=process)
    error = supervision._in_words(-signal.SIGABRT, said, rendezvous, "runs/a")
    assert isinstance(error, kind)
    assert words in str(error)
    if kind is ProcessLostError:
        assert "consilience resume runs/a" in str(error)


@pytest.mark.parametrize(("said", "kind"), [("Gloo AllGather failed", ProcessLostError), ("disk full", StorageError)])
def test_a_process_lost_during_a_checkpoint_is_not_called_a_full_disk(said, kind, monkeypatch, tmp_path):
    """Orbax tells of both by an error of the same kind."""
    monkeypatch.setattr(team, "HEARTBEAT_SECONDS", 0)
    both = team.ProcessTeam()
    both.index, both.size = 1, 2
    with pytest.raises(kind), both.watched(f"consilience resume {tmp_path}"), disk_errors(tmp_path):
        raise OSError("the checkpoint was refused") from ValueError(said)
