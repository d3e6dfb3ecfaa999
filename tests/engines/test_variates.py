"""Minibatches with control variates in the engine: the exact law, the warm-up, and what happens without them."""

import dataclasses

import jax
import numpy as np
import pytest

import consilience as cs
from consilience.diagnostics.convergence import mean_error
from consilience.engines.program import Stored
from consilience.engines.simulate import Simulation, simulation
from consilience.errors import DivergedError, SamplingWarning
from consilience.kernel.tuning import Tuning
from consilience.kernel.variates import Anchor
from consilience.kernel.whitening import identity
from consilience.theory import ExactLaw, GaussianNetwork
from consilience.warmup.variates import BatchGradients
from tests.engines.final_positions import final_positions
from tests.engines.test_warmed import sampled
from tests.gaussian import regression
from tests.statistical import rejects_covariance, rejects_mean, rejects_moments

OPTIMISED = True
STEPS, STEP_SIZES = 30, {"kinetic": 0.15, "langevin": 0.02}


BARBELL = ("langevin", cs.graphs.barbell(5), (12, 30, 8, 9, 20), 1)


@pytest.mark.parametrize(("kind", "graph", "sizes", "exchanges"), [
    ("kinetic", cs.graphs.path(3), (12, 30, 8), 2),
    pytest.param(*BARBELL, marks=pytest.mark.slow(reason="4,000 chains of one more sampler")),
])  # fmt: skip
def test_the_law_of_all_agents_is_exact(kind, graph, sizes, exchanges):
    """Rows with unequal Hessians, so that noise is left; 4,000 chains, each comparison with false-alarm rate 1e-6."""
    problem, n = regression(sizes, noise_variance=4.0), graph.num_agents
    given = {"exchanges": exchanges, "step_size": STEP_SIZES[kind]}
    network = GaussianNetwork.of(problem, graph, with_rows=True)
    plan = cs.Plan(
        graph=graph, sampler=getattr(cs, kind)(**given), num_draws=4, num_chains=4000, batch_size=3,
        batches="replacement",
    )  # fmt: skip
    engine = Simulation(problem, plan)
    place = np.tile([0.5, -1.0], (n, 1))
    full = np.einsum("iab,ib->ia", network.precisions, place) - network.linear

    def final(anchor):
        tuning = Tuning(STEP_SIZES[kind], exchanges, 1.0, identity(2, n, 0), anchor)
        state, _ = engine.walked(engine.initial_state(), tuning, 0, STEPS, Stored(0, STEPS))
        return engine.positions(state).reshape(4000, -1).astype(float)

    law = ExactLaw(network, getattr(cs, kind)(**given, whitening="none"))
    exact = law.positions(law.after(STEPS, batch_size=3, anchor=place))
    found = final(Anchor(place, full))
    assert not rejects_mean(found, exact.mean)
    assert not rejects_covariance(found, exact.mean, exact.covariance)
    plain = law.positions(law.after(STEPS, batch_size=3))
    assert rejects_covariance(found, plain.mean, plain.covariance)  # the control: the law without control variates
    noiseless = law.positions(law.after(STEPS))
    assert rejects_covariance(found, noiseless.mean, noiseless.covariance)  # and that without any noise of batches
    wrong = final(Anchor(place, np.roll(full, 1, 0) * np.append(np.ones(n - 1), 1.5)[:, None]))
    assert rejects_mean(wrong, exact.mean)


@pytest.mark.parametrize(("kind", "step_size"), [
    pytest.param("kinetic", 0.4, marks=pytest.mark.slow(reason="4,000 chains of one more sampler")),
    ("langevin", 0.3),
])  # fmt: skip
def test_minibatches_heat_as_the_formula_says(kind, step_size):
    """Agents in full agreement, with a standard normal posterior: only the noise of batches makes draws wider.

    All rows have the same Hessian, so the noise is the same everywhere, and known exactly from single rows. The
    formula is that of the exact law, and 4,000 chains are as wide as it says; false-alarm rate 1e-6.
    """
    sizes, rng = (9, 9, 9), np.random.default_rng(2)
    shards = [(np.ones((size, 1)), rng.normal(scale=8, size=size)) for size in sizes]
    problem = cs.models.linear_regression(shards, noise_variance=sum(sizes), prior_variance=1e9)
    network = GaussianNetwork.of(problem, cs.graphs.complete(3), with_rows=True)
    sampler = getattr(cs, kind)(step_size, 1, whitening="none")
    plan = cs.Plan(
        graph=network.graph, sampler=sampler, num_steps=80, num_chains=4000, batch_size=2, batches="replacement",
        dtype="float64",
    )  # fmt: skip
    with jax.enable_x64(True):
        noise = BatchGradients(problem, plan).noise(None, identity(1, 3, 0), np.zeros((1, 3, 1)))
    sigma = float(noise.plain.sum())
    still = 1.0 if kind == "kinetic" else 1 / (1 - step_size / 2)  # BAOAB is exact, Langevin too wide by its step
    heated = still * sampler.heating(step_size, sigma)
    assert heated > 1.4
    law = ExactLaw(network, sampler)
    (exact,) = set(np.diag(law.positions(law.after(80, batch_size=2)).covariance).round(9))
    assert exact == pytest.approx(heated, rel=1e-4)
    mean = np.full(3, network.posterior.mean[0])
    found = final_positions(problem, plan)
    assert not rejects_covariance(found, mean, np.full((3, 3), heated))
    assert rejects_covariance(found, mean, np.full((3, 3), still))  # the control: no heating
    assert rejects_covariance(found, mean, np.full((3, 3), still * sampler.heating(step_size, sigma / 2)))


