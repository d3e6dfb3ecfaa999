"""Tables of experiments with classifiers: a row for each agent, or for each method of a series."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from consilience.reports.tables import Table, rows


def agent_table(summary: Mapping[str, Any]) -> Table:
    """Every agent's scores."""
    scored = [_scored(row, f"agent {row['agent']}", row["accuracy"]) for row in summary["agents"]]
    return rows(scored, _columns("", summary))


def method_table(summaries: Mapping[str, Mapping[str, Any]]) -> Table:
    """Every method's scores, averaged over its agents."""
    scored = [_scored(one, label(one), one["accuracy_mean"]) for one in summaries.values()]
    return rows(scored, _columns("Method", next(iter(summaries.values()))))


def label(summary: Mapping[str, Any]) -> str:
    """The method, and how many agents if there are several."""
    agents = f" ({summary['num_agents']} agents)" if summary["num_agents"] > 1 else ""
    return summary["method"] + agents


def percent(share: float | None) -> str:
    """A share as people read it."""
    return "–" if share is None else f"{100 * share:.2f} %"


def _columns(first: str, summary: Mapping[str, Any]) -> dict[str, str]:
    kinds = list(summary["out_of_distribution"])
    return {
        first: "name", "Accuracy": "accuracy", "Log loss": "log_loss", "Brier": "brier", "ECE": "ece",
        "Confidence": "confidence",
        **{f"on {kind}": kind for kind in kinds},
        **{f"AUROC {kind}": f"auroc_{kind}" for kind in kinds},
    }  # fmt: skip


def _scored(row: Mapping[str, Any], name: str, accuracy: float) -> dict[str, Any]:
    inside, outside = row["in_distribution"], row["out_of_distribution"]
    return {
        "name": name,
        "accuracy": percent(accuracy),
        "log_loss": inside["log_loss"],
        "brier": inside["brier"],
        "ece": inside["ece"],
        "confidence": inside["confidence_mean"],
        **{kind: scores["confidence_mean"] for kind, scores in outside.items()},
        **{f"auroc_{kind}": scores["auroc"] for kind, scores in outside.items()},
    }
