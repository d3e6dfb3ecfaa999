"""What nodes in unison refuse before the first sum: other plans, other versions, data that has no likelihood.

Whole nodes on a clock that the tests turn; they do not come so far as to need their programs.
"""

import dataclasses

import jax
import numpy as np
import pytest

import consilience as cs
from consilience.deployment.networks import make_network
from consilience.engines import unison
from consilience.engines.peers import identity
from consilience.engines.peers.memory import MemoryNetwork
from consilience.engines.peers.settings import NodeSettings
from consilience.engines.peers.unison_node import UnisonNode
from consilience.errors import NetworkError, ProblemError
from tests.engines.peers.virtual import Laboratory
from tests.hierarchical import sites

SIZES = (4, 5, 6)


def plan_of(num_agents):
    """Of two agents without masks, of three with."""
    return cs.Plan(graph=cs.graphs.path(num_agents), sampler=cs.hmc(), num_warmup=20, num_draws=10, num_chains=1)


@pytest.fixture
def network(tmp_path, monkeypatch):
    monkeypatch.setattr(UnisonNode, "compile", lambda self: None)
    made = []

    def make(problem, **options):
        made.append(Laboratory(plan_of(problem.num_agents), tmp_path / "network", problem, monkeypatch, **options))
        return made[-1]

    yield make
    made[-1].clock.abandon()


def without_likelihood(agent):
    """One agent's data is not a number somewhere."""
    problem = sites(SIZES)
    shards = [np.array(shard) for shard in problem.shards]
    shards[agent][2] = np.nan
    return dataclasses.replace(problem, shards=shards)


@pytest.mark.parametrize(("bad", "on_loss"), [(0, "wait"), (1, "wait"), (2, "continue")])
def test_a_shard_without_a_likelihood_ends_all_agents_with_the_reason(network, bad, on_loss):
    """The agent itself refuses it; the others hear of it, also those that are no neighbours of its."""
    lab = network(without_likelihood(bad), on_loss=on_loss)
    lab.start_all()
    for agent in range(3):
        error = lab.until_ended(agent)
        said = f"for agent {bad}, row 2"
        if agent == bad:
            assert isinstance(error, ProblemError)
            assert said in str(error)
        else:
            assert isinstance(error, NetworkError)
            assert str(error).startswith(f"agent {bad} cannot continue: ")
            assert said in str(error)


@pytest.mark.parametrize(("entry", "num_agents"), [("seed", 2), ("jax", 3)])
def test_another_plan_or_version_ends_all_agents_and_the_difference_is_named(
    network, monkeypatch, tmp_path, entry, num_agents
):
    """Agent 0 has it; agent 1 sees that, and the others hear of it. Nobody makes a total."""
    monkeypatch.setattr(unison, "require_usable", lambda *arguments: None)
    lab = network(sites(SIZES[:num_agents]))
    if entry == "seed":
        (tmp_path / "network" / "other.toml").write_text(plan_of(num_agents).replace(seed=8).to_toml())
        file = lab.files[0]
        file.write_text(file.read_text().replace("plan.toml", "other.toml"))
    else:
        in_common = identity._in_common
        monkeypatch.setattr(identity, "_in_common", lambda plan, settings: {
            **in_common(plan, settings), **({"jax": "0.0.1"} if settings.agent == 0 else {})
        })  # fmt: skip
    lab.start_all()
    errors = [lab.until_ended(agent) for agent in range(num_agents)]
    assert all(isinstance(error, NetworkError) for error in errors)
    assert str(errors[0]).startswith(f"agent 1 follows another plan: it differs in {entry}")
    assert str(errors[1]).startswith(f"agent 0 follows another plan: it differs in {entry}")
    for error in errors[2:]:
        assert str(error).startswith(f"agent 1 cannot continue: agent 0 follows another plan: it differs in {entry}")


def test_a_node_that_has_begun_waits_for_a_neighbour_with_another_plan(tmp_path):
    """Its operator may mend it. Who comes back, and differs from all its neighbours, is the one to be mended."""
    plan = plan_of(3).replace(masked=False)
    files = make_network(plan, tmp_path / "network", insecure=True)

    def stops(differing, first_step=5, num_totals=0):
        with jax.enable_x64(True):
            node = UnisonNode(sites(SIZES).of_agent(1), plan, NodeSettings.load(files[1]))
        node.connect(MemoryNetwork().connect(1, [0, 2]), first_step, None)
        node.sums.lines.counts["operations"] = num_totals
        for number in differing:
            node.wire.differs(number, f"agent {number} follows another plan")
        return node.stop.is_set()

    assert stops([0], first_step=0)
    assert not stops([0], first_step=0, num_totals=1)
    assert not stops([0])
    assert stops([0, 2])
    assert not stops([0, 2], num_totals=1)
