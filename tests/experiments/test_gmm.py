"""The mixture experiment on a shorter run: both modes, the distances, the report, the series."""

import json
import re

import numpy as np
import pytest

import consilience as cs
from consilience.errors import PlanError, ProblemError
from consilience.experiments import EXPERIMENTS, import_problem
from consilience.experiments.gmm import comparison_draws
from consilience.sampling import series

pytestmark = pytest.mark.slow(reason="long sampling of the mixture")

OPTIMISED = True

GMM = EXPERIMENTS["gmm"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    plan = GMM.plan(5, num_steps=200_000).replace(num_chains=4)
    return cs.sample(GMM.problem(5), plan, tmp_path_factory.mktemp("gmm") / "run")


def test_every_agent_finds_both_modes_and_comes_near_the_floor(run):
    """Four chains of 200,000 steps; the fixed seed's distances lie well below the paper's 0.251."""
    summary = run.summary
    assert summary["both_modes_found"]
    assert summary["true_posterior"]["share_of_upper_mode"] == pytest.approx(0.5, abs=0.05)
    for row in summary["agents"]:
        assert row["share_of_upper_mode"] == pytest.approx(0.5, abs=0.2)
        assert summary["sinkhorn_floor"] * 0.9 < row["sinkhorn"] < 0.251
        assert abs(row["kl"]) < 0.1
    assert summary["paper"]["sinkhorn"] == 0.251
    assert 0.15 < summary["sinkhorn_floor"] < 0.2


def test_step_sizes_chosen_automatically_find_both_modes(tmp_path):
    """What `consilience run gmm --auto --steps 200000` samples, for the network of 5."""
    problem, plan = GMM.problem(5), GMM.plan(5, num_steps=200_000)
    chosen = cs.suggest(problem, plan.graph, plan.num_steps, plan).practical.plan
    summary = cs.sample(problem, chosen, tmp_path / "run").summary
    assert summary["both_modes_found"]
    assert summary["sinkhorn"] < 0.251


def test_agents_stuck_in_one_mode_would_be_seen(run):
    """The control: only the draws of one mode score beyond the paper's figure."""
    (draws,) = comparison_draws(run, [0])
    from consilience.experiments.gmm import read_reference

    exact = read_reference(run)["exact"].to_numpy()
    upper = draws[draws[:, 1] > 0]
    assert cs.diagnostics.sinkhorn_distance(upper, exact) > 0.4


def test_noise_of_variance_one_instead_of_n_would_be_seen(tmp_path):
    """The control: the average then samples at temperature 1/n, which the distance shows."""
    plan = GMM.plan(5, num_steps=100_000)
    cold = plan.replace(sampler=plan.sampler.model_copy(update={"temperature": 0.2}), num_chains=4)
    run = cs.sample(GMM.problem(5), cold, tmp_path / "run")
    assert run.summary["sinkhorn"] > 0.3


def test_weighted_means_are_near_the_truth(run):
    truth = np.array(run.summary["true_posterior"]["mean"])
    found = np.array(run.summary["network_average"]["weighted_mean"])
    assert np.abs(found - truth).max() < 0.3


def test_the_report_is_one_page_that_needs_nothing_else(run, tmp_path):
    page = run.report()
    text = page.read_text()
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", text)
    assert text.count("<svg ") == len(list((run.path / "figures").glob("*.png"))) >= 5
    for words in ("The posterior", "Distance to the true posterior", "Traces", "Who talks to whom", "plan.toml"):
        assert words in text
    for path in (run.path / "figures").glob("*.png"):
        assert path.read_bytes().startswith(b"\x89PNG")


def test_the_paper_is_on_the_border_of_its_own_condition():
    plan = GMM.plan(5)
    assert plan.num_steps == 1_000_000
    assert plan.sampler.step_size(0) == pytest.approx(0.01)
    assert plan.sampler.step_size(10**6) == pytest.approx(0.0001)
    assert plan.sampler.step_size.offset == pytest.approx(230, abs=2)
    assert plan.sampler.consensus(0) == pytest.approx(0.36)
    assert plan.sampler.consensus(10**6) == pytest.approx(0.24)


@pytest.mark.parametrize("graph", ["star", "complete", "grid", "barbell"])
def test_plans_for_other_graphs_are_stable(graph):
    plan = GMM.plan(10, cs.graphs.named(graph, 10), 1000)
    assert not [finding for finding in cs.check(plan) if finding.level == "error"]


def test_a_study_compares_networks_and_continues(tmp_path):
    plans = {f"agents-{n}": GMM.plan(n, num_steps=20_000).replace(num_chains=2) for n in (1, 5)}
    series.start_series("gmm", plans, tmp_path / "series", lambda plan: None)
    summary = json.loads((tmp_path / "series" / "summary.json").read_text())
    assert [row["num_agents"] for row in summary["results"]] == [1, 5]
    assert summary["num_agents"] == 5
    assert summary["results"][0]["sinkhorn_paper"] == 0.259
    draws = cs.Run(tmp_path / "series" / "agents-1").draws["theta_1"].values
    (tmp_path / "series" / "summary.json").unlink()
    series.continue_series(tmp_path / "series", lambda plan: None)
    assert (cs.Run(tmp_path / "series" / "agents-1").draws["theta_1"].values == draws).all()
    assert "C-ULA" in series.report_series(tmp_path / "series").read_text()


def test_references_to_problems():
    with pytest.raises(PlanError, match="unknown experiment 'nope': choose one of gmm"):
        import_problem("nope", None)
    with pytest.raises(PlanError, match="no module 'nowhere'"):
        import_problem("nowhere:problem", None)
    with pytest.raises(PlanError, match="no attribute 'x'"):
        import_problem("tests.gaussian:x", None)
    with pytest.raises(ProblemError, match="neither a Problem"):
        import_problem("tests.gaussian:np", None)
    with pytest.raises(ProblemError, match="at most so many agents"):
        GMM.problem(101)
