"""What needs eight devices; `test_engine.py` runs this file in a process whose CPU counts as eight.

Nearly all of its time goes into compiling, so engines are shared between tests where they can be.
"""

import dataclasses
import functools
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import consilience as cs
from consilience.engines import simulate
from consilience.engines.mesh import engine
from consilience.engines.mesh.costs import traffic_of
from consilience.engines.mesh.devices import DeviceSettings
from consilience.engines.mesh.engine import MeshSimulation
from consilience.engines.mesh.unison import mesh_stepper
from consilience.engines.program import Sizes
from consilience.engines.simulate import Simulation
from consilience.errors import MeshError
from consilience.models import classifier, mlp
from consilience.runs.checkpoints import Checkpoints
from tests.gaussian import regression
from tests.hierarchical import ragged, sites
from tests.samplers.last_word import LastWord
from tests.samplers.table import MADE

GRAPHS = {
    "ring of 8": cs.graphs.ring(8),
    "weighted ring of 13": cs.graphs.ring(13).with_weights(np.linspace(0.5, 1, 13)),
    "ring of 1,000": cs.graphs.ring(1000),
    "torus of 8": cs.graphs.torus(2, 4),
    "torus of 1,000": cs.graphs.torus(25, 40),
    "star of 8": cs.graphs.star(8),
    "weighted star of 13": cs.graphs.star(13).with_weights(np.linspace(0.5, 1, 12)),
    "star of 1,000": cs.graphs.star(1000),
    "random graph of 8": cs.graphs.erdos_renyi(8, seed=1),
    "random graph of 13": cs.graphs.erdos_renyi(13, seed=1),
    "random graph of 1,000": cs.graphs.random_geometric(1000, seed=1),
    "complete graph of 13": cs.graphs.complete(13),
}


@pytest.fixture(autouse=True)
def usable(monkeypatch):
    """The problems here are sound; to check that would compile three more programs for each engine."""
    for module in (engine, simulate):
        monkeypatch.setattr(module, "require_usable", lambda *arguments: None)


def setting(graph, features=2, **entries):
    """Unequal shards on a graph."""
    sizes = 4 + np.arange(graph.num_agents) % 3
    step_size = 0.02 / graph.num_agents
    sampler = cs.dula(step_size, 0.9 * graph.proven_consensus_limit)
    return regression(sizes, features), cs.Plan(graph=graph, sampler=sampler, **{"num_steps": 40, **entries})


@functools.cache
def mesh_of(name):
    return MeshSimulation(*setting(GRAPHS[name]))


@functools.cache
def simulated(name):
    return results_of(Simulation(*setting(GRAPHS[name])))


def results_of(engine, longest=10**9):
    """Draws in the agents' own order and consensus errors, sampled in segments of at most so many steps."""
    state, step, parts, errors = engine.initial_state(), 0, [], []
    while step < engine.plan.num_steps:
        given = state
        steps = min(longest, engine.max_steps, engine.plan.num_steps - step)
        state, segment = engine.advance(given, step, steps)
        assert jax.tree.leaves(given)[0].is_deleted() == isinstance(
            engine, MeshSimulation
        )  # the new state takes over the buffers
        step = segment.last_step
        parts.append(np.array(segment.draws))
        errors.append(segment.metrics["consensus_error"][-1])
    together = np.concatenate(parts)
    return (together[:, :, np.argsort(engine.agents)] if isinstance(engine, MeshSimulation) else together), errors[-1]


def require_equal(mesh, simulated, rtol=1e-4, atol=1e-5):
    np.testing.assert_allclose(mesh[0], simulated[0], rtol=rtol, atol=atol)
    np.testing.assert_allclose(mesh[1], simulated[1], rtol=rtol)


@pytest.mark.parametrize("name", GRAPHS)
def test_draws_and_consensus_errors_are_those_of_simulate(name):
    mesh = mesh_of(name)
    assert mesh.layout.num_devices == 8
    require_equal(results_of(mesh), simulated(name))


