"""Samplers in unison against posteriors that are known: closed forms, quadrature, calibration.

Every comparison of moments goes through `rejects_moments`: means and variances of all parameters together, false
alarms at a rate of 1e-6, seeds fixed. What must be rejected stands beside it.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import consilience as cs
from consilience.kernel.network_sums import NetworkSums
from consilience.samplers.transitions.adaptation import first_adaptation, mass_matrix_adaptation, shrunk
from consilience.samplers.transitions.replica import Keys, Replica, evaluate_chains
from tests.gaussian import regression
from tests.statistical import rejects_moments, rejects_uniform
from tests.unison import mixed_moments, normal_posterior, replicas_of, sampled

SIZES = [3, 300, 10, 40, 25, 7, 90]
NOISE = 25.0


def test_the_mass_keeps_correlations_between_parameters_of_small_units():
    """An intercept and the slope of a calendar year: correlated but for 3e-6, the slope's sd 1e-2.

    With the covariance of 2,000 draws the posterior's condition number in the mass's coordinates is 1; what shrinking
    makes of it is checked. BlackJAX's rule, which is Stan's, is the control: it has 1e-3 for every parameter.
    """
    scale = np.diag([20.0, 0.01])
    exact = scale @ np.array([[1, -1 + 3e-6], [-1 + 3e-6, 1]]) @ scale
    draws = np.random.default_rng(0).normal(size=(2000, 2)) @ np.linalg.cholesky(exact).T
    begin, update, final = mass_matrix_adaptation(False)

    with jax.enable_x64(True):
        state, _ = jax.lax.scan(lambda carry, draw: (update(carry, draw), None), begin(2), jnp.asarray(draws))
        ours, theirs = shrunk(state.wc_state), final(state).inverse_mass_matrix

    def condition(inverse_mass):
        values = np.linalg.eigvals(np.linalg.solve(inverse_mass, exact)).real
        return values.max() / values.min()

    assert condition(ours) < 3
    assert condition(theirs) > 300


def test_the_mass_of_what_has_not_moved_is_finite():
    state = mass_matrix_adaptation(True)[0](3)
    assert bool((shrunk(state.wc_state) > 0).all())


def barbell(sampler, **entries):
    problem = regression(SIZES, noise_variance=NOISE)
    plan = cs.Plan(graph=cs.graphs.barbell(7), sampler=sampler, num_warmup=200, num_draws=1000, **entries)
    return problem, replicas_of(problem, plan)


def regression_posterior(problem, prior_variance=1.0, without=()):
    shards = [shard for agent, shard in enumerate(problem.shards) if agent not in without]
    features, targets = (np.concatenate([shard[i] for shard in shards]).astype(float) for i in (0, 1))
    exact = normal_posterior(features, targets, NOISE, np.full(2, prior_variance))
    return exact.mean, np.diag(exact.covariance)


@pytest.fixture(scope="module")
def by_nuts():
    problem, replicas = barbell(cs.nuts())
    return problem, replicas, sampled(replicas)


def test_nuts_has_the_posterior_of_everybodys_rows(by_nuts):
    problem, _, found = by_nuts
    assert found.draws["w"].shape == (4, 1000, 2)
    assert not rejects_moments(found.draws["w"], *regression_posterior(problem))
    assert rejects_moments(found.draws["w"], *regression_posterior(problem, prior_variance=1 / 7)), "a prior each"
    assert 0.7 < found.measured["acceptance_rate"][:, 200:].mean() < 0.95


def test_a_sum_that_forgets_an_agent_is_noticed(by_nuts):
    """The same program with one agent's rows of no weight."""
    problem, replicas, _ = by_nuts
    with jax.enable_x64(True):
        held = replicas._held
        (shards, weights, scale), agents = held
        weights = tuple(
            one.at[own.tolist().index(6)].set(0.0) if 6 in own else one
            for own, one in zip(replicas._rows.groups, weights, strict=True)
        )
        replicas._held = ((shards, weights, scale), agents)
        wrong = sampled(replicas).draws["w"]
        replicas._held = held
    assert rejects_moments(wrong, *regression_posterior(problem))
    assert not rejects_moments(wrong, *regression_posterior(problem, without=(6,)))


