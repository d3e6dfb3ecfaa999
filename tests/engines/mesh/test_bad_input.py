"""Mistakes with devices and processes end with one line that says what to do, in every process."""

import os

import jax
import numpy as np
import pytest

import consilience as cs
from consilience.cli.processes import engine_for, refuse_suggesting
from consilience.engines.mesh import engine, joining
from consilience.engines.mesh.devices import DeviceSettings
from consilience.engines.mesh.engine import MeshSimulation, own_agents
from consilience.engines.mesh.rendezvous import Rendezvous
from consilience.errors import InputError, MeshError
from consilience.kernel.curvature import largest_curvature
from tests.engines.mesh.processes import PROBLEM, finished, free_port, rendezvous_options, slurm, team
from tests.gaussian import regression

identity = engine._identity

RUN = ["run", "problem:one", "--steps", 50, "--step-size", "1e-3", "--engine", "mesh", "--json"]


@pytest.fixture
def place(tmp_path):
    (tmp_path / "problem.py").write_text(PROBLEM)
    return tmp_path


def told(commands, place, environments=None):
    with team(commands, place, environments) as made:
        return finished(made)


def plan_of(num_agents):
    return cs.Plan(graph=cs.graphs.ring(num_agents), sampler=cs.dula(1e-3, 0.2), num_steps=9)


def only_in(process, **variables):
    """The environments of two processes, of which one has something that the other has not."""
    return [{**os.environ, **variables} if number == process else None for number in range(2)]


def test_more_processes_than_agents(monkeypatch):
    monkeypatch.setattr(joining, "_place", (0, 2))
    with pytest.raises(MeshError, match="2 processes cannot share 1 agents"):
        own_agents(plan_of(1))


@pytest.mark.slow(reason="two real processes")
def test_processes_with_different_versions(place):
    other = told(
        [[*RUN, "--agents", 4, "--out", "run", *own] for own in rendezvous_options(2)], place,
        only_in(1, OTHER_VERSION="networkx"),
    )  # fmt: skip
    words = "process 1 has another plan, version or setting than process 0"
    assert all(code == 2 and words in said for code, said in other), other


@pytest.mark.parametrize("changed", ["plan", "setting", "version", "edges", "order"])
def test_what_processes_compare(changed, monkeypatch):
    plan, settings = plan_of(4), DeviceSettings()
    before = identity(plan, settings)
    assert identity(plan_of(4), settings) == before
    if changed == "plan":
        plan = plan.replace(seed=1)
    if changed == "setting":
        settings = DeviceSettings(devices=2)
    if changed == "version":
        monkeypatch.setattr(engine.importlib.metadata, "version", lambda name: "0.0.1")
    if changed == "edges":  # another NetworkX may make another graph of the same name and seed
        digest = plan.digest()
        object.__setattr__(plan.graph, "edges", plan.graph.edges[::-1])
        assert plan.digest() == digest
    if changed == "order":
        monkeypatch.setattr(engine, "line_of_agents", lambda graph: np.arange(4)[::-1])
    assert identity(plan, settings) != before


@pytest.mark.slow(reason="two real processes")
def test_a_directory_that_holds_a_run_already(place):
    """Process 0 alone looks; the other must not wait for it."""
    (place / "run").mkdir()
    (place / "run" / "plan.toml").touch()
    found = told([[*RUN, "--agents", 4, "--out", "run", *own] for own in rendezvous_options(2)], place)
    assert [code for code, _ in found] == [2, 2], found
    assert found[0][1].startswith("Error: run already holds a run"), found
    assert found[1][1].startswith("Error: process 0 stopped: run already holds a run"), found


@pytest.mark.slow(reason="two real processes")
def test_data_that_one_process_alone_cannot_use(place):
    """Agent 3 is the second one of process 1; it is named by its own number, in both."""
    found = told(
        [[*RUN, "--agents", 4, "--out", "run", *own] for own in rendezvous_options(2)],
        place,
        only_in(1, BAD_AGENT="3"),
    )
    assert [code for code, _ in found] == [2, 2], found
    assert "process 1 stopped: log_likelihood is nan at the start for agent 3, row 0" in found[0][1], found
    assert found[1][1].startswith("Error: log_likelihood is nan at the start for agent 3, row 0"), found


def test_the_curvature_of_all_agents_is_the_largest_that_a_process_finds():
    problem, plan = regression([4, 5, 6]), plan_of(3)
    parts = [largest_curvature(problem.of_agents(own), plan.seed, plan.dtype, np.array(own)) for own in ([0], [1, 2])]
    np.testing.assert_allclose(max(parts), largest_curvature(problem, plan.seed, plan.dtype), rtol=1e-5)
    mesh = MeshSimulation(problem, plan)
    mesh.team.gather = lambda own: np.stack([own, 1000 * own])
    np.testing.assert_allclose(mesh.largest_curvature(), 1000 * max(parts), rtol=1e-5)