def test_a_message_from_the_wrong_neighbour_is_noticed():
    mesh = MeshSimulation(*setting(GRAPHS["ring of 8"]))
    first, second = mesh.exchange.rounds
    mesh.exchange = dataclasses.replace(mesh.exchange, rounds=(first, first))
    assert first != second
    with pytest.raises(AssertionError):
        require_equal(results_of(mesh), simulated("ring of 8"))


def test_minibatches_and_segments_of_any_length():
    problem, plan = setting(cs.graphs.ring(5), features=12, batch_size=3)
    mesh = MeshSimulation(problem, plan)
    assert mesh.axes == (1, 5, 1)
    require_equal(results_of(mesh, mesh.block_steps), results_of(Simulation(problem, plan)))


@pytest.mark.parametrize("batch_size", [None, 2])
def test_agents_with_private_parameters_of_different_lengths(batch_size):
    """Also with agents of several lengths on one device, and with places left over."""
    graph = cs.graphs.ring(11)
    plan = cs.Plan(graph=graph, sampler=cs.dula(0.001, 0.2), num_steps=20, num_chains=2, batch_size=batch_size)
    problem = ragged((2, 3, 2, 4, 1, 1, 3, 2, 2, 5, 4))
    mesh = MeshSimulation(problem, plan)
    assert mesh.layout.capacity == 2
    require_equal(results_of(mesh), results_of(Simulation(problem, plan)))
    assert traffic_of(mesh).permuted_bytes == sum(width for _, width in mesh.exchange.rounds) * 2 * 4 * 4


def test_private_parameters_are_not_spread_over_devices():
    problem = sites([3, 4])
    plan = cs.Plan(graph=cs.graphs.ring(2), sampler=cs.dula(0.001, 0.2), num_steps=20)
    with pytest.raises(MeshError, match=r"effect.*leave model_devices out"):
        MeshSimulation(problem, plan, DeviceSettings(model_devices=2))


def test_spare_devices_for_chains_with_data_of_their_own_in_double_precision():
    with jax.enable_x64(True):
        problem, plan = setting(cs.graphs.ring(4), num_chains=3, burn_in=5, store_every=4, dtype="float64")
        others = [regression(problem.shard_sizes, seed=seed).shards for seed in range(3)]
        own = dataclasses.replace(problem, shards=others[0], replicas=others)
        mesh = MeshSimulation(own, plan)
        assert mesh.axes == (2, 4, 1)
        require_equal(results_of(mesh), results_of(Simulation(own, plan)), rtol=1e-10, atol=1e-12)


def test_a_ring_is_two_permutations_and_nothing_is_gathered():
    mesh = mesh_of("ring of 1,000")
    assert [width for _, width in mesh.exchange.rounds] == [1, 1]
    mesh.compile()
    program = mesh._program.as_text()
    assert len(re.findall(r"= \S+ collective-permute(?:-start)?\(", program)) == 2
    assert "all-gather" not in program
    assert "all-gather" in _gathering(mesh)  # the words would be there


def test_the_check_for_finite_numbers_is_compiled_once():
    mesh = mesh_of("ring of 8")
    state = mesh.initial_state()
    assert all(mesh.is_finite(state) for _ in range(3))
    assert mesh._bad_positions_program._cache_size() == 1


def _gathering(mesh):
    spec = jax.sharding.PartitionSpec("agents")
    gather = jax.shard_map(
        lambda x: jax.lax.all_gather(x, "agents", tiled=True), mesh=mesh.mesh, in_specs=spec, out_specs=spec
    )
    return jax.jit(gather).lower(np.zeros((64, 3), np.float32)).compile().as_text()


@pytest.mark.parametrize("name", ["ring of 1,000", "random graph of 13", "model on two devices"])
def test_what_is_said_to_be_sent_is_what_the_compiled_program_sends(name):
    mesh = spread_model()[-1] if name.startswith("model") else mesh_of(name)
    sent, others = traffic_of(mesh), mesh.axes.model - 1
    program = mesh.lowered(mesh.held, Sizes(1, 1, 1, 2)).compile().as_text()
    assert _produced(program, "collective-permute") == sent.permuted_bytes > 0
    gathered, scattered = _produced(program, "all-gather"), _produced(program, "reduce-scatter")
    assert gathered * others // mesh.axes.model + scattered * others == sent.sliced_bytes
    assert (sent.sliced_bytes > 0) == (others > 0)


