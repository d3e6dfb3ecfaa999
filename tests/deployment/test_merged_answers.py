"""What nodes found each for itself comes together: names, derived quantities, checks, and sums of scores."""

import json

import numpy as np
import pytest

import consilience as cs
from consilience.deployment.merging import merge
from consilience.deployment.networks import node_runs
from consilience.experiments.answers import store_loo
from consilience.runs.files import write_json
from consilience.sampling.engines import Task
from tests.made_runs import made_run, unison_plan
from tests.outcome_problems import hospital_draws, hospitals

OF_A_NODE = {"rounds_per_second": 1.0, "messages": {}, "restarts": 0, "participation": [1.0, 1.0, 1.0]}


@pytest.fixture
def nodes(tmp_path):
    """Three nodes' runs with the draws of one network in unison."""
    problem, plan, draws = hospitals(), unison_plan(3, 80), hospital_draws(80)
    paths = []
    for agent in range(3):
        own = {"coefficients": draws["coefficients"], "site_effect": draws["site_effect"][:, [agent]]}
        place = tmp_path / f"agent-{agent}"
        run = made_run(place, problem.of_agent(agent), plan, own, agents=[agent], engine="peers", agent=agent)
        write_json(run.path / "summary.json", {**run.summary, "agent": agent, **OF_A_NODE})
        paths.append(run.path)
    return paths


def test_a_merged_run_says_what_the_whole_one_says(nodes, tmp_path):
    whole = made_run(tmp_path / "whole", hospitals(), unison_plan(3, 80), hospital_draws(80))
    merged = cs.Run(merge(nodes, tmp_path / "merged").path)
    ours, theirs = merged.summary_table(), whole.summary_table()
    assert sorted(ours.index) == sorted(theirs.index)
    for name in ("mean", "low", "high", "ratio", "rhat"):
        np.testing.assert_allclose(ours.loc[theirs.index, name], theirs[name], rtol=1e-9)
    assert json.loads((merged.path / "checks.json").read_text())["sites"][2]["agent"] == 2
    np.testing.assert_allclose(cs.compare(merged)["elpd"], cs.compare(whole)["elpd"], atol=1e-6)
    np.testing.assert_allclose(cs.compare(merged)["se"], cs.compare(whole)["se"], atol=1e-6)
    assert not (merged.path / "loo.zarr").exists(), "no row's own score leaves its node"
    assert "This page holds the counts of every site" in merged.report().read_text()


@pytest.mark.slow(reason="nodes that sample")
def test_without_some_nodes_scores_there_are_none(nodes, tmp_path):
    (nodes[1] / "loo.json").unlink()
    merged = cs.Run(merge(nodes, tmp_path / "merged").path)
    assert not (merged.path / "loo.json").exists()
    with pytest.raises(cs.ConsilienceError, match="merged from nodes without scores"):
        cs.compare(merged)
    assert merged.report().exists()


def test_a_node_keeps_its_rows_to_itself(nodes):
    """What stands beside the draws at a node is of its own rows."""
    problem = hospitals()
    for agent, path in enumerate(nodes):
        stored = json.loads((path / "loo.json").read_text())
        assert [site["agent"] for site in stored["sites"]] == [agent]
        assert stored["sites"][0]["rows"] == problem.shard_sizes[agent]
    with pytest.raises(cs.ConsilienceError, match="rows of 2 agents"):
        store_loo(cs.Run(nodes[0]), problem.of_agents([0, 1]))


@pytest.mark.slow(reason="a network of three processes")
def test_nodes_make_all_this_themselves(tmp_path):
    plan = unison_plan(3, 60, problem="tests.outcome_problems:three_hospitals")
    cs.Peers().run(Task(tmp_path / "run", plan))
    for agent, path in enumerate(node_runs(tmp_path / "run" / "network")):
        run = cs.Run(path)
        assert f"site {agent}: Intercept" in run.summary_table().index
        assert (run.path / "summary.csv").exists()
        assert run.predict({"x": np.ones((2, 3))})["mean"].between(0, 1).all()
    merged = cs.Run(tmp_path / "run")
    assert {f"site {agent}: Intercept" for agent in range(3)} <= set(merged.summary_table().index)
    assert cs.compare(merged)["rows"].tolist() == [125]
