"""Several real processes over Gloo: the draws of `simulate`, one store, each its own data, and going on."""

import os
import time

import numpy as np
import pytest

import consilience as cs
from consilience.engines import Simulation
from tests.teamwork.processes import PROBLEM, SECONDS, finished, meeting, team

AGENTS = 6
STEPS = 100
RUN = ["run", "problem:one", "--agents", AGENTS, "--step-size", "1e-3", "--store-every", 3, "--json"]


@pytest.fixture
def place(tmp_path):
    (tmp_path / "problem.py").write_text(PROBLEM)
    return tmp_path


def simulated(steps):
    """The same plan by `simulate`, in this process."""
    names = {}
    exec(PROBLEM, names)
    shards = [names["one"](AGENTS, agent).shards[0] for agent in range(AGENTS)]
    graph = cs.graphs.ring(AGENTS)
    sampler = cs.dula(1e-3, 0.9 * graph.proven_consensus_limit)
    plan = cs.Plan(graph=graph, sampler=sampler, num_steps=steps, store_every=3)
    engine = Simulation(cs.models.linear_regression(shards), plan)
    state, step, draws = engine.initial_state(), 0, []
    while step < steps:
        state, segment = engine.advance(state, step, min(engine.max_steps, steps - step))
        step = segment.last_step
        draws.append(segment.draws)
    return np.concatenate(draws).transpose(1, 2, 0, 3)


def on_mesh(options, steps=STEPS, out="run"):
    return [[*RUN, "--steps", steps, "--engine", "mesh", "--out", out, *own] for own in options]


def require_equal(draws, expected):
    np.testing.assert_allclose(draws, expected, rtol=1e-4, atol=1e-5)


def wait_for_checkpoint(run):
    deadline = time.monotonic() + SECONDS
    while not [path for path in (run / "checkpoints").glob("*") if path.name.isdigit()]:
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("count", [2, 4])
def test_processes_sample_what_simulate_does_each_with_its_own_shards(count, place):
    environments = [{**os.environ, "LOADED": str(place / f"loaded-{number}")} for number in range(count)]
    with team(on_mesh(meeting(count)), place, environments) as made:
        assert finished(made) == [(0, "")] * count
    run = cs.Run(place / "run")
    assert run.complete
    assert run.summary["engine"] == "mesh"
    expected = simulated(STEPS)
    require_equal(run.draws["w"].values, expected)
    with pytest.raises(AssertionError):
        require_equal(run.draws["w"].values, expected[:, ::-1])
    loaded = [set((place / f"loaded-{number}").read_text().split()) for number in range(count)]
    assert set.union(*loaded) == {str(agent) for agent in range(AGENTS)}
    assert sum(map(len, loaded)) == AGENTS


def test_a_killed_process_stops_the_other_and_two_new_ones_go_on(place):
    steps = 2000
    options = [[*own, "--checkpoint-seconds", 0] for own in meeting(2)]
    with team(on_mesh(options, steps), place) as made:
        wait_for_checkpoint(place / "run")
        made[1].kill()
        code, said = finished(made)[0]
    assert (code, "process 1 was lost" in said, "consilience resume run" in said) == (1, True, True), said
    stopped = cs.Run(place / "run")
    assert not stopped.complete
    kept = stopped.draws["w"].values
    assert kept.shape[2] > 0
    expected = simulated(steps)
    require_equal(kept, expected[:, :, : kept.shape[2]])
    with team([["resume", "run", "--json", *own] for own in meeting(2)], place) as made:
        assert finished(made) == [(0, "")] * 2
    require_equal(cs.Run(place / "run").draws["w"].values, expected)


def test_a_polite_stop_of_one_process_stops_all_and_one_with_three_devices_goes_on(place):
    steps = 3000
    options = [[*own, "--checkpoint-seconds", 0] for own in meeting(2)]
    with team(on_mesh(options, steps), place) as made:
        wait_for_checkpoint(place / "run")
        made[1].terminate()
        told = finished(made)
    assert [code for code, _ in told] == [130, 130], told
    assert cs.Run(place / "run").status["status"] == "interrupted"
    with team([["resume", "run", "--devices", 3, "--json"]], place) as made:
        assert finished(made) == [(0, "")]
    require_equal(cs.Run(place / "run").draws["w"].values, simulated(steps))