def _produced(program, operation):
    """Bytes that all operations of a kind give, of float32."""
    shapes = re.findall(rf"= f32\[([\d,]*)\]\S* {operation}\(", program)
    return 4 * sum(math.prod(map(int, shape.split(","))) for shape in shapes)


@functools.cache
def spread_model():
    rng = np.random.default_rng(0)
    shards = [(rng.normal(size=(rows, 4)).astype(np.float32), rng.integers(0, 3, rows)) for rows in (7, 9, 8, 6)]
    problem = classifier(mlp(4, [7], 3), shards)
    sampler = cs.dula(1e-3, 0.2)
    plan = cs.Plan(graph=cs.graphs.ring(4), sampler=sampler, num_steps=40, batch_size=5, batches="replacement")
    return problem, plan, MeshSimulation(problem, plan, DeviceSettings(model_devices=2))


def test_a_model_spread_over_two_devices():
    problem, plan, mesh = spread_model()
    assert mesh.axes == (1, 4, 2)
    assert mesh.parameters.size % 2  # a slice that has to be filled up
    state = mesh.initial_state()
    assert {shard.data.shape[-1] for shard in state.addressable_shards} == {mesh.model.slice_size}
    require_equal(results_of(mesh), results_of(Simulation(problem, plan)))


def test_the_program_holds_no_second_copy_of_the_state(monkeypatch):
    """A state of 8 MB on each device: what the program holds is accounted for, with nothing left for a copy."""
    size, agents = 2**18, 8
    problem = cs.Problem(
        log_likelihood=lambda w, rows: rows * (w**2).mean(),
        log_prior=lambda w: -0.5 * (w**2).sum(),
        init=lambda key: jnp.zeros(size),
        shards=[np.ones(1, np.float32)] * (8 * agents),
    )
    plan = cs.Plan(graph=cs.graphs.ring(8 * agents), sampler=cs.dula(1e-3, 0.2), num_steps=4, store_every=4)
    mesh = MeshSimulation(problem, plan)
    state, received = agents * size * 4, 2 * size * 4
    needed = {
        "state": state,
        "draws, and a slot for what is not stored": (mesh.sizes.slots + 1) * state,
        "gradients": state,
        "noise": mesh.sizes.prepared_steps * state,
        "the words that noise is made of": 2 * mesh.sizes.prepared_steps * state,
        "messages that arrive": received,
        "the table of all messages": state + received,
    }

    def held():
        memory = mesh.lowered(mesh.held).compile().memory_analysis()
        return (
            memory.argument_size_in_bytes
            + memory.output_size_in_bytes
            + memory.temp_size_in_bytes
            - memory.alias_size_in_bytes
        )

    most = sum(needed.values()) + state // 8
    assert held() <= most
    original = jax.jit
    monkeypatch.setattr(jax, "jit", lambda function, **_: original(function))  # as if the state were not donated
    assert held() > most


def test_the_first_position_that_is_not_finite():
    problem, plan = setting(cs.graphs.ring(13))
    plan = plan.replace(sampler=cs.dula(10.0, 0.2), num_steps=200)
    mesh, simulated = MeshSimulation(problem, plan), Simulation(problem, plan)
    found = [engine.find_diverged(engine.initial_state(), 0, 200) for engine in (mesh, simulated)]
    assert found[0] is not None
    assert found[0] == found[1]


