"""Samplers in unison on four devices; `test_unison.py` runs this file in a process whose CPU counts as four.

Seven agents on four devices: a place is left over. Nearly all of the time goes into compiling, so steppers are
shared.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as Spec

import consilience as cs
from consilience.engines.mesh.devices import DeviceSettings
from consilience.engines.mesh.unison import mesh_stepper, vary
from consilience.engines.simulate import simulation
from consilience.kernel.parameters import potential
from consilience.runs.checkpoints import Checkpoints
from tests.gaussian import regression
from tests.hierarchical import quadratics, ragged, sites
from tests.statistical import rejects_moments

AGENTS, WARMUP, MOVES = 7, 20, 12
SIZES = [4, 6, 5, 3, 7, 4, 5]
CASES = {
    "nuts": (lambda: regression(SIZES, 3), cs.nuts()),
    "hmc, private parameters": (lambda: sites(SIZES), cs.hmc()),
    "hmc, private parameters of different lengths": (lambda: ragged((2, 3, 2, 3, 2)), cs.hmc()),
}


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


@functools.cache
def problem_of(name):
    return CASES[name][0]()


def plan_of(name):
    graph = cs.graphs.barbell(problem_of(name).num_agents)  # whose agents are stored in another order than their own
    return cs.Plan(graph=graph, sampler=CASES[name][1], num_chains=2, num_warmup=WARMUP, num_draws=50, seed=3)


@functools.cache
def on_mesh(name):
    return mesh_stepper(problem_of(name), plan_of(name))


def with_step_size(state, size):
    """The state with the same step size everywhere, as if the warm-up had found it."""
    now = state.adaptation
    return state._replace(adaptation=now._replace(step_size=jax.device_put(np.float64(size), now.step_size.sharding)))


def first_draws(stepper):
    """Draws by variable at a fixed step size, agents in their own order, and the grid."""
    state, _ = stepper.advance(stepper.initial_state(), 0, 1)
    state, segment = stepper.advance(with_step_size(state, 0.1), WARMUP, MOVES)
    order, private = np.argsort(stepper.storage.agents), stepper.parameters.private
    found = stepper.by_variable(segment.draws)
    draws = {name: values[:, order] if name in private else values for name, values in found.items()}
    return draws, [int(np.asarray(one)) for one in state.grid], segment.metrics


@pytest.mark.parametrize("name", CASES)
def test_first_draws_are_those_of_simulate(name):
    mesh, alone = first_draws(on_mesh(name)), first_draws(simulation(problem_of(name), plan_of(name)))
    assert mesh[1] == alone[1]
    for variable, draws in alone[0].items():
        np.testing.assert_allclose(mesh[0][variable], draws, rtol=0, atol=1e-6)
        assert np.nanstd(draws) > 0.01
    for fact in ("leapfrogs", "evaluations"):
        np.testing.assert_array_equal(mesh[2][fact], alone[2][fact])


def evaluated(stepper, position, marked):
    """Log-density and gradient at a position of the shared parameters, as NUTS asks for it, and the grid."""
    place, (data, agents) = stepper.place, stepper._held

    def program(data, agents, position):
        network = stepper._network(data, agents, lambda words: jax.lax.psum(words, "agents"), marked)
        none = jnp.zeros((agents.numbers.shape[0], 0))
        grid, _ = network.measure(position[None], none[None])
        found = network.evaluate(grid, position, none, lambda slopes: slopes[:, :0])
        return found.log_density, found.gradient, grid

    specs = jax.tree.map(lambda _: Spec("agents"), (data, agents))
    spread = jax.shard_map(
        program, mesh=place.mesh, in_specs=(*specs, Spec()), out_specs=Spec(), check_vma=True
    )  # that it is made proves that the results are the same on all devices
    return jax.tree.map(np.asarray, jax.jit(spread)(data, agents, position))


def pooled(problem, stepper, position):
    """The same from every agent's own potential, one after the other."""
    own = stepper.parameters

    def total(w):
        shards = [jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), shard) for shard in problem.shards]
        return -sum(potential(problem, own, w, shard, None, 1.0) for shard in shards)

    return jax.tree.map(np.asarray, jax.value_and_grad(total)(position))


