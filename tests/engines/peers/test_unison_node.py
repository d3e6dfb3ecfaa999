"""Nodes in unison as processes of their own: one set of draws whatever the sums, the masks and the kills."""

import os
import platform
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import consilience as cs
from consilience.deployment.merging import merge
from consilience.deployment.networks import make_network
from consilience.deployment.processes import network_status
from consilience.engines.peers.settings import NodeSettings
from consilience.engines.peers.unison_node import UnisonNode
from consilience.errors import NetworkError, PlanError
from consilience.runs.posterior import shared_digest
from tests.command import Command
from tests.engines.peers.fixed_step import assert_same_draws, keep_step_size
from tests.engines.peers.running import ended_at_last, wait_for_success
from tests.engines.peers.test_kills import wait_for_round
from tests.hierarchical import wards

OPTIMISED = True  # as the processes are

PLAN = cs.Plan(
    problem="tests.hierarchical:wards", graph=cs.graphs.path(3), sampler=cs.hmc(), num_warmup=60, num_draws=40,
    num_chains=2, seed=4,
)  # fmt: skip


def network_of(plan, place, **options):
    return make_network(plan, place / "network", checkpoint_seconds=0.2, **options)


def sampled(plan, place, environments=(None, None, None), **options):
    """The run of a network of processes."""
    files = network_of(plan, place, **options)
    nodes = [Command("node", path, environment=own) for path, own in zip(files, environments, strict=True)]
    with ended_at_last(nodes):
        wait_for_success(nodes)
    return merged(files, place)


def merged(files, place):
    """The network's run, and the one digest of what all agents share."""
    runs = [NodeSettings.load(path).run for path in files]
    digests = {shared_digest(cs.Run(run).draws) for run in runs}
    assert len(digests) == 1
    return merge(runs, place / "whole", wards()), digests.pop()


@pytest.fixture(scope="module")
def masked(tmp_path_factory):
    """Undisturbed, over TLS, masked, on a tree."""
    return sampled(PLAN, tmp_path_factory.mktemp("masked"))


@pytest.mark.slow(reason="two networks of processes")
def test_other_sums_without_masks_on_another_graph_have_the_same_bits(masked, tmp_path):
    plan = PLAN.replace(masked=False, summation="flood", graph=cs.graphs.ring(3))
    plain, digest = sampled(plan, tmp_path, insecure=True)
    assert digest == masked[1]
    np.testing.assert_array_equal(plain.draws["effect"], masked[0].draws["effect"])


LONG = PLAN.replace(num_warmup=250, num_draws=350)
WAVES = [(0, 1, 2), (0, 1, 2), (1, 2), (0, 1, 2), (0, 1, 2), (0, 1, 2), (0, 1, 2)]  # agent 1 is the root
QUICKLY = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "true"}  # compiling is most of a restart


@pytest.mark.slow(reason="20 kills of real processes, each of which compiles its program anew")
def test_twenty_kills_change_nothing(tmp_path):
    """Spread over warm-up and sampling, all agents several times, two or three at once."""
    quickly = {**os.environ, **QUICKLY}
    assert sum(map(len, WAVES)) == 20
    files, network = network_of(LONG, tmp_path), tmp_path / "network"
    nodes, rounds = [Command("node", path, environment=quickly) for path in files], []
    with ended_at_last(nodes):
        for wave, agents in enumerate(WAVES):
            wait_for_round(network, 1 + wave * 0.8 * LONG.num_steps / len(WAVES))
            rounds += [one["round"] for one in network_status(network, 2.0) if one["agent"] in agents]
            for agent in agents:
                assert nodes[agent].poll() is None, "killed while it samples"
                nodes[agent].kill()
            for agent in agents:
                nodes[agent].wait(10)
                nodes[agent] = Command("node", files[agent], environment=quickly)
        wait_for_success(nodes)
    found, digest = merged(files, tmp_path)
    kills = [sum(agent in wave for wave in WAVES) for agent in range(3)]
    assert [node["restarts"] for node in found.summary["nodes"]] == kills
    assert min(sum(one < LONG.num_warmup for one in rounds), sum(one > LONG.num_warmup for one in rounds)) >= 6
    quiet, undisturbed = sampled(LONG, tmp_path / "quiet", environments=[quickly] * 3)
    assert digest == undisturbed
    np.testing.assert_array_equal(found.draws["effect"], quiet.draws["effect"])
    np.testing.assert_array_equal(found.metrics["energy"], quiet.metrics["energy"])


