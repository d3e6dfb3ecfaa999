"""What needs eight devices; `test_engine.py` runs this file in a process whose CPU counts as eight."""

import dataclasses
import re

import jax
import numpy as np
import pytest

import consilience as cs
from consilience.engines import Mesh, MeshSettings, Simulation
from consilience.models import classifier, mlp
from tests.gaussian import regression

GRAPHS = {
    "ring of 8": cs.graphs.ring(8),
    "ring of 13": cs.graphs.ring(13),
    "ring of 1,000": cs.graphs.ring(1000),
    "torus of 8": cs.graphs.torus(2, 4),
    "torus of 1,000": cs.graphs.torus(25, 40),
    "star of 8": cs.graphs.star(8),
    "star of 13": cs.graphs.star(13),
    "star of 1,000": cs.graphs.star(1000),
    "random graph of 8": cs.graphs.erdos_renyi(8, seed=1),
    "random graph of 13": cs.graphs.erdos_renyi(13, seed=1),
    "random graph of 1,000": cs.graphs.random_geometric(1000, seed=1),
    "weighted ring of 13": cs.graphs.ring(13).with_weights(np.linspace(0.5, 1, 13)),
    "weighted star of 13": cs.graphs.star(13).with_weights(np.linspace(0.5, 1, 12)),
    "complete graph of 13": cs.graphs.complete(13),
}


def setting(graph, features=2, **entries):
    """Unequal shards on a graph."""
    sizes = 4 + np.arange(graph.num_agents) % 3
    step_size = 0.02 / graph.num_agents
    sampler = cs.dula(step_size, 0.9 * graph.proven_consensus_limit)
    return regression(sizes, features), cs.Plan(graph=graph, sampler=sampler, **{"num_steps": 40, **entries})


def draws_of(engine, plan, longest=10**9):
    """Draws in the agents' own order, sampled in segments of at most so many steps."""
    state, step, parts = engine.initial_state(), 0, []
    while step < plan.num_steps:
        state, segment = engine.advance(state, step, min(longest, engine.max_steps, plan.num_steps - step))
        step = segment.last_step
        parts.append(np.array(segment.draws))
    together = np.concatenate(parts)
    return together[:, :, np.argsort(engine.agents)] if isinstance(engine, Mesh) else together


