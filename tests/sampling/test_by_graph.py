"""Graphs compared by an experiment's result: one command, one table, one report."""

import json

import pytest

from consilience.errors import PlanError
from consilience.experiments import EXPERIMENTS
from consilience.sampling import series
from consilience.sampling.by_graph import compares_graphs
from consilience.sampling.targets import main_plan, plans_for
from consilience.sampling.wishes import Wishes


def test_several_graphs_make_a_series_of_one_size():
    found = plans_for("gmm", Wishes(graph="ring,star, watts-strogatz", num_agents=6, num_steps=500))
    plans = {name: one.plan for name, one in found.items()}
    assert {name: (plan.num_agents, plan.graph.name) for name, plan in plans.items()} == {
        "ring": (6, "ring"), "star": (6, "star"), "watts-strogatz": (6, "watts_strogatz"),
    }  # fmt: skip
    assert compares_graphs(plans)
    assert not compares_graphs(EXPERIMENTS["gmm"].plans(500))
    assert list(plans_for("gmm", Wishes(graph="star", num_steps=500))) == ["run"]


@pytest.mark.parametrize("target", ["tests.sampling.test_targets:own", "gmm"])
def test_where_one_network_is_asked_for_several_graphs_are_refused(target):
    ask = main_plan if target == "gmm" else plans_for
    with pytest.raises(PlanError, match="name one graph"):
        ask(target, Wishes(graph="ring,star", num_agents=3, num_steps=500))


@pytest.mark.slow(reason="two runs of the mixture, and their comparisons")
def test_a_series_by_graph_has_one_row_for_each(tmp_path):
    plans = plans_for("gmm", Wishes(graph="ring,complete", num_steps=2000, entries={"num_chains": 2}))
    series.start_series("gmm", {name: one.plan for name, one in plans.items()}, tmp_path / "s", lambda plan: None)
    summary = json.loads((tmp_path / "s" / "summary.json").read_text())
    assert [row["graph"] for row in summary["results"]] == ["ring", "complete"]
    assert [row["connectivity"] for row in summary["results"]] == pytest.approx([1.381966, 5.0])
    assert all(row["sinkhorn"] > 0 and row["converged"] is False for row in summary["results"])
    assert summary["converged"] is False
    assert "2 of 2 runs (ring: R-hat" in summary["verdict"]
    page = series.report_series(tmp_path / "s").read_text()
    assert "Graph by graph" in page
    assert "What to do:" in page
