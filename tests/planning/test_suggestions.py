import jax
import jax.numpy as jnp
import numpy as np
import pytest

import consilience as cs
from consilience.diagnostics.convergence import mean_error
from consilience.errors import DivergedError, UnstableError
from consilience.kernel.curvature import largest_curvature
from consilience.planning.checks import check
from consilience.planning.suggestions import suggest
from consilience.samplers import Landscape
from consilience.samplers.dula import DULA
from consilience.theory import (
    ExactLaw,
    GaussianNetwork,
    Moments,
    Potentials,
    analyse,
    exact_path,
    predict,
    unmet_conditions,
)
from tests.gaussian import regression

pytestmark = pytest.mark.slow(reason="a warm-up for each of a dozen problems; one of a plan file is in test_targets")

GRAPHS = [cs.graphs.ring(4), cs.graphs.star(6), cs.graphs.complete(3), cs.graphs.ring(1), cs.graphs.ring(2)]


@pytest.mark.parametrize("graph", GRAPHS, ids=repr)
def test_both_plans_are_stable_and_one_is_inside_the_theorems(graph):
    problem = regression([5 + 7 * i for i in range(graph.num_agents)])
    found = suggest(problem, graph, 20_000)
    for suggestion in (found.practical, found.proven):
        assert {finding.level for finding in check(suggestion.plan, problem) if finding.topic == "step size"} == {
            "ok"
        }
        assert suggestion.reasons
    assert unmet_conditions(graph, found.proven.plan.sampler) == []
    analysis = analyse(Potentials(problem), graph)
    assert predict(analysis, found.proven.plan.sampler, 10).divergence_bound is not None
    assert found.practical.plan.sampler.step_size(0) > found.proven.plan.sampler.step_size(0)


def test_the_practical_plan_is_far_ahead_of_the_proven_one():
    graph, problem = cs.graphs.ring(6), regression([10, 15, 20, 30, 45, 70], 3)
    network, start = GaussianNetwork.of(problem, graph), Moments(np.zeros(18), np.zeros((18, 18)))
    found = suggest(problem, graph, 3000)
    practical, proven = (
        exact_path(network, one.plan.sampler, start, [3000]).divergence[0] for one in (found.practical, found.proven)
    )
    assert practical < 0.01
    assert proven > 10 * practical


def test_agents_of_a_practical_plan_end_up_close_to_each_other():
    """The reason given, where the budget allows it: disagreement adds at most 5 % to an agent's variance."""
    graph, problem = cs.graphs.ring(6), regression([10, 15, 20, 30, 45, 70], 3)
    network, start = GaussianNetwork.of(problem, graph), Moments(np.zeros(18), np.zeros((18, 18)))
    found = suggest(problem, graph, 50_000)
    assert any("as low as wanted" in reason for reason in found.practical.reasons)
    excess = exact_path(network, found.practical.plan.sampler, start, [50_000]).consensus_error[0] / (6 * 3)
    assert excess < 0.055 / np.linalg.eigvalsh(network.precisions.sum(0))[-1]  # beside the smallest variance


def complete_with_a_hanger_on(num_agents):
    inner = [(i, j) for i in range(num_agents - 1) for j in range(i)]
    return cs.graphs.from_edges(num_agents, [*inner, (0, num_agents - 1)])


@pytest.mark.parametrize("graph", [cs.graphs.path(12), complete_with_a_hanger_on(12)], ids=["path", "hanger-on"])
def test_the_agent_that_has_it_worst_is_the_one_that_counts(graph):
    """No agent disagrees by more than said, nor is its mean shifted further, in the law at the end."""
    n = graph.num_agents
    rng = np.random.default_rng(0)
    blocks = np.stack([np.eye(2)] * n) * rng.uniform(1, 3, (n, 1, 1))
    network = GaussianNetwork(graph, blocks, 3 * rng.normal(size=(n, 2)))
    shards = [(np.linalg.cholesky(block).T, np.linalg.solve(np.linalg.cholesky(block), h)) for block, h in
              zip(blocks, network.linear, strict=True)]  # fmt: skip
    problem = cs.models.linear_regression(shards, prior_variance=1e9)
    plan = suggest(problem, graph, 10_000_000).practical.plan
    law = network.stationary(plan.sampler, plan.num_steps - 1)
    posterior = network.posterior
    centring = np.kron(np.eye(n) - 1 / n, np.eye(2))
    apart = (centring @ law.covariance @ centring).reshape(n, 2, n, 2)[np.arange(n), :, np.arange(n)]
    excess = np.linalg.eigvalsh(apart)[:, -1]
    smallest = np.linalg.eigvalsh(posterior.covariance)[0]
    assert 0.01 * smallest < excess.max() < 0.055 * smallest
    assert means_off(network, plan.sampler, plan.num_steps).max() < 0.11