def require_equal(mesh, simulated):
    np.testing.assert_allclose(mesh, simulated, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", GRAPHS)
def test_the_draws_are_those_of_simulate(name):
    problem, plan = setting(GRAPHS[name])
    mesh = Mesh(problem, plan)
    assert mesh.layout.num_devices == 8
    require_equal(draws_of(mesh, plan), draws_of(Simulation(problem, plan), plan))


def test_a_message_from_the_wrong_neighbour_is_noticed():
    problem, plan = setting(GRAPHS["ring of 8"])
    mesh = Mesh(problem, plan)
    first, second = mesh.exchange.rounds
    mesh.exchange = dataclasses.replace(mesh.exchange, rounds=(first, first))
    assert first != second
    with pytest.raises(AssertionError):
        require_equal(draws_of(mesh, plan), draws_of(Simulation(problem, plan), plan))


@pytest.mark.parametrize("entries", [{"batch_size": 3}, {"num_chains": 3, "burn_in": 5, "store_every": 4}])
def test_minibatches_spare_devices_for_chains_and_segments_of_any_length(entries):
    problem, plan = setting(cs.graphs.ring(5), features=12, **entries)
    mesh = Mesh(problem, plan)
    assert mesh.axes.agents * mesh.axes.chains == (8 if "num_chains" in entries else 5)
    require_equal(draws_of(mesh, plan, mesh.block_steps), draws_of(Simulation(problem, plan), plan))


def test_chains_with_data_of_their_own():
    problem, plan = setting(cs.graphs.ring(4), num_chains=3)
    others = [regression(problem.shard_sizes, seed=seed).shards for seed in range(3)]
    own = dataclasses.replace(problem, shards=others[0], replicas=others)
    mesh = Mesh(own, plan)
    assert mesh.axes.chains == 2
    require_equal(draws_of(mesh, plan), draws_of(Simulation(own, plan), plan))


def test_double_precision():
    with jax.enable_x64(True):
        problem, plan = setting(cs.graphs.ring(13), dtype="float64")
        mesh, simulated = (draws_of(engine(problem, plan), plan) for engine in (Mesh, Simulation))
        np.testing.assert_allclose(mesh, simulated, rtol=1e-10, atol=1e-12)


def test_the_consensus_error_is_that_of_simulate_whatever_repeats_on_left_over_places():
    problem, plan = setting(cs.graphs.ring(13))
    mesh, simulated = Mesh(problem, plan), Simulation(problem, plan)
    errors = [engine.advance(engine.initial_state(), 0, 40)[1].consensus_error[-1] for engine in (mesh, simulated)]
    np.testing.assert_allclose(*errors, rtol=1e-4)


def test_a_ring_is_two_permutations_and_nothing_is_gathered():
    problem, plan = setting(GRAPHS["ring of 1,000"])
    mesh = Mesh(problem, plan)
    assert [width for _, width in mesh.exchange.rounds] == [1, 1]
    program = mesh.lowered(mesh.held).compile().as_text()
    assert len(re.findall(r"= \S+ collective-permute(?:-start)?\(", program)) == 2
    assert "all-gather" not in program
    assert "all-gather" in _gathering(mesh)  # the words would be there


def _gathering(mesh):
    spec = jax.sharding.PartitionSpec("agents")
    gather = jax.shard_map(
        lambda x: jax.lax.all_gather(x, "agents", tiled=True), mesh=mesh.mesh, in_specs=spec, out_specs=spec
    )
    return jax.jit(gather).lower(np.zeros((64, 3), np.float32)).compile().as_text()


def test_a_model_spread_over_two_devices():
    rng = np.random.default_rng(0)
    shards = [(rng.normal(size=(rows, 4)).astype(np.float32), rng.integers(0, 3, rows)) for rows in (7, 9, 8, 6)]
    problem = classifier(mlp(4, [7], 3), shards)
    plan = cs.Plan(graph=cs.graphs.ring(4), sampler=cs.dula(1e-3, 0.2), num_steps=40, batch_size=5)
    mesh = Mesh(problem, plan, MeshSettings(model_devices=2))
    assert mesh.axes == (1, 4, 2)
    assert mesh.parameters.size % 2  # a slice that has to be filled up
    state = mesh.initial_state()
    assert {shard.data.shape[-1] for shard in state.addressable_shards} == {mesh.model.slice_size}
    require_equal(draws_of(mesh, plan), draws_of(Simulation(problem, plan), plan))


def test_the_program_takes_over_the_buffers_of_the_state():
    problem, plan = setting(cs.graphs.ring(16), features=2000, num_steps=4)
    mesh = Mesh(problem, plan)
    state = mesh.initial_state()
    memory = mesh.lowered(mesh.held).compile().memory_analysis()
    own_bytes = state.addressable_shards[0].data.nbytes
    assert memory.alias_size_in_bytes >= own_bytes
    advanced, _ = mesh.advance(state, 0, 4)
    assert state.is_deleted()
    assert not advanced.is_deleted()


def test_the_first_position_that_is_not_finite():
    problem, plan = setting(cs.graphs.ring(13), num_steps=4000)
    plan = plan.replace(sampler=cs.dula(10.0, 0.2), num_steps=200)
    mesh, simulated = Mesh(problem, plan), Simulation(problem, plan)
    found = [engine.find_non_finite(engine.initial_state(), 0, 200) for engine in (mesh, simulated)]
    assert found[0] is not None
    assert found[0] == found[1]
