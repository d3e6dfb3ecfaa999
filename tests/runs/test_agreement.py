"""The verdict of a run by gossip: agents that disagree have not converged, however well each of them mixes."""

import numpy as np
import pytest

import consilience as cs
from consilience.models import linear_regression


@pytest.fixture(scope="module")
def two_minds():
    """Two agents of one mean, whose data lie far apart."""
    return linear_regression([(np.ones((5, 1)), np.full(5, -2.0)), (np.ones((5, 1)), np.full(5, 2.0))])


@pytest.mark.parametrize(("consensus", "agrees"), [(1e-4, False), (0.45, True)])
def test_agents_that_disagree_fail_the_verdict(two_minds, consensus, agrees, tmp_path):
    """With hardly any consensus each agent samples a posterior of its own, well."""
    plan = cs.Plan(
        graph=cs.graphs.path(2), sampler=cs.dula(0.002, consensus), num_steps=16_000, burn_in=2000, store_every=4,
        num_chains=2,
    )  # fmt: skip
    summary = cs.sample(two_minds, plan, tmp_path / "run").summary
    told = [reason for reason in summary["why_not"] if reason.startswith("agents disagree about w")]
    assert bool(told) is not agrees
    assert (summary["rhat_across_agents"][0] <= 1.01) is agrees
    if not agrees:
        assert summary["converged"] is False
        assert "agents disagree" in summary["verdict"]
