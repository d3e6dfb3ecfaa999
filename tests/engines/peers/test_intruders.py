"""Others try to get into a network, or to speak for somebody else: refused, logged, and no draw changes."""

import json
import time

import numpy as np
import pytest
import zenoh
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

import consilience as cs
from consilience.deployment.merging import network_draws
from consilience.deployment.networks import make_network
from consilience.engines.peers import certificates
from consilience.engines.peers.messages import Message
from consilience.engines.peers.node import Node
from consilience.engines.peers.settings import NodeSettings
from consilience.engines.peers.zenoh_transport import configuration
from tests.command import Command
from tests.deployment.test_merging import sensors
from tests.engines.peers.running import assert_same_draws, ended_at_last, wait_for_success

PLAN = cs.Plan(
    problem="tests.deployment.test_merging:sensors", graph=cs.graphs.ring(3), num_steps=60,
    sampler=cs.dula(step_size=1e-3, consensus=0.2),
)  # fmt: skip


def call_agent_0(settings, directory=None):
    """Call agent 0 as agent 1 would, without the rules of an honest node; perhaps with another certificate."""
    tls = settings.tls
    if directory is not None:
        tls = tls.model_copy(update={"certificate": directory / "agent-1.pem", "key": directory / "agent-1.key"})
    wanted = configuration(settings.model_copy(update={"listen": None, "tls": tls}), 10**9)
    del wanted["access_control"]
    return zenoh.open(zenoh.Config.from_json5(json.dumps(wanted)))


def issue_to(authority, directory, days=100.0):
    directory.mkdir()
    if authority is None:
        authority = certificates.make_authority(directory, "another network")
    certificates.issue(authority, directory, "agent-1", ["127.0.0.1"], valid_days=days)
    return directory


def wait_for_words(path, *words, seconds=30):
    deadline = time.monotonic() + seconds
    while not all(one in path.read_text() for one in words):
        assert time.monotonic() < deadline, f"{words} not in: {path.read_text()}"
        time.sleep(0.1)


@pytest.mark.slow(reason="real processes, which wait for each other")
def test_intruders_are_refused_and_logged_and_no_draw_changes(tmp_path):
    files = make_network(PLAN, tmp_path / "network")
    settings = NodeSettings.load(files[1])
    secret = load_pem_private_key(settings.tls.authority.with_suffix(".key").read_bytes(), None)
    authority = (x509.load_pem_x509_certificate(settings.tls.authority.read_bytes()), secret)
    forged_by = Node(sensors().of_agent(1), PLAN, settings)
    codec = forged_by.wire.codec
    forged = codec.encode(Message(2, 0, 0, tuple(np.full(shape, 1e3) for shape, _ in codec.arrays)))
    assert isinstance(codec.decode(forged, 2), Message)  # were it let through, it would be taken

    nodes = [Command("node", files[0], "--json")]
    with ended_at_last(nodes):
        wait_for_words(nodes[0].stderr, "waits for")
        for directory in (issue_to(None, tmp_path / "stranger"), issue_to(authority, tmp_path / "late", -1)):
            with call_agent_0(settings, directory) as session:
                session.put("consilience/agent/1/message", forged)
                wait_for_words(nodes[0].stderr, "UnknownIssuer" if directory.name == "stranger" else "expired")
        with call_agent_0(settings) as session:
            deadline = time.monotonic() + 10
            while not list(session.info.peers_zid()) and time.monotonic() < deadline:
                time.sleep(0.05)
            assert list(session.info.peers_zid())  # a member is let in
            session.put("consilience/agent/2/message", forged)  # but not under another's name
            time.sleep(0.5)
        nodes += [Command("node", files[1]), Command("node", files[2])]
        wait_for_success(nodes)
    said = [json.loads(line)["message"] for line in nodes[0].stderr.read_text().splitlines()]
    assert said.count("refused a connection: invalid peer certificate: UnknownIssuer") == 1
    assert said.count("refused a connection: invalid peer certificate: certificate expired") == 1
    runs = [NodeSettings.load(path).run for path in files]
    assert_same_draws(network_draws(runs), cs.sample(sensors(), PLAN, tmp_path / "whole"))
    assert [cs.Run(run).summary["messages"]["rejected"] for run in runs] == [0, 0, 0]
