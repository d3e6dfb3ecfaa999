import jax
import numpy as np
import pytest

import consilience as cs
from consilience.engines.simulate import Simulation
from consilience.experiments import EXPERIMENTS
from tests.engines.final_positions import final_positions
from tests.gaussian import regression

SAMPLER = cs.dula(0.01, 0.2)


def plan(**changes):
    entries = {"graph": cs.graphs.ring(3), "sampler": SAMPLER, "num_steps": 700, "seed": 3}
    return cs.Plan(**{**entries, **changes})


def all_draws(engine, plan, lengths):
    """Draws of a run cut into segments of the given lengths (in blocks), repeated until its end."""
    state, step, pieces, turn = engine.initial_state(), 0, [], 0
    while step < plan.num_steps:
        steps = min(lengths[turn % len(lengths)] * engine.block_steps, engine.max_steps, plan.num_steps - step)
        state, segment = engine.advance(state, step, steps)
        pieces.append(np.asarray(segment.draws))
        step, turn = segment.last_step, turn + 1
    return np.concatenate(pieces)


@pytest.mark.parametrize("changes", [{}, {"batch_size": 3}, {"num_chains": 20, "num_steps": 300}])
def test_draws_do_not_depend_on_how_a_run_is_cut(changes):
    problem, made = regression([5, 8, 13]), plan(**changes)
    engine = Simulation(problem, made)
    whole = all_draws(engine, made, [10**6])
    assert whole.shape == (made.num_stored, made.num_chains, 3, 2)
    assert (all_draws(engine, made, [1, 3, 2]) == whole).all()
    assert (all_draws(Simulation(problem, made), made, [2]) == whole).all()


def test_draws_depend_on_the_seed_and_chains_differ():
    problem = regression([5, 8, 13])
    draws = [all_draws(Simulation(problem, p), p, [9]) for p in (plan(num_chains=2), plan(seed=4, num_chains=2))]
    assert np.abs(draws[0] - draws[1]).min() > 0
    assert np.abs(draws[0][:, 0] - draws[0][:, 1]).max() > 0.1


def test_a_chain_is_the_same_among_others():
    """To rounding: another number of chains is another program."""
    problem = regression([5, 8, 13])
    alone = final_positions(problem, plan())
    among = final_positions(problem, plan(num_chains=21))
    np.testing.assert_allclose(among[:1], alone, rtol=1e-4, atol=1e-5)


def test_burn_in_and_thinning_select_the_right_steps():
    problem = regression([5, 8, 13])
    every = all_draws(Simulation(problem, plan()), plan(), [1])
    thinned = plan(burn_in=130, store_every=7)
    some = all_draws(Simulation(problem, thinned), thinned, [1, 2])
    steps = 130 + 7 * (1 + np.arange(thinned.num_stored)) - 1
    np.testing.assert_allclose(some, every[steps], rtol=1e-5, atol=1e-6)


def test_consensus_error_is_measured_at_the_steps_it_says():
    problem, made = regression([5, 8, 13]), plan(num_chains=2)
    engine = Simulation(problem, made)
    steps = engine.max_steps - 5  # the last measurement is at the end of the segment
    _, segment = engine.advance(engine.initial_state(), 0, steps)
    positions = np.asarray(segment.draws)[segment.metric_steps - 1]
    expected = cs.diagnostics.consensus_error(positions)
    np.testing.assert_allclose(segment.metrics["consensus_error"], expected, rtol=1e-4)
    assert segment.metric_steps[-1] == steps


def test_double_precision_is_double():
    problem = regression([5, 8, 13])
    double = plan(dtype="float64", num_steps=50)
    with jax.enable_x64(True):
        draws = all_draws(Simulation(problem, double), double, [1])
    assert draws.dtype == np.float64
    assert np.abs(draws - draws.astype(np.float32)).max() > 0


def test_the_first_non_finite_step_is_found():
    """An explosion that begins slowly: the step is the first one after which a position is not finite."""
    problem = cs.Problem(
        log_likelihood=lambda w, x: -0.5 * (w - x) ** 2,
        log_prior=lambda w: w**4,
        init=lambda key: jax.numpy.asarray(1.0),
        shards=[np.zeros(2, np.float32)] * 3,
    )
    made = plan(num_steps=400)
    engine = Simulation(problem, made)
    state = engine.initial_state()
    step, chain, agent = engine.find_diverged(state, 0, 400)
    before = np.asarray(engine.advance(state, 0, step - 1)[0])
    after = np.asarray(engine.advance(state, 0, step)[0])
    assert np.isfinite(before).all()
    assert not np.isfinite(after[chain, agent]).all()


@pytest.mark.slow(reason="ten thousand agents")
def test_ten_thousand_agents_sample():
    rng = np.random.default_rng(0)
    shards = list(rng.normal(size=(10_000, 2)).astype(np.float32))
    problem = cs.models.tied_mixture(shards)
    made = cs.Plan(graph=cs.graphs.ring(10_000), sampler=cs.dula(1e-6, 0.3), num_steps=20)
    draws = all_draws(Simulation(problem, made), made, [10])
    assert draws.shape == (20, 1, 10_000, 2)
    assert np.isfinite(draws).all()


@pytest.mark.slow(reason="compiles the mixture twice")
def test_unequal_shards_of_the_mixture_use_every_point():
    """Three agents hold 34, 33 and 33 points; their gradients add up to that of all points."""
    from consilience.kernel.gradients import network_gradients
    from consilience.kernel.parameters import Parameters

    problem = EXPERIMENTS["gmm"].problem(3)
    engine = Simulation(problem, plan())
    parameters = Parameters.of(problem, np.float32)
    stacked, (_, weights, scale) = engine._data.stacked, engine._data.arrays
    w = np.full((1, 3, 2), 0.4, np.float32)
    local = network_gradients(problem, parameters)(w, stacked, weights, scale, False)
    whole = EXPERIMENTS["gmm"].problem(1)
    engine = Simulation(whole, plan(graph=cs.graphs.ring(1)))
    central = network_gradients(whole, parameters)(w[:, :1], engine._data.stacked, *engine._data.arrays[1:], False)
    np.testing.assert_allclose(local.sum(1), central[:, 0], rtol=1e-4)
