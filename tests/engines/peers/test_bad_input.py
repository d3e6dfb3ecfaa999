"""What goes wrong on somebody's machine: each is told in words, and a node that is started again resumes."""

import datetime
import errno
import logging
import shutil
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import consilience as cs
from consilience.deployment import nodes
from consilience.deployment.networks import make_network
from consilience.deployment.nodes import own_problem, run_node
from consilience.engines.peers import certificates
from consilience.engines.peers.node import Node
from consilience.engines.peers.settings import NodeSettings
from consilience.engines.peers.zenoh_transport import by_zenoh
from consilience.errors import NetworkError, ProblemError, RunError, StorageError
from consilience.runs.checkpoints import Checkpoints
from tests.deployment.test_merging import sensors
from tests.engines.peers.running import sample_by_peers
from tests.engines.peers.virtual import Laboratory

PLAN = cs.Plan(
    problem="tests.deployment.test_merging:sensors", graph=cs.graphs.from_edges(2, [(0, 1)]), num_steps=30,
    sampler=cs.dula(step_size=1e-3, consensus=0.2),
)  # fmt: skip


def two_sensors():
    whole = sensors()
    return cs.Problem(whole.log_likelihood, whole.log_prior, whole.init, whole.shards[:2])


def test_with_a_wrong_port_the_node_says_for_whom_it_waits(tmp_path, caplog):
    """Agent 1 calls agent 0 where nobody is: it waits, says so, and stops when it is told to."""
    files = make_network(PLAN, tmp_path / "network", insecure=True)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        wrong = {0: f"127.0.0.1:{nobody.getsockname()[1]}"}
        settings = NodeSettings.load(files[1]).model_copy(update={"neighbours": wrong, "ask_seconds": 0.05})
        node = Node(two_sensors().of_agent(1), PLAN, settings)
        node.compile()
        with caplog.at_level(logging.INFO, "consilience.peers"):
            node.connect(by_zenoh(settings), 0, node.initial_state())
            rounds = threading.Thread(target=node.advance, args=(node.initial_state(), 0, 5))
            rounds.start()
            try:
                deadline = time.monotonic() + 30
                while "waits for agent 0 in round 0" not in caplog.text and time.monotonic() < deadline:
                    time.sleep(0.05)
            finally:
                node.stop.set()
                rounds.join(30)
                node.close()
    assert "agent 1 waits for agent 0 in round 0" in caplog.text
    assert node.rounds.round == 0


def shard_from_a_file(num_agents, agent):
    rows = np.load("there-is-no-such-shard.npy")
    return cs.Problem(lambda w, x: -((x - w) ** 2), lambda w: -(w**2), lambda key: np.zeros(()), [rows])


def shard_of_another_kind(num_agents, agent):
    return [1.0, 2.0]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            "shard_from_a_file",
            r"failed for agent 1 \(FileNotFoundError: .*there-is-no-such-shard.npy.*\): is its data",
        ),
        ("shard_of_another_kind", "must return a Problem with one shard"),
    ],
)
def test_a_missing_shard_is_told(tmp_path, function, message):
    plan = PLAN.replace(problem=f"tests.engines.peers.test_bad_input:{function}")
    files = make_network(plan, tmp_path / "network", insecure=True)
    with pytest.raises(ProblemError, match=message):
        own_problem(plan, NodeSettings.load(files[1]))
    with pytest.raises(ProblemError, match=message):
        run_node(NodeSettings.load(files[1]))
    assert not NodeSettings.load(files[1]).run.exists()


