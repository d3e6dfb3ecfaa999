"""Mistakes with devices and processes end with one line that says what to do, in every process."""

import jax
import pytest

import consilience as cs
from consilience.cli.meshes import settings_for
from consilience.errors import InputError, MeshError
from consilience.meetings import Meeting
from tests.gaussian import regression
from tests.teamwork.processes import PROBLEM, finished, free_port, meeting, team

RUN = ["run", "problem:one", "--steps", 50, "--step-size", "1e-3", "--engine", "mesh", "--json"]


@pytest.fixture
def place(tmp_path):
    (tmp_path / "problem.py").write_text(PROBLEM)
    return tmp_path


def told(commands, place):
    with team(commands, place) as made:
        return finished(made)


def test_more_processes_than_agents_and_different_plans(place):
    """Both need processes that have met; to save time the two mistakes take turns with the same pair."""
    many = told([[*RUN, "--agents", 1, "--out", "many", *own] for own in meeting(2)], place)
    assert all(code == 2 and "2 processes cannot share 1 agents" in said for code, said in many), many
    other = told(
        [[*RUN, "--agents", 4, "--out", "run", "--seed", seed, *own] for seed, own in enumerate(meeting(2))], place
    )
    assert all(code == 2 and "another plan, version or setting than process 0" in said for code, said in other), other


def test_a_directory_that_is_not_shared(place, tmp_path):
    """Two processes with the same relative path in different directories, as on hosts without a shared disk."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "problem.py").write_text(PROBLEM)
    found = told([[*RUN, "--agents", 4, "--out", "run", *own] for own in meeting(2)], [place, elsewhere])
    assert all(code == 2 and "process 1 does not see run" in said for code, said in found), found


def test_a_coordinator_that_nobody_answers_for(place):
    options = ["--coordinator", f"127.0.0.1:{free_port()}", "--num-processes", 2, "--join-seconds", 2]
    (code, said), (first_code, first_said) = told(
        [[*RUN, "--agents", 4, "--out", "run", *options, "--process-id", 1],
         [*RUN, "--agents", 4, "--out", "run", *meeting(2, seconds=2)[0]]], place,
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
def test_a_meeting_that_cannot_be(entries, words):
    with pytest.raises(MeshError, match=words):
        Meeting(**entries).require_complete()


def test_options_of_a_mesh_for_another_engine():
    with pytest.raises(InputError, match="are for --engine mesh, not for simulate"):
        settings_for("simulate", 2, None)


def test_more_devices_than_a_running_jax_has():
    plan = cs.Plan(graph=cs.graphs.ring(3), sampler=cs.dula(1e-3, 0.2), num_steps=9)
    with pytest.raises(MeshError, match="xla_force_host_platform_device_count"):
        cs.sample(regression([4, 4, 4]), plan, engine=cs.MeshSettings(devices=jax.device_count() + 1))


def test_a_run_of_another_engine_takes_no_devices(tmp_path):
    plan = cs.Plan(graph=cs.graphs.ring(3), sampler=cs.dula(1e-3, 0.2), num_steps=9)
    run = cs.sample(regression([4, 4, 4]), plan, tmp_path / "run")
    (run.path / "summary.json").unlink()
    with pytest.raises(InputError, match="takes no devices"):
        cs.resume(run.path, regression([4, 4, 4]), engine=cs.MeshSettings(devices=1))
