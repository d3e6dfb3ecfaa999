"""How a node settles in its process."""

import numpy as np
import pytest

from consilience import Plan, Problem, dula, graphs, nuts
from consilience.deployment.nodes import is_small


def problem(num_rows):
    return Problem(
        log_likelihood=lambda w, rows: -((rows - w) ** 2) / 2, log_prior=lambda w: -(w**2) / 2, init=lambda key: 0.0,
        shards=[np.zeros(num_rows)],
    )  # fmt: skip


@pytest.mark.parametrize(("num_rows", "num_chains", "small"), [(200, 4, True), (3000, 4, False), (3000, 2, True)])
def test_a_node_in_unison_with_few_rows_takes_one_thread(num_rows, num_chains, small):
    plan = Plan(
        problem="m:p", graph=graphs.ring(3), sampler=nuts(), num_chains=num_chains, num_draws=10, num_warmup=20
    )
    assert is_small(plan, problem(num_rows)) is small


def test_a_node_by_gossip_takes_what_there_is():
    plan = Plan(problem="m:p", graph=graphs.ring(3), sampler=dula(1e-3, 0.2), num_steps=10)
    assert not is_small(plan, problem(3))