@pytest.mark.slow(reason="one more sampler to compile")
@pytest.mark.parametrize(("sampler", "mass"), [(cs.hmc(), 1), (cs.nuts(mass="dense"), 2)], ids=["hmc", "dense mass"])
def test_other_samplers_have_the_same_posterior(sampler, mass):
    problem, replicas = barbell(sampler)
    found = sampled(replicas)
    assert not rejects_moments(found.draws["w"], *regression_posterior(problem))
    assert rejects_moments(found.draws["w"], *regression_posterior(problem, prior_variance=1 / 7))
    assert found.state.adaptation.inverse_mass.ndim == mass
    exact = regression_posterior(problem)[1]
    variances = np.diag(found.state.adaptation.inverse_mass) if mass == 2 else found.state.adaptation.inverse_mass
    np.testing.assert_allclose(variances, exact, rtol=0.5)  # from a window of 4 × 100 draws


@pytest.mark.slow(reason="one more model to compile")
def test_poisson_regression_by_quadrature():
    rng = np.random.default_rng(3)
    slopes = [rng.normal(size=size) for size in (4, 9, 2, 15)]
    shards = [(x, rng.poisson(np.exp(0.4 + 0.5 * x)).astype(float)) for x in slopes]
    problem = cs.Problem(
        log_likelihood=lambda p, rows: rows[1] * (p["a"] + p["b"] * rows[0]) - jnp.exp(p["a"] + p["b"] * rows[0]),
        log_prior=lambda p: -2.0 * (p["a"] ** 2 + p["b"] ** 2),
        init=lambda key: {"a": jnp.zeros(()), "b": jnp.zeros(())},
        shards=shards,
    )
    plan = cs.Plan(graph=cs.graphs.path(4), sampler=cs.nuts(), num_warmup=200, num_draws=1000)
    found = sampled(replicas_of(problem, plan)).draws
    x, y = (np.concatenate([shard[i] for shard in shards]) for i in (0, 1))

    def moments(prior=4.0):
        a, b = (grid.ravel() for grid in np.meshgrid(np.linspace(-2, 3, 301), np.linspace(-2, 3, 301)))
        rates = a[:, None] + b[:, None] * x
        log_weights = (y * rates - np.exp(rates)).sum(1) - 0.5 * prior * (a**2 + b**2)
        return mixed_moments(log_weights, np.stack([a, b], 1), np.zeros((a.size, 2)))

    draws = np.stack([found["a"], found["b"]], -1)
    assert not rejects_moments(draws, *moments())
    assert rejects_moments(draws, *moments(prior=16.0)), "a prior each"


SCHOOLS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


