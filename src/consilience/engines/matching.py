"""Do the shards, agents, chains and minibatches of a problem and a plan fit together?"""

from __future__ import annotations

import numpy as np

from consilience.errors import PlanError, ProblemError
from consilience.plans import Plan
from consilience.problems import Problem


def require_matching(problem: Problem, plan: Plan) -> None:
    """Check that shards, agents and minibatches of a problem and a plan fit together."""
    if problem.num_agents != plan.num_agents:
        raise ProblemError(
            f"the problem has {problem.num_agents} shards but the graph has {plan.num_agents} agents: give "
            "every agent one shard"
        )
    require_replicas(problem, plan)
    require_batches(problem.shard_sizes, plan)


def require_replicas(problem: Problem, plan: Plan) -> None:
    """Check that a problem whose chains have data of their own has them for every chain."""
    if problem.replicas is not None and len(problem.replicas) != plan.num_chains:
        raise ProblemError(
            f"the problem has data for {len(problem.replicas)} chains but the plan has {plan.num_chains}: give every "
            "chain its own, or all the same"
        )


def require_batches(shard_sizes: np.ndarray, plan: Plan) -> None:
    """Check that minibatches are no larger than the shards of all agents."""
    smallest = int(shard_sizes.min())
    if plan.batch_size is not None and plan.batch_size > smallest:
        agent = int(shard_sizes.argmin())
        raise PlanError(
            f"batch_size = {plan.batch_size} is larger than the shard of agent {agent} ({smallest} rows): "
            f"take at most {smallest}, or leave batch_size out to use full shards"
        )
    if plan.batch_size is not None and plan.batch_size * int(shard_sizes.max()) >= 2**32:
        raise PlanError("batch_size times the largest shard must stay below 2^32: take a smaller batch")