def means_off(network, sampler, num_steps):
    """`(agents, parameters)` errors of the agents' means in posterior deviations, in the law of the last step."""
    mean = network.stationary(sampler, num_steps - 1).mean.reshape(network.graph.num_agents, -1)
    posterior = network.posterior
    return np.abs(mean - posterior.mean) / np.sqrt(np.diag(posterior.covariance))


def test_large_unequal_shards_make_the_last_step_small_enough_for_the_means():
    graph = cs.graphs.ring(6)
    problem = regression([20_000, 200, 4000, 20_000, 100, 9000])
    network = GaussianNetwork.of(problem, graph)
    sampler = suggest(problem, graph, 100_000_000).practical.plan.sampler
    assert 0.05 < means_off(network, sampler, 100_000_000).max() < 0.11
    loose = cs.dula(sampler.step_size.end * 10, 0.22)  # without that care the agents would sit elsewhere
    assert means_off(network, loose, 1).max() > 0.3


def test_agents_that_differ_in_curvature_shift_the_average_too():
    """Where agents know different directions their average is off as well, which the promise must include."""
    graph, rng = cs.graphs.star(5), np.random.default_rng(1)
    shards = []
    for agent in range(5):
        features = rng.normal(size=(60, 3)) * np.where(np.arange(3) == agent % 3, 3.0, 0.3)
        shards.append((features, features @ (2.0 * rng.normal(size=3)) + rng.normal(size=60)))
    problem = cs.models.linear_regression(shards)
    network = GaussianNetwork.of(problem, graph)
    sampler = suggest(problem, graph, 100_000_000).practical.plan.sampler
    off = means_off(network, sampler, 100_000_000).max()
    assert 0.05 < off < 0.11
    law = network.stationary(sampler, 99_999_999)
    average = np.abs(network.average(law).mean - network.posterior.mean)
    assert (
        average / np.sqrt(np.diag(network.posterior.covariance))
    ).max() > 0.01  # what a bound on agents beside their average leaves out


def test_momenta_do_not_hide_how_far_agents_are_off():
    graph, problem = cs.graphs.ring(6), regression([2000, 20, 400, 2000, 10, 900])
    network = GaussianNetwork.of(problem, graph)
    found = suggest(problem, graph, 200_000, sampler="sghmc").practical.plan.sampler

    def off(step):
        law = ExactLaw(network, cs.sghmc(step, found.consensus, found.friction))
        mean = law.positions(law.stationary()).mean.reshape(6, -1)
        return (np.abs(mean - network.posterior.mean) / np.sqrt(np.diag(network.posterior.covariance))).max()

    assert off(found.step_size.end) < 0.11
    assert off(found.step_size.start / 2) > 0.3  # where it would end without that bound


def rate_of_silos():
    """Counts of very different silos for one positive rate, whose posterior is a gamma law; and what they count."""
    counts = [np.full(30, 20.0 * (1 + silo)) for silo in range(4)]
    problem = cs.Problem(
        log_likelihood=lambda w, x: x * jnp.log(w["rate"]) - w["rate"],
        log_prior=lambda w: -w["rate"] / 100,
        init=lambda key: {"rate": jnp.asarray(0.05)},
        shards=counts,
        constraints={"rate": "positive"},
    )
    return problem, 1 + sum(one.sum() for one in counts), 1 / 100 + sum(len(one) for one in counts)


def test_a_posterior_far_from_the_start_gets_steps_that_suit_it():
    """The start is a thousand times flatter than the posterior: steps for the curvature there can never be stable."""
    graph, (problem, shape, inverse_scale) = cs.graphs.ring(4), rate_of_silos()
    at_start = largest_curvature(problem, 0, "float64")
    blind = DULA.suggest(Landscape(at_start, 4 * at_start, "where agents start"), graph, 40_000).sampler
    at_the_mass = 30 * shape / inverse_scale + 1  # of an agent, in the logarithm of the rate
    assert blind.step_size(39_999) * 4 * at_the_mass > 2  # what was suggested before could not stay bounded
    plan = suggest(problem, graph, 40_000).practical.plan
    assert plan.sampler.step_size(0) * 4 * at_the_mass < 1
    run = cs.sample(problem, plan)
    draws = np.asarray(run.draws["rate"])  # (chain, agent, draw)
    mean, deviation = shape / inverse_scale, shape**0.5 / inverse_scale
    for agent in range(4):
        own = draws[:, agent, :, None]
        off = abs(own.mean() - mean) / deviation
        # six standard errors: a false alarm in 5e8 agents; 0.1 is what the reasons promise
        assert off < 0.1 + 6 * mean_error(own / deviation).max()


