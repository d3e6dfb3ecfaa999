"""Several hosts: each node in a network namespace with its own address, on lines that are slow and lose packets."""

import contextlib
import os
import shutil
import subprocess
import sys

import pytest

import consilience as cs
from consilience.deployment.merging import network_draws
from consilience.deployment.networks import make_network, node_runs
from tests.deployment.test_merging import sensors
from tests.engines.peers.running import assert_same_draws, ended_at_last

PLAN = cs.Plan(
    problem="tests.deployment.test_merging:sensors", graph=cs.graphs.ring(3), num_steps=60,
    sampler=cs.dula(step_size=1e-3, consensus=0.2),
)  # fmt: skip


def run(*words):
    subprocess.run(words, check=True, capture_output=True, text=True, timeout=20)


@contextlib.contextmanager
def hosts(count):
    """The names of new namespaces with the addresses 10.213.77.1 …, joined by a bridge in one more."""
    if shutil.which("ip") is None:
        pytest.skip("there is no `ip` here, which makes network namespaces")
    hub, names = f"cs{os.getpid()}", [f"cs{os.getpid()}-{i}" for i in range(count)]
    try:
        try:
            run("ip", "netns", "add", hub)
            run("ip", "-n", hub, "link", "add", "bridge", "type", "bridge")
            run("ip", "-n", hub, "link", "set", "bridge", "up")
            for i, name in enumerate(names):
                run("ip", "netns", "add", name)
                run("ip", "link", "add", f"h{i}", "netns", hub, "type", "veth", "peer", "name", "line", "netns", name)
                run("ip", "-n", hub, "link", "set", f"h{i}", "master", "bridge", "up")
                run("ip", "-n", name, "address", "add", f"10.213.77.{i + 1}/24", "dev", "line")
                for device in ("line", "lo"):
                    run("ip", "-n", name, "link", "set", device, "up")
            run("ip", "netns", "exec", names[0], "true")
        except (subprocess.CalledProcessError, OSError) as error:
            pytest.skip(f"network namespaces cannot be made here: {getattr(error, 'stderr', '') or error}")
        yield names
    finally:
        for name in [hub, *names]:
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


def disturbed(names):
    """Delay each host's packets by 4 ms and lose one in a hundred; whether that is possible here."""
    try:
        for name in names:
            run("tc", "-n", name, "qdisc", "add", "dev", "line", "root", "netem", "delay", "4ms", "1ms", "loss", "1%")
    except (subprocess.CalledProcessError, OSError):
        return False
    return True


@pytest.mark.slow(reason="network namespaces with real processes")
@pytest.mark.parametrize("lossy", [False, True], ids=["clean", "delay-and-loss"])
def test_nodes_on_hosts_of_their_own_draw_what_simulate_draws(tmp_path, lossy):
    with hosts(3) as names:
        if lossy and not disturbed(names):
            pytest.skip("`tc netem` is not available here: the lines cannot be made slow and lossy")
        endpoints = [f"10.213.77.{i + 1}:7447" for i in range(3)]
        files = make_network(PLAN, tmp_path / "network", endpoints)
        command = [sys.executable, "-m", "consilience.cli.main", "node"]
        words = [(tmp_path / f"{name}.log").open("w+") for name in names]  # files, which never block a node
        nodes = [
            subprocess.Popen(
                ["ip", "netns", "exec", name, *command, str(path)], stdout=subprocess.DEVNULL, stderr=log
            )
            for name, path, log in zip(names, files, words, strict=True)
        ]
        with ended_at_last(nodes):
            for node, log in zip(nodes, words, strict=True):
                assert node.wait(240) == 0, (log.seek(0), log.read()[-2000:])
    found = network_draws(node_runs(tmp_path / "network"))
    assert_same_draws(found, cs.sample(sensors(), PLAN, tmp_path / "whole"))
