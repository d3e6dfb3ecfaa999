"""Replicas: how many sums they take, where chains start, what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import consilience as cs
from consilience.engines.unison import OneProcess
from consilience.errors import PlanError, ProblemError
from consilience.kernel.network_sums import NetworkSums
from consilience.samplers.transitions.replica import Keys, start
from tests.gaussian import regression
from tests.hierarchical import sites
from tests.unison import replicas_of, sampled


class Counting(OneProcess):
    """All agents are here, but sums are made outside of the program, where they are counted."""

    def __init__(self, num_agents):
        super().__init__(num_agents)
        self.sums = 0

    def compiled(self, make, *arguments):
        def outside(words):
            self.sums += 1
            return np.asarray(words)

        def total(words):
            return jax.pure_callback(
                outside, jax.ShapeDtypeStruct(words.shape, words.dtype), words, vmap_method="broadcast_all"
            )

        return jax.jit(make(total, lambda values: values)).lower(*arguments).compile()


@pytest.fixture
def _double_precision_everywhere():
    """Callbacks are called from threads to which a context does not reach."""
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


@pytest.mark.usefixtures("_double_precision_everywhere")
@pytest.mark.parametrize(
    ("sampler", "num_chains"),
    [
        (cs.hmc(), 4),
        pytest.param(cs.nuts(), 1, marks=pytest.mark.slow(reason="one more sampler to compile")),
        pytest.param(cs.nuts(), 4, marks=pytest.mark.slow(reason="one more sampler to compile")),
    ],
    ids=["hmc", "nuts, one chain", "nuts"],
)
def test_one_sum_a_leapfrog_step_serves_all_chains(sampler, num_chains):
    """Beside them, with the next move: where init starts, a grid and an evaluation at the start, and before them the
    way into the bulk; a new grid when a window ends.

    Of several chains of NUTS a few more: see `num_sums`.
    """
    place = Counting(3)
    plan = cs.Plan(
        graph=cs.graphs.path(3), sampler=sampler, num_warmup=60, num_draws=40, num_chains=num_chains, seed=3
    )
    replicas = replicas_of(regression([4, 9, 2]), plan, place)
    found = sampled(replicas).measured
    grids = replicas._windows.ends | (np.arange(60) == 59)
    leapfrogs, sums = found["leapfrogs"], found["evaluations"].copy()
    counted = sums[0].sum()
    if sampler.kind == "nuts" and num_chains > 1:
        assert counted <= place.sums <= 1.05 * counted
    else:
        assert place.sums == counted
    assert (sums == sums[0]).all()
    sums[:, 1:61] -= grids
    before = 3
    if sampler.kind == "nuts":  # 4 d + 3 sums for each Hessian on the way into the bulk
        hessians, rest = divmod(sums[0, 0] - 4, 4 * replicas.parameters.num_shared + 3)
        assert 2 <= hessians <= 12
        assert rest >= leapfrogs[:, 0].max()
        before = sums[0, 0] - rest
    sums[:, 0] -= int(before)
    assert (sums >= leapfrogs.max(0)).all()
    if num_chains == 1:
        assert (sums == leapfrogs).all()
    assert (sums <= leapfrogs.sum(0)).all()


def starts(log_density, num_chains, seed=0, own=1):
    """Where chains start, of 2 shared parameters and `own` private ones of 3 agents, from 0; and their density."""

    def one_agent(agent, position):
        return -log_density(position[:2]) / 3 + 0.5 * (position[2:] ** 2).sum()

    each = jax.vmap(jax.vmap(jax.value_and_grad(one_agent, 1)), (None, 0))
    agents = jnp.arange(3)
    network = NetworkSums(
        lambda positions: each(agents, positions), 2, 3, lambda words: words, agents, jnp.ones((3, own))
    )
    keys = Keys(jax.random.split(jax.random.key(seed), num_chains), jax.random.key(99))
    state = jax.jit(lambda keys: start(
        cs.hmc(), network, keys, jnp.zeros((num_chains, 2)), jnp.zeros((num_chains, 3, own))
    ))(keys)  # fmt: skip
    return (np.asarray(part) for part in (state.shared, state.private, state.log_density))


def test_chains_start_apart_from_each_other():
    with jax.enable_x64(True):
        shared, private, density = starts(lambda w: -0.5 * w @ w, 400)
    for places in (shared, private):
        assert 1.8 < np.abs(places).max() <= 2
        np.testing.assert_allclose(places.std(0), 2 / np.sqrt(3), rtol=0.15)
        np.testing.assert_allclose(places.mean(0), 0, atol=0.35)
    assert np.abs(np.corrcoef(private[:, :, 0].T) - np.eye(3)).max() < 0.3, "agents do not start alike"
    np.testing.assert_allclose(density, -0.5 * (shared**2).sum(1) - 0.5 * (private**2).sum((1, 2)), atol=1e-6)


def test_a_chain_comes_nearer_where_there_is_no_density():
    def within(radius):
        return lambda w: jnp.where((jnp.abs(w) < radius).all(), 0.0, -jnp.inf) - 0.5 * w @ w

    with jax.enable_x64(True):
        far, _, _ = starts(lambda w: -0.5 * w @ w, 50)
        near, _, density = starts(within(0.3), 50)
        nowhere, _, there = starts(lambda w: jnp.where((w == 0).all(), 0.0, -jnp.inf), 4)
    assert np.isfinite(density).all()
    halvings = np.log2(far / near)
    np.testing.assert_allclose(halvings, np.broadcast_to(halvings.round()[:, :1], halvings.shape), atol=1e-6)
    assert set(halvings.round().ravel()) >= {0, 1, 2, 3} or halvings.max() >= 3
    assert ((np.abs(near) > 0.15 * 0.99).any(1) | (halvings[:, 0] == 0)).all(), "no nearer than need be"
    assert (nowhere == 0).all()
    assert np.isfinite(there).all()


def test_a_model_without_density_at_its_start_is_refused_by_name():
    problem = cs.Problem(
        log_likelihood=lambda w, x: jnp.log(x - w), log_prior=lambda w: -0.5 * w**2, init=lambda key: jnp.zeros(()),
        shards=[np.array([1.0, 2.0]), np.array([3.0, -1.0]), np.array([1.0, 1.0])],
    )  # fmt: skip
    plan = cs.Plan(graph=cs.graphs.path(3), sampler=cs.nuts(), num_draws=10)
    with pytest.raises(ProblemError, match="for agent 1, row 1"):
        replicas_of(problem, plan)


def test_nuts_says_who_takes_private_parameters():
    plan = cs.Plan(graph=cs.graphs.path(3), sampler=cs.nuts(), num_draws=10)
    with pytest.raises(PlanError, match=r"nuts does not take private parameters \(effect\): take hmc"):
        replicas_of(sites([3, 4, 5]), plan)


def ages():
    """Counts by a covariate of 20 to 90: two standard deviations of a weight away, a rate is exp(180)."""
    rng = np.random.default_rng(0)
    years = [rng.uniform(20, 90, 30) for _ in range(3)]
    return cs.Problem(
        log_likelihood=lambda w, rows: rows[1] * (w[0] + w[1] * rows[0]) - jnp.exp(w[0] + w[1] * rows[0]),
        log_prior=lambda w: -0.5 * jnp.sum((w / 5) ** 2),
        init=lambda key: jnp.zeros(2),
        shards=[(age, rng.poisson(np.exp(-1 + 0.02 * age)).astype(float)) for age in years],
    )


@pytest.mark.slow(reason="one more start of NUTS to compile")
def test_chains_start_where_no_agent_finds_the_density_absurd(monkeypatch):
    """Finite is not enough: a fall from exp(180) spoils step size, mass and grid, or fits no grid at all."""
    with jax.enable_x64(True):
        plan = cs.Plan(graph=cs.graphs.path(3), sampler=cs.hmc(), num_warmup=20, num_draws=4, num_chains=4)

        def started():
            replicas = replicas_of(ages(), plan)
            return replicas.moved(replicas.initial_state(), 0, 1)[0]

        densities = np.asarray(started().log_density)
        assert (densities > -1e7).all()
        monkeypatch.setattr(NetworkSums, "far", lambda self, *positions: jnp.inf)
        with pytest.raises(ProblemError, match="not finite where chain"):  # the control
            started()