def test_what_is_said_of_a_warm_up_is_what_its_run_finds():
    problem, graph = regression([30, 10, 20]), cs.graphs.path(3)
    base = cs.Plan(graph=graph, sampler=cs.langevin(), num_draws=10, num_chains=4, seed=5)
    found = suggest(problem, graph, base=base)
    assert found.practical.plan == base
    assert found.proven is None
    adaptation = cs.sample(problem, base).summary["adaptation"]
    assert found.found == {**adaptation, "predicted": found.found["predicted"]}
    assert any(f"{adaptation['exchanges']} exchanges" in reason for reason in found.practical.reasons)


def test_lengths_are_chosen_for_the_budget():
    problem, graph = regression([30, 10, 20]), cs.graphs.path(3)
    plan = suggest(problem, graph, 100_000).practical.plan
    assert plan.num_chains == 4
    assert 10_000 < plan.burn_in <= 50_000  # while steps are large draws would be biased
    assert float(plan.sampler.step_size(plan.burn_in)) < 2.01 * plan.sampler.step_size.end
    assert 1_000 <= plan.num_stored <= 10_000


def test_an_agent_whose_own_potential_falls_away_is_held_back():
    n, graph = 20, cs.graphs.path(20)
    problem = cs.Problem(
        log_likelihood=lambda w, x: -0.5 * x * w[0] ** 2,
        log_prior=lambda w: 0.0 * w[0],
        init=lambda key: jnp.ones(1),
        shards=[np.array([-0.9])] + [np.array([1.0])] * (n - 1),
    )
    plan = suggest(problem, graph, 3000).practical.plan
    network = GaussianNetwork.of(problem, graph)
    network.stationary(plan.sampler, 0)  # exists: the first step is stable too
    with pytest.raises(UnstableError):
        network.stationary(cs.dula(0.5 / (n * 1.0), 0.9 * graph.proven_consensus_limit), 0)


def test_the_temperature_of_a_plan_is_kept_where_it_can_be():
    graph, problem = cs.graphs.ring(3), regression([20, 20, 20])
    base = cs.Plan(graph=graph, sampler=cs.dula(1e-3, 0.1, temperature=0.5), num_steps=500)
    found = suggest(problem, graph, 500, base)
    assert found.practical.plan.sampler.temperature == 0.5
    assert found.proven.plan.sampler.temperature == 1
    assert any("temperature 1" in reason for reason in found.proven.reasons)


def test_too_large_a_step_would_not_be_stable():
    """The negative control of the stability above: six times the suggested first step diverges."""
    graph, problem = cs.graphs.ring(4), regression([30, 30, 30, 30])
    sampler = suggest(problem, graph, 1000).practical.plan.sampler
    network, start = GaussianNetwork.of(problem, graph), Moments(np.ones(8), np.zeros((8, 8)))
    good = exact_path(network, sampler, start, [50]).consensus_error[0]
    wild = exact_path(network, cs.dula(6 * sampler.step_size(0), 0.2), start, [50]).consensus_error[0]
    assert good < 1 < 1e6 < wild


@pytest.mark.parametrize(("steps", "words"), [(10_000_000, "as low as wanted"), (100, "not yet settled")])
def test_reasons_say_whether_the_budget_is_enough(steps, words):
    found = suggest(regression([20, 20, 20]), cs.graphs.ring(3), steps)
    assert any(words in reason for reason in found.practical.reasons)


def test_a_problem_whose_constants_are_not_known_still_gets_a_practical_plan():
    problem = cs.Problem(
        log_likelihood=lambda w, x: -jnp.sum((w**2 - 1) ** 2) * x,
        log_prior=lambda w: -0.05 * w @ w,
        init=lambda key: 1.5 * jax.random.normal(key, (3,)),
        shards=[np.ones(2), np.ones(3)],
    )
    found = suggest(problem, cs.graphs.path(2), 1000)
    assert found.proven is None
    assert "not log-concave" in found.why_not_proven
    assert found.practical.plan.sampler.step_size(0) > 0


def test_flat_potentials_are_refused():
    flat = cs.Problem(lambda w, x: 0.0 * x * w[0], lambda w: 0.0 * w[0], lambda key: jnp.zeros(3), [np.ones(2)] * 2)
    with pytest.raises(DivergedError, match="check that the posterior is proper"):
        suggest(flat, cs.graphs.path(2), 1000)