def test_value_and_gradient_are_the_pooled_ones():
    """And without the mark, gradients are four times too large on all devices alike: this is what would notice."""
    stepper, position = on_mesh("nuts"), jnp.array([0.3, -0.4, 0.2])
    assert dict(stepper.place.mesh.shape) == {"chains": 1, "agents": 4, "model": 1}
    assert not stepper.place.is_agent.all()
    value, gradient, grid = evaluated(stepper, position, vary)
    expected = pooled(problem_of("nuts"), stepper, position)
    rounding = 1e-13 * AGENTS
    np.testing.assert_allclose(value, expected[0], rtol=rounding, atol=AGENTS * 2.0 ** -int(grid.energy))
    np.testing.assert_allclose(gradient, expected[1], rtol=rounding, atol=AGENTS * 2.0 ** -int(grid.gradient))
    even = mesh_stepper(regression(SIZES[:4], 3), plan_of("nuts").replace(graph=cs.graphs.ring(4)))
    right, wrong = (evaluated(even, position, mark)[1] for mark in (vary, lambda values: values))
    np.testing.assert_allclose(wrong, 4 * right, rtol=1e-6)


@pytest.mark.parametrize("name", ["nuts", "hmc, private parameters"])
def test_a_run_resumes_to_the_bit_and_its_checkpoint_fits_other_devices(name, tmp_path):
    stepper = on_mesh(name)
    state, _ = stepper.advance(stepper.initial_state(), 0, WARMUP // 2)
    checkpoints = Checkpoints(tmp_path / "checkpoints", stepper.form, stepper.team)
    checkpoints.save(WARMUP // 2, state, {})
    checkpoints.close()
    _, whole = stepper.advance(state, WARMUP // 2, WARMUP)
    found = Checkpoints(tmp_path / "checkpoints", stepper.form, stepper.team).latest()
    _, resumed = stepper.advance(found.state, found.step, WARMUP)
    np.testing.assert_array_equal(resumed.draws, whole.draws)
    other = mesh_stepper(problem_of(name), plan_of(name), DeviceSettings(devices=2)).form
    note = found.note
    again = Checkpoints(tmp_path / "checkpoints", other, stepper.team).latest()
    assert other.note(again.state)["digest"] == note["digest"]
    assert other.note(again.state)["starts"] != note["starts"]


def test_a_run_on_a_mesh_has_the_law_of_the_posterior(tmp_path):
    """Means and variances of the common mean and of all effects, false alarms at 1e-6."""
    problem = problem_of("hmc, private parameters")
    plan = plan_of("hmc, private parameters").replace(num_warmup=200, num_draws=1600)
    run = cs.sample(problem, plan, engine=cs.Mesh(devices=4), out=tmp_path / "run")
    draws = run.draws.sortby("agent")
    assert draws["mean"].dims == ("chain", "draw")
    assert draws["effect"].dims == ("chain", "agent", "draw")
    found = np.concatenate([draws["mean"].values[:, None], draws["effect"].values], 1).swapaxes(1, 2)
    assert not rejects_moments(found, *law(problem))
    assert rejects_moments(found, *law(problem, without=4)), "the control: a sum that forgets an agent's rows"
    scales = run.summary["adaptation"]["private_scales"]
    own = [scales[str(agent)][0] for agent in range(AGENTS)]
    np.testing.assert_allclose(own, np.sqrt(law(problem)[1][1:]), rtol=0.5)  # from a window of 2 × 50 draws


def law(problem, without=None):
    """Means and variances of the common mean and of all effects."""
    hessians, linear = quadratics(problem)
    if without is not None:
        hessians[without], linear[without] = np.diag(np.diag(hessians[without]) - hessians[without, 0, 1]), 0
    precision, total = np.zeros((AGENTS + 1, AGENTS + 1)), np.zeros(AGENTS + 1)
    for agent in range(AGENTS):
        places = np.ix_([0, agent + 1], [0, agent + 1])
        precision[places] += hessians[agent]
        total[[0, agent + 1]] += linear[agent]
    covariance = np.linalg.inv(precision)
    return covariance @ total, np.diag(covariance)