def wait_for_words(node, words, seconds=120):
    """Wait until a process has said something."""
    deadline = time.monotonic() + seconds
    while words not in node.stderr.read_text():
        assert time.monotonic() < deadline, f"{words!r} is not in {node.stderr.read_text()[-2000:]!r}"
        threading.Event().wait(0.05)


@pytest.mark.slow(reason="a network of processes of which two are killed and one is interrupted")
def test_killed_and_interrupted_nodes_change_nothing(masked, tmp_path):
    """Agent 2, then the root; between, Ctrl-C stops agent 0, which waits in a sum that cannot come.

    All replay the totals that they missed.
    """
    files = network_of(PLAN, tmp_path)
    nodes = [Command("node", path) for path in files]
    with ended_at_last(nodes):
        wait_for_round(tmp_path / "network", 15)
        nodes[2].kill()
        nodes[2].wait(10)
        wait_for_words(nodes[0], "agent 0 waits for agent 1 in operation")
        os.kill(nodes[0].pid, signal.SIGINT)
        assert nodes[0].wait(60) == 130
        assert "consilience node" in nodes[0].stderr.read_text(), "how to resume"
        nodes[1].kill()
        nodes[1].wait(10)
        for agent, path in enumerate(files):
            nodes[agent] = Command("node", path)
        wait_for_success(nodes)
    found, digest = merged(files, tmp_path)
    assert digest == masked[1]
    np.testing.assert_array_equal(found.draws["effect"], masked[0].draws["effect"])
    assert [node["restarts"] for node in found.summary["nodes"]] == [1, 1, 1]


ROUNDING = """
import hashlib, jax, numpy as np
from consilience.kernel.gradients import network_potentials
from consilience.kernel.parameters import Parameters
from consilience.kernel.rows import Rows
from tests.engines.peers.test_unison_node import PLAN
from tests.hierarchical import wards

jax.config.update("jax_enable_x64", True)
problem, digest = wards(), hashlib.sha256()
potentials = jax.jit(network_potentials(problem, Parameters.of(problem, np.float64)), static_argnums=4)
arrays = Rows(problem, PLAN, np.float64).arrays
for positions in np.random.default_rng(0).normal(size=(50, 1, 3, 2)):
    for found in potentials(positions, *arrays, False):
        digest.update(np.asarray(found).tobytes())
print(digest.hexdigest())
"""


def with_instructions(kind):
    """The environment of a process that may use these instructions only."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_max_isa={kind}"
    kept = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    return {**kept, "XLA_FLAGS": flags.strip()}


@pytest.mark.slow(reason="a network of processes, and two more processes")
@pytest.mark.skipif(platform.machine().lower() not in ("x86_64", "amd64"), reason="the flag is for x86 alone")
def test_processors_that_round_differently_do_not_drift_apart(tmp_path, monkeypatch):
    """A leaf with older instructions than the others; local potentials have other bits there.

    Nodes have the same bits, and at a fixed step size their draws are those of `simulate`.
    """
    environments = [with_instructions(kind) for kind in ("SSE4_2", "AVX2")]
    old, new = (
        subprocess.run([sys.executable, "-c", ROUNDING], env=own, capture_output=True, text=True, check=True).stdout
        for own in environments
    )
    if old == new:
        pytest.skip("this processor has nothing beyond SSE4.2, so nothing rounds differently on it")
    plan = PLAN.replace(problem="tests.engines.peers.fixed_step:wards", num_warmup=20)
    run, _ = sampled(plan, tmp_path, environments=[environments[place] for place in (0, 1, 1)])
    keep_step_size(monkeypatch.setattr)
    assert_same_draws(run, cs.sample(wards(), plan, tmp_path / "simulated"))


def test_what_nodes_in_unison_refuse(tmp_path):
    files = make_network(PLAN.replace(graph=cs.graphs.path(2), masked=True), tmp_path / "two", insecure=True)
    with pytest.raises(NetworkError, match="masks hide nothing between two agents"):
        UnisonNode(wards().of_agent(0), cs.Plan.load(tmp_path / "two" / "plan.toml"), NodeSettings.load(files[0]))
    files = make_network(PLAN.replace(sampler=cs.nuts()), tmp_path / "nuts", insecure=True)
    with pytest.raises(PlanError, match="does not take private parameters"):
        UnisonNode(wards().of_agent(0), PLAN.replace(sampler=cs.nuts()), NodeSettings.load(files[0]))
