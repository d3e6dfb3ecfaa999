import jax
import pytest

import consilience as cs
from consilience.engines.simulate import Simulation, simulation
from consilience.errors import UnstableError
from consilience.experiments import EXPERIMENTS
from consilience.kernel.curvature import largest_curvature
from consilience.planning.checks import check, require_stable, revealed
from consilience.theory import GaussianNetwork
from tests.gaussian import regression
from tests.hierarchical import wards


def plan(graph=None, step_size=1e-4, consensus=0.1, temperature=1.0, num_steps=100):
    sampler = cs.dula(step_size, consensus, temperature)
    return cs.Plan(graph=graph or cs.graphs.ring(5), sampler=sampler, num_steps=num_steps)


def levels(findings):
    return {finding.topic: finding.level for finding in findings}


def test_the_papers_own_setting_is_stable_but_outside_the_theorems():
    schedule = cs.Polynomial(scale=0.48, offset=230, exponent=0.05)
    paper = plan(consensus=schedule, step_size=cs.Polynomial(scale=0.2, offset=230, exponent=0.55))
    found = levels(check(paper))
    assert found["consensus step"] == "warning"
    assert found["schedules"] == "warning"  # δ_2 = 1/2 + δ_1 exactly, which the condition excludes
    require_stable(check(paper))


def test_inside_the_theorems_nothing_is_remarked():
    inside = plan(consensus=cs.Polynomial(scale=0.2, exponent=0.1), step_size=cs.Polynomial(scale=1e-4, exponent=0.7))
    assert set(levels(check(inside, regression([5] * 5))).values()) == {"ok"}


@pytest.mark.parametrize("graph", [cs.graphs.ring(5), cs.graphs.star(8), cs.graphs.complete(4)])
def test_the_remedy_for_an_unstable_consensus_step_is_the_limit(graph):
    limit = graph.stable_consensus_limit
    with pytest.raises(UnstableError, match=f"below {limit:.4g}"):
        require_stable(check(plan(graph, consensus=1.001 * limit)))
    require_stable(check(plan(graph, consensus=0.999 * limit)))


@pytest.mark.parametrize("sizes", [[20, 20, 20], [20, 9, 31], [5, 300, 40]])
def test_curvature_is_that_of_the_hessian(sizes):
    problem = regression(sizes, 4)
    exact = GaussianNetwork.of(problem, cs.graphs.ring(3)).precisions
    largest = max(float(_eigenvalues(block).max()) for block in exact)
    # at most 256 rows of a shard are looked at and scaled up, so the third is an estimate
    tolerance = 1e-2 if max(sizes) <= 256 else 0.1
    assert largest_curvature(problem, 0, "float32") == pytest.approx(largest, rel=tolerance)


def test_engines_look_at_the_curvature_where_their_agents_start():
    """They know where that is; the control is another seed, whose agents start elsewhere."""
    gmm = EXPERIMENTS["gmm"]
    problem, chosen = gmm.problem(3), gmm.plan(3, num_steps=100).replace(num_chains=2)
    found = [Simulation(problem, chosen.replace(seed=seed)).largest_curvature() for seed in (0, 1)]
    assert found[0] == pytest.approx(largest_curvature(problem, 0, "float32"), rel=1e-5)
    assert found[1] != pytest.approx(found[0], rel=1e-3)


def test_step_size_beyond_the_curvature_is_refused_and_one_below_runs(tmp_path):
    problem = regression([20] * 3, 2)
    curvature = max(
        float(_eigenvalues(block).max()) for block in GaussianNetwork.of(problem, cs.graphs.ring(3)).precisions
    )
    limit = 2 / (3 * curvature)
    ring = cs.graphs.ring(3)
    with pytest.raises(UnstableError, match="step size is unstable"):
        cs.sample(problem, plan(ring, step_size=1.1 * limit), tmp_path / "unstable")
    assert not (tmp_path / "unstable").exists()
    assert levels(check(plan(ring, step_size=0.95 * limit), problem))["step size"] == "warning"
    assert levels(check(plan(ring, step_size=0.3 * limit), problem))["step size"] == "ok"


def test_a_step_given_for_the_models_own_coordinates_is_looked_at_though_the_warm_up_finds_the_exchanges():
    problem, ring = regression([20] * 3, 2), cs.graphs.ring(3)
    limit = 2 / (3 * largest_curvature(problem, 0, "float64")) ** 0.5
    for factor, level in ((1.05, "error"), (0.95, "ok")):
        plan = cs.Plan(graph=ring, sampler=cs.kinetic(factor * limit, whitening="none"), num_draws=10)
        assert levels(check(plan, problem))["step size"] == level
        with jax.enable_x64(True):
            known = simulation(problem, plan).largest_curvature()
        assert levels(check(plan, curvature=known))["step size"] == level


def test_temperature_other_than_one_is_remarked():
    assert levels(check(plan(temperature=0.0)))["temperature"] == "warning"
    assert "temperature" not in levels(check(plan()))


def _eigenvalues(matrix):
    import numpy as np

    return np.linalg.eigvalsh(matrix)


@pytest.mark.parametrize(("sampler", "readable"), [
    (cs.kinetic(), True), (cs.langevin(), False), (cs.langevin(noise="common"), True), (cs.dula(0.01, 0.2), False),
])  # fmt: skip
def test_what_messages_and_sums_reveal_is_said(sampler, readable):
    length = {} if sampler.tunes_itself else {"num_steps": 10}
    found = {one.topic: one for one in revealed(cs.Plan(graph=cs.graphs.ring(4), sampler=sampler, **length))}
    assert ("messages" in found) == readable
    assert not readable or "without noise" in found["messages"].message
    assert ("masks" in found) == sampler.tunes_itself
    if sampler.tunes_itself:
        assert revealed(cs.Plan(graph=cs.graphs.path(2), sampler=sampler))[-1].level == "warning"


def test_masks_are_no_promise_where_private_parameters_move_by_known_random_numbers():
    plan = cs.Plan(graph=cs.graphs.path(3), sampler=cs.hmc())
    assert [found.level for found in revealed(plan, regression([4, 5, 6]))] == ["ok"]
    assert [found.level for found in revealed(plan, wards())] == ["ok", "warning"]


@pytest.mark.parametrize(
    ("sampler", "level"),
    [
        (cs.kinetic(), "ok"),
        (cs.langevin(control_variates=False), "warning"),
        (cs.kinetic(0.1, 2, whitening="none"), "warning"),
    ],
    ids=["found", "turned off", "without a warm-up"],
)
def test_minibatches_without_control_variates_are_warned_about(sampler, level):
    lengths = {"num_draws": 10} if sampler.tunes_itself else {"num_steps": 10}
    plan = cs.Plan(graph=cs.graphs.path(3), sampler=sampler, batch_size=4, **lengths)
    assert [found.level for found in check(plan) if found.topic == "minibatches"] == [level]
    assert plan.has_control_variates == (level == "ok")
    whole = cs.Plan(graph=cs.graphs.path(3), sampler=sampler, **lengths)
    assert not [found for found in check(whole) if found.topic == "minibatches"]
