"""A corrected sampler that warms up: right at every agent with nothing said, resumable anywhere, the same law."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import consilience as cs
from consilience.engines.simulate import simulation
from consilience.errors import DivergedError, PlanError
from consilience.theory import GaussianNetwork
from tests.gaussian import regression
from tests.hierarchical import quadratics, sites
from tests.statistical import rejects_moments

OPTIMISED = True


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def sampled(stepper, state=None, step=0, longest=10**6):
    """All draws by variable, and the last state; segments of at most `longest` steps."""
    state, draws = stepper.initial_state() if state is None else state, []
    while step < stepper.plan.num_steps:
        state, segment = stepper.advance(state, step, min(longest, stepper.max_steps, stepper.plan.num_steps - step))
        step = segment.last_step
        draws.append(segment.draws)
    return stepper.by_variable(np.concatenate(draws)), state


@pytest.fixture(scope="module")
def unequal():
    """Silos that differ in size and in their data."""
    return regression([3, 20, 8, 40], num_features=3, noise_variance=0.5)


@pytest.mark.parametrize(
    "kind", ["kinetic", pytest.param("langevin", marks=pytest.mark.slow(reason="tens of thousands of steps"))]
)
def test_every_agent_has_the_pooled_posterior(kind, unequal):
    """Means and variances of every parameter at every agent; false-alarm rate 1e-6 (and 2 % bias is not seen)."""
    graph = cs.graphs.path(4)
    draws = 4000 if kind == "kinetic" else 2500
    plan = cs.Plan(graph=graph, sampler=getattr(cs, kind)(), num_draws=draws)
    found, state = sampled(simulation(unequal, plan))
    posterior = GaussianNetwork.of(unequal, graph).posterior
    (values,) = found.values()  # chains, agents, draws, parameters
    variance = np.diag(posterior.covariance)
    if kind == "langevin":  # whose step is known to be too wide by about half of α Λ
        variance = variance * (1 + 0.5 * float(state.tuning.step_size))
    for agent in range(4):
        assert not rejects_moments(values[:, agent], posterior.mean, variance)
    assert rejects_moments(values[:, 0], posterior.mean, 1.15 * variance)  # the control
    assert rejects_moments(values[:, 0], posterior.mean + 0.1 * np.sqrt(variance), variance)


@pytest.mark.slow(reason="one more program, ten thousand steps")
def test_private_parameters_are_whitened_with_the_shared_ones():
    problem = sites((4, 9, 6))
    plan = cs.Plan(graph=cs.graphs.path(3), sampler=cs.kinetic(), num_draws=2500, seed=2)
    found, _ = sampled(simulation(problem, plan))
    hessians, linear = quadratics(problem)
    joint, push = np.zeros((4, 4)), np.zeros(4)
    for agent, (hessian, own) in enumerate(zip(hessians, linear, strict=True)):
        both = [0, 1 + agent]
        joint[np.ix_(both, both)] += hessian
        push[both] += own
    covariance = np.linalg.inv(joint)
    mean = covariance @ push
    for agent in range(3):
        both = [0, 1 + agent]
        values = np.stack([found["mean"][:, agent], found["effect"][:, agent]], -1)
        assert not rejects_moments(values, mean[both], np.diag(covariance)[both])
    assert rejects_moments(values, mean[both], 1.2 * np.diag(covariance)[both])


def test_a_run_resumes_from_any_segment(unequal):
    """In a window, between windows and while it samples, with segments of another length."""
    plan = cs.Plan(graph=cs.graphs.path(4), sampler=cs.kinetic(), num_draws=30, num_chains=2, num_warmup=700)
    stepper = simulation(unequal, plan)
    whole, _ = sampled(stepper)
    state, step, parts = stepper.initial_state(), 0, []
    for number in range(1000):
        if number in (0, 1, 4, 9, 14):  # before the start, in windows, after the last
            arrays, note = stepper.form.content(state), stepper.form.note(state)
            state = simulation(unequal, plan).form.restored(arrays, note)
        state, segment = stepper.advance(state, step, min(64, plan.num_steps - step))
        step = segment.last_step
        parts.append(segment.draws)
        if step == plan.num_steps:
            break
    again = stepper.by_variable(np.concatenate(parts))
    for name, values in whole.items():
        np.testing.assert_array_equal(again[name], values)


@pytest.mark.slow(reason="two more programs, many windows")
def test_a_diverging_window_is_repeated_with_half_the_step(unequal):
    plan = cs.Plan(graph=cs.graphs.path(4), sampler=cs.kinetic(3.0), num_draws=10, num_chains=2)
    with pytest.raises(DivergedError, match="step size halved 6 times"):
        sampled(simulation(unequal, plan.replace(num_warmup=20_000, sampler=cs.kinetic(300.0))))
    _, state = sampled(simulation(unequal, plan))
    assert state.stage.records[0, 1] < 3.0
    assert state.stage.records[0, 1] == 3.0 / 2 ** np.round(np.log2(3.0 / state.stage.records[0, 1]))


@pytest.mark.slow(reason="one more program, Hessian-vector products")
def test_large_models_are_scaled_parameter_by_parameter():
    """303 parameters of very different scales: no Hessian is made."""
    scales = 10 ** np.linspace(-1, 1, 303)
    problem = cs.Problem(
        log_likelihood=lambda w, x: -0.5 * (((x - w) / scales) ** 2).sum(-1),
        log_prior=lambda w: -0.5 * ((w / scales) ** 2).sum(),
        init=lambda key: jnp.zeros(303),
        shards=list(np.random.default_rng(0).normal(size=(3, 2, 303)) * scales),
    )
    plan = cs.Plan(graph=cs.graphs.path(3), sampler=cs.kinetic(), num_draws=200, num_chains=4)
    found, state = sampled(simulation(problem, plan))
    (values,) = found.values()
    ratio = values.std((0, 2)) / (scales / np.sqrt(7))
    assert ratio.min() > 0.8
    assert ratio.max() < 1.25
    assert 0.5 < np.median(state.tuning.whitening.scale / (scales / np.sqrt(7))) < 2


def test_coordinates_by_hand_are_kept_and_the_rest_is_found(unequal):
    """Those of the posterior, through a plan file; means and variances at every agent, false-alarm rate 1e-6."""
    graph = cs.graphs.path(4)
    posterior = GaussianNetwork.of(unequal, graph).posterior
    root = np.linalg.cholesky(posterior.covariance)
    by_hand = {"centre": posterior.mean.tolist(), "scale": root.tolist()}
    plan = cs.Plan(graph=graph, sampler=cs.kinetic(whitening=by_hand), num_draws=1500)
    plan = cs.Plan.from_toml(plan.to_toml())
    assert plan.sampler.tunes_itself
    stepper = simulation(unequal, plan)
    found, state = sampled(stepper)
    np.testing.assert_array_equal(state.tuning.whitening.mean, posterior.mean)
    np.testing.assert_array_equal(state.tuning.whitening.root, root)
    np.testing.assert_array_equal(stepper.found(state)["root"], root)
    assert 0.4 < float(state.tuning.step_size) < 0.5  # `Λ = 1`
    (values,) = found.values()
    variance = np.diag(posterior.covariance)
    for agent in range(4):
        assert not rejects_moments(values[:, agent], posterior.mean, variance)
    assert rejects_moments(values[:, 0], posterior.mean, 1.2 * variance)  # the control


@pytest.mark.parametrize(("given", "why"), [
    ({"centre": [0.0, 0.0], "scale": [1.0, 1.0]}, "are of 2 numbers, and the model has 3"),
    ({"centre": [0.0] * 3, "scale": [1.0, 1.0]}, "the centre has 3 numbers: the scale needs as many"),
    ({"centre": [0.0] * 3, "scale": [[1.0, 1.0]] * 3}, "as many rows and columns"),
    ({"centre": [0.0] * 3, "scale": [1.0, 0.0, 1.0]}, "deviations above 0"),
    ({"centre": [0.0] * 3, "scale": [[1.0, 1.0, 1.0]] * 3}, "singular"),
    ({"centre": [0.0] * 3}, "scale"),
])  # fmt: skip
def test_coordinates_that_do_not_fit_are_refused(given, why, unequal):
    with pytest.raises(PlanError, match=why):
        simulation(unequal, cs.Plan(graph=cs.graphs.path(4), sampler=cs.langevin(whitening=given), num_draws=10))


def test_coordinates_by_hand_are_not_for_private_parameters():
    plan = cs.Plan(
        graph=cs.graphs.path(3), sampler=cs.kinetic(whitening={"centre": [0.0], "scale": [1.0]}), num_draws=10
    )
    with pytest.raises(PlanError, match="leave whitening out"):
        simulation(sites((4, 9, 6)), plan)


def test_a_warm_up_without_room_is_refused(unequal):
    plan = cs.Plan(graph=cs.graphs.path(4), sampler=cs.kinetic(), num_draws=10, num_warmup=30)
    with pytest.raises(PlanError, match="leaves no room for a warm-up"):
        sampled(simulation(unequal, plan))