@pytest.mark.slow(reason="two real processes, and the runtime waits for the lost one")
def test_a_disk_that_is_full_for_one_process_at_a_checkpoint(place):
    """It says so itself; the other, which waits inside the checkpoint, is told to look there."""
    found = told(
        [[*RUN[:2], "--steps", 3000, *RUN[4:], "--agents", 4, "--out", "run", "--checkpoint-seconds", 0, *own]
         for own in rendezvous_options(2)], place, only_in(1, FULL="1"),
    )  # fmt: skip
    assert [code for code, _ in found] == [1, 1], found
    assert "process 1 stopped early, see what it said" in found[0][1], found
    assert "consilience resume run" in found[0][1], found
    assert "cannot write to run" in found[1][1], found
    assert "free some space" in found[1][1], found


@pytest.mark.slow(reason="two real processes, one of which looks for ten seconds")
def test_a_directory_that_is_not_shared(place, tmp_path):
    """Two processes with the same relative path in different directories, as on hosts without a shared disk."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "problem.py").write_text(PROBLEM)
    found = told([[*RUN, "--agents", 4, "--out", "run", *own] for own in rendezvous_options(2)], [place, elsewhere])
    assert all(code == 2 and "process 1 does not see run" in said for code, said in found), found


@pytest.mark.slow(reason="two real processes that wait for others")
def test_a_coordinator_that_nobody_answers_for(place):
    options = ["--coordinator", f"127.0.0.1:{free_port()}", "--num-processes", 2, "--join-seconds", 2]
    (code, said), (first_code, first_said) = told(
        [[*RUN, "--agents", 4, "--out", "run", *options, "--process-id", 1],
         [*RUN, "--agents", 4, "--out", "run", *rendezvous_options(2, seconds=2)[0]]], place,
    )  # fmt: skip
    assert (code, first_code) == (2, 2)
    assert "did not answer within 2 s" in said
    assert "not all 2 processes came to" in first_said


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"coordinator": "localhost:1"}, "--num-processes, --process-id is missing"),
        ({"coordinator": "localhost:1", "num_processes": 2, "process_id": 2}, "numbered 0 to 1"),
        ({"coordinator": "localhost"}, "'coordinator'"),
    ],
)
def test_a_rendezvous_that_cannot_be(entries, words):
    with pytest.raises(MeshError, match=words):
        Rendezvous(**entries).require_complete()


def test_options_of_a_mesh_for_another_engine():
    with pytest.raises(InputError, match="are for --engine mesh, not for simulate"):
        engine_for("simulate", 2, None)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--join-seconds", 5], "are for --engine mesh"),
        (["--join-seconds", 5, "--engine", "mesh"], "--join-seconds is for several processes"),
    ],
)
def test_a_time_to_wait_for_nobody(options, words, place):
    ((code, said),) = told([[*RUN[:6], *options]], place)
    assert (code, words in said) == (2, True), said


@pytest.mark.slow(reason="real processes")
@pytest.mark.parametrize("joined_by", ["address", "Slurm"])
def test_step_sizes_are_not_chosen_by_several_processes(joined_by, place):
    command = ["run", "problem:one", "--agents", 4, "--steps", 50, "--auto", "--engine", "mesh", "--out", "run"]
    if joined_by == "address":
        found = told([[*command, *own] for own in rendezvous_options(2)], place)
    else:
        found = told([command] * 2, place, slurm(2))
    assert [code for code, _ in found] == [2, 2], found
    assert all("choosing step sizes looks at all agents' data" in said for _, said in found), found
    assert not (place / "run").exists()


def test_one_process_alone_may_choose_step_sizes(monkeypatch):
    refuse_suggesting("mesh")
    monkeypatch.setattr(joining, "_place", (1, 2))
    refuse_suggesting("simulate")
    with pytest.raises(MeshError, match="ask `consilience suggest` in one process"):
        refuse_suggesting("mesh")


def test_more_devices_than_a_running_jax_has():
    plan = plan_of(3)
    with pytest.raises(MeshError, match="xla_force_host_platform_device_count"):
        cs.sample(regression([4, 4, 4]), plan, engine=cs.Mesh(devices=jax.device_count() + 1))


def test_a_run_is_resumed_with_its_own_engine(tmp_path):
    plan = plan_of(3)
    run = cs.sample(regression([4, 4, 4]), plan, tmp_path / "run")
    (run.path / "summary.json").unlink()
    with pytest.raises(InputError, match="simulate: it cannot be resumed with mesh"):
        cs.resume(run.path, regression([4, 4, 4]), engine=cs.Mesh(devices=1))
