"""Data of which every process has its agents' shards alone: loading them, and a digest of all of them."""

from __future__ import annotations

import hashlib

import numpy as np

from consilience import experiments
from consilience.engines.mesh import Mesh, MeshSettings, own_agents
from consilience.engines.mesh.joining import is_alone
from consilience.errors import RunError
from consilience.plans import Plan
from consilience.problems import Problem
from consilience.runs import RunDirectory

_DIGEST_BYTES = 32


def own_problem(plan: Plan, settings: MeshSettings | None = None) -> Problem:
    """What a plan names, with the shards of this process's agents; with all of them if it is alone."""
    if is_alone():
        return experiments.load_problem(plan)
    return experiments.load_problem(plan, own_agents(plan, settings).tolist())


def data_digest(mesh: Mesh) -> str:
    """A digest of all agents' data, from what each process says of its own."""
    digests = np.zeros((mesh.plan.num_agents, _DIGEST_BYTES), np.uint8)
    digests[mesh.agents[mesh.store_rows]] = [np.frombuffer(one, np.uint8) for one in mesh.problem.shard_digests()]
    return hashlib.sha256(mesh.team.gather(digests).sum(0, dtype=np.uint8).tobytes()).hexdigest()


def require_same_data(run: RunDirectory, mesh: Mesh) -> None:
    """Check that a run goes on with the data it began with."""
    if data_digest(mesh) != run.status["data_digest"]:
        raise RunError(f"the data of {run.path} is not that of the given problem: resume it with the same data")
