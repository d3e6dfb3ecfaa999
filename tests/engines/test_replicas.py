"""Chains with data of their own: each is what it would be if all chains had its data."""

import dataclasses

import numpy as np
import pytest

import consilience as cs
from consilience.engines.simulate import Simulation
from consilience.errors import ProblemError
from tests.engines.final_positions import final_positions
from tests.gaussian import regression

pytestmark = pytest.mark.slow(reason="several programs for each network")


def repeated(count, sizes, features=2):
    problems = [regression(sizes, features, seed=seed) for seed in range(count)]
    return problems, dataclasses.replace(problems[0], replicas=[one.shards for one in problems])


@pytest.mark.parametrize(
    ("count", "features", "batch_size"), [(2, 2, None), (2, 12, 3), (9, 12, None), (9, 2, 3)]
)  # one group of chains and several, few and more parameters, full shards and minibatches
def test_every_chain_follows_its_own_data(count, features, batch_size):
    problems, together = repeated(count, [5, 8, 6], features)
    plan = cs.Plan(
        graph=cs.graphs.ring(3), sampler=cs.dula(1e-3, 0.2), num_steps=70, num_chains=count, batch_size=batch_size
    )
    found = final_positions(together, plan)
    for chain in (0, count - 1):
        alone = final_positions(problems[chain], plan)[chain]
        np.testing.assert_allclose(found[chain], alone, rtol=2e-4, atol=2e-5)
    assert not np.allclose(found[0], found[1])


def test_replicas_that_do_not_fit_are_refused():
    problems, together = repeated(2, [5, 8])
    plan = cs.Plan(graph=cs.graphs.path(2), sampler=cs.dula(1e-3, 0.2), num_steps=10, num_chains=3)
    with pytest.raises(ProblemError, match="data for 2 chains but the plan has 3"):
        Simulation(together, plan)
    with pytest.raises(ProblemError, match="chain 1 has other shapes"):
        dataclasses.replace(together, replicas=[problems[0].shards, regression([5, 9]).shards])


def test_the_digest_covers_the_data_of_every_chain():
    problems, together = repeated(2, [5, 8])
    other = dataclasses.replace(together, replicas=[problems[0].shards, problems[0].shards])
    assert together.fingerprint() != other.fingerprint()
