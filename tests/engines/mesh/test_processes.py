"""Several real processes over Gloo: the draws of `simulate`, one store, each its own data, and resuming."""

import time

import numpy as np
import pytest
import zarr

import consilience as cs
from consilience.engines.mesh.layout import line_of_agents
from consilience.engines.simulate import Simulation
from tests.engines.mesh.processes import PROBLEM, SECONDS, finished, rendezvous_options, require_finished, slurm, team

AGENTS = 7
STEPS = 60
RUN = ["run", "problem:one", "--agents", AGENTS, "--step-size", "1e-3", "--store-every", 3, "--json"]
MARK = 123.0


@pytest.fixture
def place(tmp_path):
    (tmp_path / "problem.py").write_text(PROBLEM)
    return tmp_path


def simulated(steps, graph="ring", sampler=None):
    """The same plan by `simulate`, in this process."""
    names = {}
    exec(PROBLEM, names)
    shards = [names["one"](AGENTS, agent).shards[0] for agent in range(AGENTS)]
    graph = cs.graphs.named(graph, AGENTS)
    sampler = sampler or cs.dula(1e-3, 0.9 * graph.proven_consensus_limit)
    plan = cs.Plan(graph=graph, sampler=sampler, num_steps=steps, store_every=3)
    engine = Simulation(cs.models.linear_regression(shards), plan)
    state, step, draws = engine.initial_state(), 0, []
    while step < steps:
        state, segment = engine.advance(state, step, min(engine.max_steps, steps - step))
        step = segment.last_step
        draws.append(segment.draws)
    return np.concatenate(draws).transpose(1, 2, 0, 3)


def on_mesh(options, steps=STEPS, graph="ring"):
    return [[*RUN, "--steps", steps, "--graph", graph, "--engine", "mesh", "--out", "run", *own] for own in options]


def draws_of(run):
    """`(chains, agents, draws, …)`, agents in their own order."""
    return cs.Run(run).draws["w"].sortby("agent").values


def require_equal(draws, expected):
    np.testing.assert_allclose(draws, expected, rtol=1e-4, atol=1e-5)


def wait_for_checkpoint(run):
    deadline = time.monotonic() + SECONDS
    while not [path for path in (run / "checkpoints").glob("*") if path.name.isdigit()]:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def mark_first_draw(run):
    """Change the first stored draw: a run that resumes from a checkpoint leaves it so."""
    array = zarr.open_array(run / "draws.zarr" / "posterior" / "w", mode="r+")
    array[:, :, 0] = MARK


def require_resumed(run, expected):
    """All draws are the expected ones but for the first, which was not sampled again."""
    draws = draws_of(run)
    require_equal(draws[:, :, 1:], expected[:, :, 1:])
    assert (draws[:, :, 0] == MARK).all()


@pytest.mark.slow(reason="a team of processes")
def test_two_processes_with_checkpoints_sample_what_simulate_does(place):
    """With a sampler whose state is a pytree, spread over the processes and written by both into one checkpoint."""
    numbers = ["--sampler", "sghmc", "--friction", 1.5, "--step-size", 0.01, "--consensus", 0.2]
    options = [[*numbers, *own, "--checkpoint-seconds", 0] for own in rendezvous_options(2)]
    with team(on_mesh(options), place) as made:
        require_finished(made, 2)
    expected = simulated(STEPS, sampler=cs.sghmc(0.01, 0.2, friction=1.5))
    require_equal(draws_of(place / "run"), expected)
    with pytest.raises(AssertionError):
        require_equal(draws_of(place / "run"), expected[:, ::-1])


@pytest.mark.slow(reason="three real processes")
def test_three_processes_of_a_slurm_job_sample_what_simulate_does_each_with_its_own_shards(place):
    count = 3
    environments = [
        {**environment, "LOADED": str(place / f"loaded-{number}")} for number, environment in enumerate(slurm(count))
    ]
    with team(on_mesh([["--devices", count]] * count), place, environments) as made:
        require_finished(made, count)
    run = cs.Run(place / "run")
    assert run.complete
    assert run.summary["engine"] == "mesh"
    expected = simulated(STEPS)
    require_equal(draws_of(run.path), expected)
    with pytest.raises(AssertionError):
        require_equal(draws_of(run.path), expected[:, ::-1])
    loaded = [set((place / f"loaded-{number}").read_text().split()) for number in range(count)]
    assert set.union(*loaded) == {str(agent) for agent in range(AGENTS)}
    assert sum(map(len, loaded)) == AGENTS


@pytest.mark.slow(reason="the runtime takes half a minute to notice a dead process")
def test_a_killed_process_stops_the_other_and_two_new_ones_resume(place):
    steps = 2000
    options = [[*own, "--checkpoint-seconds", 0] for own in rendezvous_options(2)]
    with team(on_mesh(options, steps), place) as made:
        wait_for_checkpoint(place / "run")
        made[1].kill()
        code, said = finished(made)[0]
    assert (code, "process 1 was lost" in said, "consilience resume run" in said) == (1, True, True), said
    assert not cs.Run(place / "run").complete
    kept = draws_of(place / "run")
    assert kept.shape[2] > 0
    expected = simulated(steps)
    require_equal(kept, expected[:, :, : kept.shape[2]])
    mark_first_draw(place / "run")
    with team([["resume", "run", "--json", *own] for own in rendezvous_options(2)], place) as made:
        require_finished(made, 2)
    require_resumed(place / "run", expected)


@pytest.mark.slow(reason="three starts of processes with several devices")
def test_a_polite_stop_of_one_process_stops_all_and_one_with_three_devices_resumes(place):
    """On a graph whose agents are stored in another order than their own."""
    steps, graph = 3000, "barbell"
    assert (line_of_agents(cs.graphs.named(graph, AGENTS)) != np.arange(AGENTS)).any()
    options = [[*own, "--checkpoint-seconds", 0] for own in rendezvous_options(2)]
    with team(on_mesh(options, steps, graph), place) as made:
        wait_for_checkpoint(place / "run")
        made[1].terminate()
        told = finished(made)
    assert [code for code, _ in told] == [130, 130], told
    assert cs.Run(place / "run").status["status"] == "interrupted"
    mark_first_draw(place / "run")
    with team([["resume", "run", "--devices", 3, "--json"]], place) as made:
        require_finished(made, 1)
    require_resumed(place / "run", simulated(steps, graph))


@pytest.mark.slow(reason="a real process with several devices")
def test_devices_are_made_before_anything_else_uses_jax(place):
    """Both the choice of step sizes and the problem do."""
    options = ["--steps", 40, "--auto", "--engine", "mesh", "--devices", 2, "--out", "run"]
    with team([["run", "problem:one", "--agents", 4, "--json", *options]], place) as made:
        require_finished(made, 1)
    assert cs.Run(place / "run").complete