@pytest.mark.slow(reason="one more model to compile")
def test_eight_schools_with_one_school_at_each_agent():
    """Non-centred; given the spread between schools everything is normal, and over the spread it is a quadrature."""
    problem = cs.Problem(
        log_likelihood=lambda p, rows: -0.5 * ((rows[0] - p["mean"] - p["spread"] * p["effect"]) / rows[1]) ** 2,
        log_prior=lambda p: -0.5 * (p["mean"] / 5) ** 2 - jnp.log1p((p["spread"] / 5) ** 2),
        init=lambda key: {"mean": jnp.zeros(()), "spread": jnp.ones(()), "effect": jnp.zeros(())},
        shards=[(np.array([y]), np.array([s])) for y, s in zip(SCHOOLS, ERRORS, strict=True)],
        private=("effect",),
        log_private=lambda p: -0.5 * p["effect"] ** 2,
        constraints={"spread": "positive"},
    )
    plan = cs.Plan(graph=cs.graphs.ring(8), sampler=cs.hmc(0.9), num_warmup=500, num_draws=2000)
    found = sampled(replicas_of(problem, plan)).draws
    assert found["mean"].shape == (4, 2000)
    assert found["effect"].shape == (4, 8, 2000)
    draws = np.concatenate(
        [np.log(found["spread"])[..., None], found["mean"][..., None], found["effect"].swapaxes(1, 2)], -1
    )

    def moments(prior_variance=1.0):
        """`prior_variance` of the schools' effects."""
        log_spread = np.linspace(-12, 7, 1500)
        parts = [
            normal_posterior(np.column_stack([np.ones(8), spread * np.eye(8)]), SCHOOLS, ERRORS**2,
                             np.array([25.0, *np.full(8, prior_variance)]))
            for spread in np.exp(log_spread)
        ]  # fmt: skip
        log_weights = np.array([part.log_evidence for part in parts])
        log_weights += log_spread - np.log1p((np.exp(log_spread) / 5) ** 2)
        means = np.array([[point, *part.mean] for point, part in zip(log_spread, parts, strict=True)])
        return mixed_moments(log_weights, means, np.array([[0, *np.diag(part.covariance)] for part in parts]))

    assert not rejects_moments(draws, *moments())
    assert rejects_moments(draws, *moments(prior_variance=8.0)), "a share of the private prior instead of all of it"


@pytest.mark.slow(reason="one more model to compile")
def test_random_intercepts_at_eight_sites():
    """Non-centred; given both spreads everything is normal, and over the two of them it is a quadrature."""
    rng = np.random.default_rng(5)
    shards = [1.5 + rng.normal() + 2 * rng.normal(size=size) for size in (5, 20, 9, 14, 7, 30, 11, 4)]
    problem = cs.Problem(
        log_likelihood=lambda p, y: (
            -0.5 * ((y - p["mean"] - p["spread"] * p["effect"]) / p["noise"]) ** 2 - jnp.log(p["noise"])
        ),
        log_prior=lambda p: -0.5 * p["mean"] ** 2 / 9 - p["noise"] - 0.5 * p["spread"] ** 2,
        init=lambda key: {
            "effect": jnp.zeros(()),
            "mean": jnp.zeros(()),
            **dict.fromkeys(("noise", "spread"), jnp.ones(())),
        },
        shards=shards,
        private=("effect",),
        log_private=lambda p: -0.5 * p["effect"] ** 2,
        constraints={"spread": "positive", "noise": "positive"},
    )
    plan = cs.Plan(graph=cs.graphs.star(8), sampler=cs.hmc(0.9), num_warmup=500, num_draws=2000)
    found = sampled(replicas_of(problem, plan)).draws
    columns = [np.log(found["noise"]), np.log(found["spread"]), found["mean"]]
    draws = np.concatenate([np.stack(columns, -1), found["effect"].swapaxes(1, 2)], -1)
    site = np.repeat(np.arange(8), [len(shard) for shard in shards])
    targets = np.concatenate(shards)

    def moments(without=None, prior_variance=1.0):
        """`prior_variance` of the sites' effects, in units of the spread."""
        log_spread, log_noise = (
            grid.ravel() for grid in np.meshgrid(np.linspace(-12, 2, 141), np.linspace(0.3, 1.1, 33))
        )
        kept = site != without
        parts = [
            normal_posterior(
                np.column_stack([np.ones(len(site)), t * np.eye(8)[site]])[kept], targets[kept], s**2,
                np.array([9.0, *np.full(8, prior_variance)]),
            )
            for t, s in zip(np.exp(log_spread), np.exp(log_noise), strict=True)
        ]  # fmt: skip
        log_weights = np.array([part.log_evidence for part in parts]) + log_spread + log_noise
        log_weights -= np.exp(log_noise) + 0.5 * np.exp(log_spread) ** 2
        spreads = zip(log_noise, log_spread, parts, strict=True)
        means = np.array([[noise, spread, *part.mean] for noise, spread, part in spreads])
        return mixed_moments(log_weights, means, np.array([[0, 0, *np.diag(part.covariance)] for part in parts]))

    assert not rejects_moments(draws, *moments())
    assert rejects_moments(draws, *moments(without=5)), "a sum that forgets one agent"
    of_spread = [one[1:2] for one in moments(prior_variance=8.0)]
    assert rejects_moments(draws[..., 1:2], *of_spread), "the spread with a share of the private prior"