def test_an_anchor_is_part_of_what_is_stored():
    problem = regression([30, 60, 40], num_features=3, noise_variance=0.5)
    plan = cs.Plan(
        graph=cs.graphs.path(3), sampler=cs.kinetic(), num_draws=8, num_chains=2, num_warmup=700, batch_size=10
    )
    stepper = simulation(problem, plan)
    state, step, middle = stepper.initial_state(), 0, None
    while step < plan.num_steps:
        state, segment = stepper.advance(state, step, min(stepper.max_steps, plan.num_steps - step))
        step = segment.last_step
        if int(state.stage.window) == 2 and middle is None:
            middle = step, stepper.form.restored(stepper.form.content(state), stepper.form.note(state))
            jax.tree.map(np.testing.assert_array_equal, middle[1], state)
    anchor = state.tuning.anchor
    network = GaussianNetwork.of(problem, plan.graph)
    expected = np.einsum("iab,ib->ia", network.precisions, anchor.position) - network.linear
    np.testing.assert_allclose(anchor.gradient, expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(anchor.position, np.tile(state.tuning.whitening.mean, (3, 1)), rtol=1e-6)
    assert np.abs(anchor.position - middle[1].tuning.anchor.position).max() > 0  # each window has its own
    found = stepper.found(state)
    assert found["control_variates"]
    assert found["gradient_noise"] < found["gradient_noise_without"] / 5
    assert 1 < found["heating"] < 1.2


@pytest.mark.slow(reason="a warm-up and its checkpoint")
def test_chains_with_data_of_their_own_warm_up_together_and_keep_their_posteriors_apart():
    """Five halves of the same rows: each chain's anchor has the gradients of its own, its draws their own mean."""
    whole, rng = regression([400, 120, 200], num_features=3, noise_variance=0.5), np.random.default_rng(8)
    own = []
    for _ in range(5):
        halves = [rng.permutation(len(shard[1]))[: len(shard[1]) // 2] for shard in whole.shards]
        pairs = zip(whole.shards, halves, strict=True)
        shards = [(features[rows], targets[rows]) for (features, targets), rows in pairs]
        own.append(dataclasses.replace(whole, shards=shards))
    problem = dataclasses.replace(own[0], replicas=[one.shards for one in own])
    graph = cs.graphs.path(3)
    plan = cs.Plan(graph=graph, sampler=cs.kinetic(), num_draws=1500, num_chains=5, batch_size=30)
    stepper = simulation(problem, plan)
    found, state = sampled(stepper)
    (draws,) = found.values()
    again = stepper.form.restored(stepper.form.content(state), stepper.form.note(state))
    jax.tree.map(np.testing.assert_array_equal, again, state)
    anchor, networks = state.tuning.anchor, [GaussianNetwork.of(one, graph) for one in own]
    for chain, network in enumerate(networks):
        expected = np.einsum("iab,ib->ia", network.precisions, anchor.position) - network.linear
        np.testing.assert_allclose(anchor.gradient[chain], expected, rtol=1e-6, atol=1e-4)
        off = [_off(draws[chain], another.posterior) for another in networks]
        assert off[chain] < 6  # false-alarm rate 1e-8 for each chain
        assert max(off) > 6  # the control: another chain's rows


def _off(draws, exact):
    """The largest error of a mean of `(agents, draws, size)` in standard errors, of which 0.03 sd are no chance."""
    scaled = (draws.astype(float) - exact.mean) / np.sqrt(np.diag(exact.covariance))
    chance = np.stack([mean_error(agent[None]) for agent in scaled])
    return (np.abs(scaled.mean(1)) / (chance + 0.03)).max()


@pytest.mark.slow(reason="two warm-ups and tens of thousands of steps")
def test_every_agent_has_the_pooled_posterior_with_batches():
    """Batches of 25 rows of 30 to 400; false-alarm rate 1e-6 (and 3 % of heating is not seen)."""
    graph, sizes = cs.graphs.path(4), [30, 60, 120, 400]
    problem = regression(sizes, num_features=3, noise_variance=0.5)
    posterior = GaussianNetwork.of(problem, graph).posterior
    variance = np.diag(posterior.covariance)

    def drawn(batch_size, **given):
        plan = cs.Plan(graph=graph, sampler=cs.kinetic(**given), num_draws=1500, batch_size=batch_size)
        stepper = simulation(problem, plan)
        found, state = sampled(stepper)
        (values,) = found.values()
        return values.astype(float), stepper.found(state)

    values, found = drawn(25)
    assert found["heating"] < 1.05
    for agent in range(4):
        assert not rejects_moments(values[:, agent], posterior.mean, variance)
    with pytest.warns(SamplingWarning, match="noise of minibatches heats by"):
        values, found = drawn(25, control_variates=False)
    assert rejects_moments(values[:, 0], posterior.mean, variance)
    assert found["heating"] > 1.5


@pytest.mark.slow(reason="one more program, several windows")
def test_without_them_windows_that_run_off_end_the_run():
    """Rows of very different lengths: noise grows with the draws' distance, coordinates follow, and so on."""
    rng, shards = np.random.default_rng(0), []
    for size in (30, 120, 400):
        features = rng.standard_t(3, size=(size, 5))
        shards.append((features, features @ rng.normal(size=5) + rng.normal(size=size)))
    problem = cs.models.linear_regression(shards, noise_variance=1.0)
    sampler = cs.kinetic(control_variates=False)
    plan = cs.Plan(graph=cs.graphs.path(3), sampler=sampler, num_draws=8, batch_size=10)
    with pytest.raises(DivergedError, match="leave out control_variates = false"):
        sampled(simulation(problem, plan))
