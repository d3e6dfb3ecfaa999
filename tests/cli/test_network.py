"""Networks from the command line: made, run, watched and reported as a user does."""

import json
import re
import shutil
import time

import numpy as np
import pytest
import typer

import consilience as cs
from consilience.cli import commands
from consilience.cli.network_display import print_network
from consilience.deployment.networks import make_network, node_runs
from consilience.deployment.processes import network_status, stop_network
from consilience.errors import ConsilienceError, NetworkError, RunError
from consilience.sampling.engines import engine_named
from consilience.sampling.targets import Wishes, main_plan
from tests.cli.test_commands import call, error_of
from tests.command import Command
from tests.deployment.test_merging import sensors

SENSORS = "tests.deployment.test_merging:sensors"
OPTIONS = ["--agents", 3, "--steps", 300, "--seed", 4, "--step-size", 1e-3, "--consensus", 0.2]


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    wishes = Wishes(num_agents=3, num_steps=300, numbers={"step_size": 1e-3, "consensus": 0.2}, entries={"seed": 4})
    return cs.sample(
        sensors(), main_plan(SENSORS, wishes).plan, tmp_path_factory.mktemp("simulated") / "run", theory=True
    )


def assert_same_run(found, simulated):
    for name in ("w", "step"):
        np.testing.assert_allclose(found.draws[name], simulated.draws[name], atol=1e-4)
    assert set(found.summary) == {*simulated.summary, "nodes", "participation"}
    assert found.summary["agents"][1]["mean"] == pytest.approx(simulated.summary["agents"][1]["mean"], abs=1e-4)


@pytest.mark.slow(reason="a network of real processes")
def test_run_by_peers_draws_what_simulate_draws(simulated, tmp_path):
    path = tmp_path / "run"
    done = call("run", SENSORS, "--engine", "peers", *OPTIONS, "--out", path)
    assert done.stdout.strip().splitlines()[-1] == f"Report: {path / 'report.html'}"
    assert_same_run(cs.Run(path), simulated)
    assert (path / "network" / "runs" / "agent-2" / "summary.json").exists()
    with pytest.raises(RunError, match="already holds a run"):
        engine_named("peers").require_room(path)


@pytest.mark.slow(reason="a network of real processes")
def test_a_network_from_init_to_its_report(simulated, tmp_path):
    network = tmp_path / "NET"
    call("network", "init", "--experiment", SENSORS, *OPTIONS, "--out", network)
    done = call("network", "up", network, "--page")
    assert re.search(r"^Page: http://127\.0\.0\.1:\d+/$", done.stderr, re.MULTILINE)
    report = network / "report" / "report.html"
    assert done.stdout.splitlines()[-2:] == [f"Watch: consilience watch {network}", f"Report: {report}"]
    assert_same_run(cs.Run(network / "report"), simulated)
    nodes = [network / "runs" / f"agent-{agent}" for agent in range(3)]
    summary = json.loads(call("report", *nodes, "--json").stdout)
    assert summary["run"] == str(network / "runs" / "whole")
    assert summary["agents"] == cs.Run(network / "report").summary["agents"]
    with pytest.raises(ConsilienceError, match="agent 2 is not given"):
        commands.report(nodes[:2])
    with pytest.raises(typer.BadParameter, match="--out is for"):
        commands.report(nodes[:1], out=tmp_path / "elsewhere")


@pytest.mark.slow(reason="a network of real processes")
def test_a_node_that_cannot_start_ends_the_network_and_says_why(tmp_path):
    network = tmp_path / "NET"
    call("network", "init", "--experiment", SENSORS, *OPTIONS, "--out", network)
    (network / "certificates" / "agent-1.key").unlink()
    told = error_of("network", "up", network, code=1)
    assert "agent-1 failed" in told
    assert "agent-1.key is missing: carry it over" in told


@pytest.mark.slow(reason="a network of real processes")
def test_a_stopped_network_leaves_checkpoints(tmp_path):
    network = tmp_path / "NET"
    call("network", "init", "--experiment", SENSORS, *OPTIONS, "--steps", 100_000, "--out", network)
    with pytest.raises(NetworkError, match="no node of"):
        stop_network(network)
    up = Command("network", "up", network)
    deadline = time.monotonic() + 120
    while not all(node.get("round") for node in network_status(network, 0.5)):
        assert up.poll() is None, up.stderr.read_text()
        assert time.monotonic() < deadline
    assert own_status(network, tmp_path / "site") > 0
    assert "stopping 3 nodes" in call("network", "down", network).stdout
    _, told = up.communicate(timeout=120)
    assert up.returncode == 130
    assert f"`consilience network up {network}` resumes them" in told
    assert {cs.Run(path).status["status"] for path in node_runs(network)} == {"interrupted"}
    with pytest.raises(ConsilienceError, match="has not finished"):
        commands.report(node_runs(network))