@pytest.mark.parametrize("model_devices", [1, 2])
@pytest.mark.parametrize(
    "name",
    [
        *(name for name in MADE if name.endswith("constant")), "kinetic, three exchanges", "langevin, one exchange",
        "last word (tests only)",
    ],
)  # fmt: skip
def test_every_sampler_draws_the_same_and_its_state_comes_back_from_a_checkpoint(name, model_devices, tmp_path):
    """States and messages are pytrees of any structure: spread over devices, written, read into another layout."""
    sampler = MADE[name]() if name in MADE else LastWord()
    problem, plan = setting(cs.graphs.ring(4), features=5, num_chains=3)
    plan = plan.model_copy(update={"sampler": sampler})
    mesh = MeshSimulation(problem, plan, DeviceSettings(model_devices=model_devices))
    state, parts = mesh.initial_state(), []
    state, segment = mesh.advance(state, 0, mesh.block_steps)
    parts.append(np.array(segment.draws))
    checkpoints = Checkpoints(tmp_path / "checkpoints", mesh.form, mesh.team)
    checkpoints.save(segment.last_step, state, {})
    checkpoints.close()
    other = MeshSimulation(problem, plan, DeviceSettings(devices=4))
    found = Checkpoints(tmp_path / "checkpoints", other.form, other.team).latest()
    state, step = found.state, found.step
    while step < plan.num_steps:
        state, segment = other.advance(state, step, min(other.max_steps, plan.num_steps - step))
        step = segment.last_step
        parts.append(np.array(segment.draws))
    drawn = np.concatenate(parts)[:, :, np.argsort(mesh.agents)]
    np.testing.assert_allclose(drawn, results_of(Simulation(problem, plan))[0], rtol=1e-4, atol=1e-5)


def drawn_by(stepper, state=None, step=0):
    """All draws from a step on, agents in the order of their numbers."""
    state, parts = stepper.initial_state() if state is None else state, []
    while step < stepper.plan.num_steps:
        state, segment = stepper.advance(state, step, min(stepper.max_steps, stepper.plan.num_steps - step))
        step = segment.last_step
        parts.append(np.array(segment.draws))
    return np.concatenate(parts)[:, :, np.argsort(stepper.storage.agents)]


@pytest.mark.parametrize(
    ("make", "entries"),
    [
        (lambda: sites([4, 6, 5, 3, 7]), {}),
        (lambda: ragged((2, 3, 2, 3, 2)), {}),
        (lambda: sites([4, 6, 5, 3, 7]), {"batch_size": 3, "dtype": "float64"}),
    ],
    ids=["sites", "ragged", "minibatches"],
)
def test_a_warm_up_finds_the_same_and_comes_back_from_a_checkpoint(make, entries, tmp_path):
    """Five agents on three devices, in another order than their own, with private parameters; then on two devices."""
    with jax.enable_x64(True):
        problem = make()
        graph = cs.graphs.barbell(5)
        sampler = cs.kinetic(noise="common")
        plan = cs.Plan(graph=graph, sampler=sampler, num_draws=10, num_chains=3, num_warmup=600, **entries)
        expected = drawn_by(simulate.simulation(problem, plan))
        mesh = mesh_stepper(problem, plan, DeviceSettings(devices=3))
        state, step = mesh.initial_state(), 0
        for _ in range(6):  # into the second window
            state, segment = mesh.advance(state, step, 32)
            step = segment.last_step
        assert not state.stage.is_done
        checkpoints = Checkpoints(tmp_path / "checkpoints", mesh.form, mesh.team)
        checkpoints.save(step, state, {})
        checkpoints.close()
        np.testing.assert_allclose(drawn_by(mesh, state, step), expected, atol=1e-8)
        other = mesh_stepper(problem, plan, DeviceSettings(devices=2))
        found = Checkpoints(tmp_path / "checkpoints", other.form, other.team).latest()
        np.testing.assert_allclose(drawn_by(other, found.state, found.step), expected, atol=1e-8)


def test_a_warm_up_needs_whole_parameters_on_a_device():
    with jax.enable_x64(True):
        plan = cs.Plan(graph=cs.graphs.ring(4), sampler=cs.kinetic(), num_draws=10)
        with pytest.raises(MeshError, match="all parameters of an agent on one device"):
            mesh_stepper(regression([4, 5, 6, 4]), plan, DeviceSettings(model_devices=2))
