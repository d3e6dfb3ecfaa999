"""Data of which every process has its agents' shards alone: loading them, and a digest of all of them."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np

from consilience import checks, experiments
from consilience.engines.mesh import Mesh, MeshSettings, own_agents
from consilience.engines.mesh.joining import is_alone
from consilience.errors import DataError, ProblemError, RunError
from consilience.plans import Plan
from consilience.problems import Problem
from consilience.runs import RunDirectory

_DIGEST_BYTES = 32


def own_problem(plan: Plan, settings: MeshSettings | None = None) -> Problem:
    """What a plan names, with the shards of this process's agents; with all of them if it is alone."""
    if is_alone():
        return experiments.load_problem(plan)
    return experiments.load_problem(plan, own_agents(plan, settings).tolist())


def sized_problem(plan: Plan) -> tuple[Problem, bool]:
    """A problem of the size that a plan asks for, to weigh it, and whether its data are repeated.

    An experiment with too few data for so many agents lends them those of its own network, over and over.
    """
    try:
        return experiments.load_problem(plan), False
    except (ProblemError, DataError):
        experiment = experiments.find(plan.problem)
        if experiment is None:
            raise
        own = experiment.plans()[experiment.main]
        small = experiment.problem_of(own.replace(num_chains=plan.num_chains, seed=plan.seed))
        repeated = small.of_agents([agent % small.num_agents for agent in range(plan.num_agents)])
        return replace(repeated, network_size=None), True


def largest_curvature(mesh: Mesh) -> float:
    """The largest curvature of all agents' potentials, from what each process finds of its own."""
    own = mesh.team.attempt(lambda: checks.largest_curvature(mesh.plan, mesh.problem, mesh.agents[mesh.store_rows]))
    return float(mesh.team.gather(np.array(own)).max())


def data_digest(mesh: Mesh) -> str:
    """A digest of all agents' data, from what each process says of its own."""
    digests = np.zeros((mesh.plan.num_agents, _DIGEST_BYTES), np.uint8)
    digests[mesh.agents[mesh.store_rows]] = [np.frombuffer(one, np.uint8) for one in mesh.problem.shard_digests()]
    return hashlib.sha256(mesh.team.gather(digests).sum(0, dtype=np.uint8).tobytes()).hexdigest()


def require_same_data(run: RunDirectory, mesh: Mesh) -> None:
    """Check that a run goes on with the data it began with."""
    if data_digest(mesh) != run.status["data_digest"]:
        raise RunError(f"the data of {run.path} is not that of the given problem: resume it with the same data")
