"""A series whose runs differ by their graph alone: what the experiment measures on each, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from consilience.experiments import Experiment
from consilience.plans import Plan
from consilience.reports import Section, figures, tables
from consilience.sampling.run import Run

_LEFT_OUT = ("num_agents", "agents")


def compares_graphs(plans: Mapping[str, Plan]) -> bool:
    """Whether the runs are named by their graphs, several of one size."""
    named = all(name.replace("-", "_") == plan.graph.name for name, plan in plans.items())
    return named and len(plans) > 1 and len({plan.num_agents for plan in plans.values()}) == 1


def rows_by_graph(experiment: Experiment, summaries: Mapping[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """For each graph what the experiment says of its run, and how well the graph is connected."""
    rows = []
    for name, summary in summaries.items():
        (found,) = experiment.series_results({name: summary})["results"]
        measured = {key: value for key, value in found.items() if "paper" not in key and key not in _LEFT_OUT}
        about = {
            "graph": name, "converged": summary.get("converged"),
            "connectivity": summary["graph"]["algebraic_connectivity"],
        }  # fmt: skip
        rows.append({**about, **measured, "agents": found.get("agents", [])})
    return rows


def sections_by_graph(summary: Mapping[str, Any], runs: Mapping[str, Run]) -> list[Section]:
    """The table of all graphs, and how agents come to agree on each."""
    rows = [{key: value for key, value in row.items() if _fits(value)} for row in summary["results"]]
    columns = {key.replace("_", " "): key for key in rows[0]}
    found = [
        Section(
            "Graph by graph",
            "The same data, agents and schedule of steps on each graph. “Connectivity” is λ₂: the larger, the sooner "
            "agents agree. The consensus step keeps each graph stable, so it differs where the graph asks for that.",
            {},
            tables.rows(rows, columns),
        )
    ]
    walked = {name: run for name, run in runs.items() if "consensus_error" in run.metrics}
    if walked:
        text = "The consensus error on each graph over steps."
        found.append(Section("Agreement between agents", text, {"consensus": figures.consensus(walked)}))
    return found


def _fits(value: Any) -> bool:
    return not isinstance(value, list | Mapping)