def full_disk(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.slow(reason="a network that fails four times")
@pytest.mark.parametrize("refused", ["messages", "state"])
def test_a_full_disk_at_a_checkpoint_is_told_and_the_node_resumes_later(tmp_path, monkeypatch, refused):
    """One node's disk is full at a checkpoint, four times; it ends with the reason and at last has the same draws."""
    monkeypatch.setattr(Node, "segment_seconds", 1e-6)  # a segment is a round, so that there are checkpoints
    quiet = Laboratory(PLAN, tmp_path / "quiet", two_sensors(), monkeypatch)
    quiet.start_all()
    undisturbed = [run.draws["w"].to_numpy() for run in quiet.runs(range(2))]
    quiet.clock.abandon()
    failed = []
    true_save, true_keep = Checkpoints.save, nodes.NodeCompanion.before_checkpoint

    def is_full(path, step):
        return "agent-1" in str(path) and step > 3 and len(failed) < 4

    def save(self, step, *arguments):
        (full_disk if is_full(self.path, step) else true_save)(self, step, *arguments)

    def keep(self, step):
        (full_disk if is_full(self._run.path, step) else true_keep)(self, step)

    if refused == "state":
        monkeypatch.setattr(Checkpoints, "save", save)
    else:
        monkeypatch.setattr(nodes.NodeCompanion, "before_checkpoint", keep)
    lab = Laboratory(PLAN, tmp_path / "network", two_sensors(), monkeypatch, checkpoint_seconds=1e-6)
    lab.start_all()
    while len(failed) < 4:
        error = lab.until_ended(1)
        assert isinstance(error, StorageError)
        failed.append(str(error))
        lab.start(1)
    runs = lab.runs(range(2))
    lab.clock.abandon()
    assert "No space left on device; free some space" in failed[0]
    assert "`consilience node FILE` resumes from there" in failed[0]
    for run, expected in zip(runs, undisturbed, strict=True):
        np.testing.assert_array_equal(run.draws["w"].to_numpy(), expected)


@pytest.mark.slow(reason="three lives of a network")
def test_a_node_that_is_done_and_started_again_keeps_its_draws_and_serves_others(tmp_path):
    found, runs = sample_by_peers(PLAN, tmp_path / "network", two_sensors(), insecure=True)
    settings = [NodeSettings.load(path) for path in sorted((tmp_path / "network").glob("agent-*.toml"))]

    def draws(agent):
        return cs.Run(settings[agent].run).draws["w"].to_numpy()[:, 0]

    run_node(settings[0], two_sensors().of_agent(0))  # knows that its neighbour was done, and ends
    np.testing.assert_array_equal(draws(0), found["w"][:, 0])
    shutil.rmtree(settings[1].run)  # as if it had been killed before its first checkpoint
    runs[0].update_status(neighbours_done=[])
    with ThreadPoolExecutor(2) as threads:
        jobs = [threads.submit(run_node, settings[agent], two_sensors().of_agent(agent)) for agent in range(2)]
        assert [job.result(timeout=120).complete for job in jobs] == [True, True]
    np.testing.assert_array_equal(draws(1), found["w"][:, 1])
    np.testing.assert_array_equal(draws(0), found["w"][:, 0])
    with pytest.raises(RunError, match="began with on_loss = 'wait': set it back"):
        run_node(settings[0].model_copy(update={"on_loss": "continue"}), two_sensors().of_agent(0))
    (settings[0].run / "outbox" / f"{PLAN.num_steps}.npz").write_bytes(b"nothing")
    with pytest.raises(RunError, match=r"cannot be read .*: restore the file, or remove it"):
        run_node(settings[0], two_sensors().of_agent(0))


@pytest.mark.slow(reason="two lives of a network")
def test_a_node_that_was_done_does_not_wait_for_ever_for_one_that_is_not_here(tmp_path, monkeypatch, caplog):
    _, runs = sample_by_peers(PLAN, tmp_path / "network", two_sensors(), insecure=True)
    runs[0].update_status(neighbours_done=[])
    monkeypatch.setattr(nodes, "_NOBODY_SECONDS", 0.5)
    with caplog.at_level(logging.INFO, "consilience.peers"):
        run_node(NodeSettings.load(tmp_path / "network" / "agent-0.toml"), two_sensors().of_agent(0))
    assert "agent 0 was done and finds agent 1 not here" in caplog.text


RIGHT_TIME = datetime.datetime.now


class Clock(datetime.datetime):
    """A machine's clock, some time before the right one."""

    behind = datetime.timedelta()

    @classmethod
    def now(cls, zone=None):
        return RIGHT_TIME(zone) - cls.behind


@pytest.mark.parametrize(("hours", "told"), [(12, False), (-12, False), (72, True)])
def test_a_clock_far_behind_is_told_and_a_little_does_no_harm(tmp_path, monkeypatch, hours, told):
    authority = certificates.make_authority(tmp_path, "test")
    certificates.issue(authority, tmp_path, "agent-0", [])
    files = [tmp_path / name for name in ("agent-0.pem", "agent-0.key", "authority.pem")]
    monkeypatch.setattr(Clock, "behind", datetime.timedelta(hours=hours))
    monkeypatch.setattr(certificates.datetime, "datetime", Clock)
    if told:
        with pytest.raises(NetworkError, match=r"is valid only from .* and it is .* here: set this machine's clock"):
            certificates.require_usable(*files, "agent-0")
    else:
        certificates.require_usable(*files, "agent-0")
