"""What nodes in unison refuse before the first sum: other plans, other versions, data that has no likelihood."""

import dataclasses
import logging
import time

import jax
import numpy as np
import pytest

import consilience as cs
from consilience.deployment.networks import make_network
from consilience.engines.peers.memory import MemoryNetwork
from consilience.engines.peers.settings import NodeSettings
from consilience.engines.peers.sum_messages import Label, Phase, SumMessage
from consilience.engines.peers.unison_node import UnisonNode
from consilience.errors import ProblemError
from tests.hierarchical import sites

PLAN = cs.Plan(graph=cs.graphs.path(2), sampler=cs.hmc(), num_warmup=20, num_draws=10, num_chains=1)


@pytest.fixture
def node(tmp_path):
    files = make_network(PLAN, tmp_path / "network", insecure=True)

    def make(agent, plan=PLAN, problem=None):
        with jax.enable_x64(True):
            return UnisonNode((problem or sites((4, 5))).of_agent(agent), plan, NodeSettings.load(files[agent]))

    return make


@pytest.mark.parametrize("entry", ["seed", "jax"])
def test_another_plan_or_version_is_refused_and_the_difference_named(node, entry, monkeypatch, caplog):
    nodes, network = [node(0)], MemoryNetwork()
    if entry == "jax":
        monkeypatch.setattr(jax, "__version__", "0.0.1")
    nodes.append(node(1, PLAN.replace(seed=8) if entry == "seed" else PLAN))
    with caplog.at_level(logging.INFO, "consilience.peers"):
        for agent, one in enumerate(nodes):
            one.connect(network.connect(agent, [1 - agent]), 0, None)
        said = SumMessage(1, Phase.PART, Label(0, 0, 0, 0), np.zeros(3, np.uint64), origin=1)
        nodes[1].moving.sums.lines.send(0, [said])
        deadline = time.monotonic() + 10  # the plans are compared beside
        while "differs in" not in caplog.text and time.monotonic() < deadline:
            time.sleep(0.01)
    assert f"agent 1 follows another plan: it differs in {entry}" in caplog.text
    assert nodes[0].wire.all_counts()["rejected"] > 0
    assert nodes[0].moving.sums.lines.inbox.heard() == []


def test_a_shard_without_a_likelihood_is_refused_by_its_own_agent(node):
    whole = sites((4, 5))
    bad = [np.array(shard) for shard in whole.shards]
    bad[1][2] = np.nan
    problem = dataclasses.replace(whole, shards=bad)
    node(0, problem=problem)
    with pytest.raises(ProblemError, match="agent 1"):
        node(1, problem=problem)