def test_how_a_node_ended_that_is_gone_is_read_from_its_run(tmp_path):
    """Nodes that nobody started: of one there is no run, of the others what their runs say."""
    wishes = Wishes(num_agents=3, num_steps=300, numbers={"step_size": 1e-3, "consensus": 0.2}, entries={"seed": 4})
    make_network(main_plan(SENSORS, wishes).plan, tmp_path / "NET", insecure=True)
    for agent, status in ((1, "complete"), (2, "interrupted")):
        run = tmp_path / "NET" / "runs" / f"agent-{agent}"
        run.mkdir(parents=True)
        shutil.copy(tmp_path / "NET" / "plan.toml", run)
        (run / "status.json").write_text(json.dumps({"format": 1, "status": status}))
    assert network_status(tmp_path / "NET", 0.2) == [
        {"agent": 0, "here": False},
        {"agent": 1, "here": False, "ended": "complete"},
        {"agent": 2, "here": False, "ended": "interrupted"},
    ]


def own_status(network, site):
    """The round that a site hears from its own node, with nothing but its own files: no operator's certificate."""
    for name in ("agent-1.toml", "plan.toml", "authority.pem", "agent-1.pem", "agent-1.key"):
        folder = "" if name in ("agent-1.toml", "plan.toml") else "certificates"
        (site / folder).mkdir(parents=True, exist_ok=True)
        shutil.copy(network / folder / name, site / folder / name)
    (one,) = json.loads(call("network", "status", site / "agent-1.toml", "--json").stdout)
    assert one["agent"] == 1
    return one["round"]


def test_the_table_shows_rounds_rates_and_who_is_here():
    from rich.console import Console

    from consilience.cli.network_display import _network

    node = {
        "agent": 0, "here": True, "round": 1200, "num_rounds": 20000, "durable": 1000,
        "neighbours": {"1": True, "2": False}, "messages": {"rejected": 3}, "distance_to_neighbours": 0.0123,
    }  # fmt: skip
    console = Console(record=True, width=100)
    console.print(_network([node, {"agent": 1, "here": False}], {0: 312.4}))
    head, first, second = console.export_text().splitlines()
    assert head.split() == ["agent", "round", "of", "rounds/s", "checkpoint", "distance", "neighbours", "rejected"]
    assert first.split() == ["0", "1,200", "20,000", "312", "1,000", "0.0123", "1✓", "2✗", "3"]
    assert second.split() == ["1", "not", "here"]


def test_the_table_says_how_nodes_ended_that_answer_no_more(capsys):
    ended = {"complete": "done", "interrupted": "stopped", "failed": "failed", "running": "not here"}
    print_network([{"agent": i, "here": False, "ended": status} for i, status in enumerate(ended)])
    head, *shown = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    assert [title.strip() for title in head] == ["agent", "state"]  # nothing else is known of them
    assert [words.strip() for _, words in shown] == list(ended.values())


def test_the_table_of_nodes_in_unison_says_where_they_are(capsys):
    node = {
        "agent": 0, "here": True, "round": 1200, "num_rounds": 11000, "durable": 900, "done": False,
        "warming_up": False, "masked": True, "neighbours": {"1": True, "2": False},
        "messages": {"sent": 9, "received": 8, "rejected": 0},
    }  # fmt: skip
    warming = {**node, "agent": 1, "round": 300, "warming_up": True, "masked": False}
    print_network([node, warming, {"agent": 2, "here": False}])
    shown = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert shown[1:] == [
        "0 sampling 1,200 11,000 900 yes 1✓ 2✗ 0", "1 warming up 300 11,000 900 no 1✓ 2✗ 0", "2 not here",
    ]  # fmt: skip
    print_network([{**node, "present": [0]}, {**warming, "present": [0, 1]}, {"agent": 2, "here": False}])
    shown = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert shown[1].startswith("0 sampling for agent 0 only 1,200 ")
    assert shown[2].startswith("1 warming up for agents 0, 1 only 300 ")