SHARDS, RANKS, DATA_SETS = [2, 3, 5], 10, 600


@pytest.mark.slow(reason="600 data sets")
@pytest.mark.parametrize("sampler", [cs.hmc(), cs.nuts(max_depth=5)], ids=lambda sampler: sampler.kind)
def test_simulated_data_sets_are_covered_as_they_should_be(sampler):
    """Ranks of the truth among the draws are uniform, of mean, log scale and log-likelihood; false alarms at 1e-6.

    One chain for each data set, moved by the transition itself: 3 agents, mean ~ N(0, 1), log scale ~ N(0, 0.5²).
    """
    owner = jnp.repeat(jnp.arange(3), jnp.array(SHARDS))

    def likelihood(w, rows):
        return -0.5 * ((rows - w[0]) * jnp.exp(-w[1])) ** 2 - w[1]

    def network_of(rows, prior):
        def one_agent(agent, w):
            own = jnp.where(owner == agent, likelihood(w, rows), 0.0).sum()
            return -own + prior / 3 * 0.5 * (w[0] ** 2 + (w[1] / 0.5) ** 2)

        each = jax.vmap(jax.vmap(jax.value_and_grad(one_agent, 1)), (None, 0))
        agents = jnp.arange(3)
        return NetworkSums(
            lambda positions: each(agents, positions), 2, 3, lambda words: words, agents, jnp.zeros((3, 0))
        )

    def rank(number, prior):
        keys = jax.random.split(jax.random.key(number), 4)
        truth = jax.random.normal(keys[0], (2,)) * jnp.array([1.0, 0.5])
        rows = truth[0] + jnp.exp(truth[1]) * jax.random.normal(keys[1], (10,))
        network = network_of(rows, prior)
        shared, private = jnp.zeros((1, 2)), jnp.zeros((1, 3, 0))
        grid, _ = network.measure(shared, private)
        found = evaluate_chains(network, grid, shared, private)
        adaptation = first_adaptation(sampler, 2, (3, 0))._replace(
            step_size=jnp.asarray(0.4), inverse_mass=jnp.array([0.15, 0.05])
        )
        state = Replica(shared, private, found.log_density, found.gradient, found.own_gradient, grid, adaptation)

        def move(k, carry):
            state, below = carry
            own = jax.random.fold_in(keys[2], k)
            state, _ = sampler.move(state, Keys(own[None], jax.random.fold_in(keys[3], k)), network, False)
            w = state.shared[0]
            smaller = jnp.array([*(w < truth), likelihood(w, rows).sum() < likelihood(truth, rows).sum()])
            counts = (k >= 8) & (k % 4 == 3)  # after a burn-in, every fourth
            return state, below + jnp.where(counts, smaller, 0)

        return jax.lax.fori_loop(0, 8 + 4 * (RANKS - 1), move, (state, jnp.zeros(3, jnp.int32)))[1]

    with jax.enable_x64(True):
        ranks = jax.jit(jax.vmap(rank, (0, None)))
        right, wrong = (np.asarray(ranks(jnp.arange(DATA_SETS), prior)) for prior in (1.0, 3.0))
    assert not rejects_uniform(right, RANKS)
    assert rejects_uniform(wrong, RANKS), "the control: a prior at every agent"
