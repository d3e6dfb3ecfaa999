"""What a run shows of the warm-up of a corrected sampler: what it found, and how it got there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.reports import tables
from consilience.reports.figures import COLOURS, styled
from consilience.reports.page import Section
from consilience.reports.tables import shown
from consilience.runs import RunDirectory

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_SCALES = 12


def warmup_in_words(summary: Mapping[str, Any]) -> list[str]:
    """What the warm-up found, and what the run cost."""
    found, cost = summary["adaptation"], summary["rounds_per_effective_draw"]
    exchanges = f"{found['exchanges']} exchange{'' if found['exchanges'] == 1 else 's'}"
    settled = "" if found["settled"] else " The coordinates had not settled when it ended: allow it more steps."
    dear = "" if cost is None else f", {shown(cost)} for one effective draw"
    return [
        f"{summary['method'][0].upper()}{summary['method'][1:]}: step size {shown(found['step_size'])}, {exchanges} "
        f"with neighbours in a step, {found['whitening']} whitening, found in {found['gradients']:,} steps and "
        f"{found['sums']:,} sums over the network.{settled}",
        *_batches_in_words(found),
        f"{summary['gradients']:,} gradients at each agent, {summary['rounds']:,} rounds of messages{dear}.",
        *_prediction_in_words(summary),
    ]


def _prediction_in_words(summary: Mapping[str, Any]) -> list[str]:
    """The errors that are left by the exact law, beside how far agents were found to agree."""
    found = summary["adaptation"].get("predicted")
    if not found or summary["num_agents"] == 1:
        return []
    if "left_out" in found:
        return [f"What errors are left was not predicted: {found['left_out']}."]
    mean, wide = max(found["mean_error"]), max(found["variance_error"], key=abs)
    measured = [row for row in agreement_rows(summary) if row["measured"] is not None]
    beside = ""
    if measured:
        worst = max(measured, key=lambda row: abs(row["measured"]))
        beside = (
            f" Variance beside the network average's, where they differ most (agent {worst['agent']}): predicted "
            f"{100 * worst['predicted']:+.1f} %, measured {100 * worst['measured']:+.1f} %."
        )
    return [
        f"Left by step size and exchanges, by the exact law of a normal posterior: means {_small(mean)} sd off, "
        f"variances {100 * wide:+.1f} % at the worst agent.{beside}"
    ]


def agreement_rows(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """For each agent described the errors predicted, and its variance beside the network average's, both ways."""
    found, rows = summary["adaptation"]["predicted"], []
    average = summary["network_average"]
    for row in summary["agents"]:
        agent = row["agent"]
        pairs = list(zip(row["standard_deviation"], average["standard_deviation"], strict=True))
        ratios = [own**2 / all_agents**2 - 1 for own, all_agents in pairs if own is not None and all_agents]
        apart = [
            abs(own - mean) / spread
            for own, mean, spread in zip(row["mean"], average["mean"], average["standard_deviation"], strict=True)
            if own is not None and mean is not None and spread
        ]
        rows.append(
            {
                "agent": agent,
                "mean_error": found["mean_error"][agent],
                "variance_error": found["variance_error"][agent],
                "predicted": found["excess"][agent],
                "measured": max(ratios, key=abs) if ratios else None,
                "apart": max(apart) if apart else None,
            }
        )
    return rows


def _small(value: float) -> str:
    """A distance in standard deviations, of which thousandths matter to nobody.

    >>> _small(6e-16), _small(0.0234)
    ('< 0.001', '0.023')
    """
    return "< 0.001" if value < 0.001 else f"{value:.2g}"


def prediction_section(run: RunDirectory) -> list[Section]:
    """A table of what was predicted of each agent, beside what its draws show."""
    found = (run.summary.get("adaptation") or {}).get("predicted")
    if not found or run.plan.num_agents == 1:
        return []
    title = "What errors are left"
    if "left_out" in found:
        return [Section(title, f"Not predicted: {found['left_out']}.")]
    shares = ("variance_error", "predicted", "measured")
    rows = [
        {
            "agent": f"agent {row['agent']}",
            **{name: None if row[name] is None else f"{100 * row[name]:+.1f} %" for name in shares},
            **{name: None if row[name] is None else f"{_small(row[name])} sd" for name in ("mean_error", "apart")},
        }
        for row in agreement_rows(run.summary)
    ]
    text = (
        "With the step size and the exchanges that the warm-up found, the exact law of the sampler on a normal "
        "posterior with every agent's own curvature says what errors stay, however long it runs: of each agent its "
        "worst parameter. Draws cannot show an error that all agents share, but how agents differ from the network's "
        "average; beside the prediction of the same, that tells whether the normal posterior is a fair stand-in. "
        "With minibatches variances are those times the temperature that their noise makes."
    )
    columns = {
        "": "agent",
        "mean error, predicted": "mean_error",
        "variance error, predicted": "variance_error",
        "mean from the average's, measured": "apart",
        "variance beside the average's, predicted": "predicted",
        "the same, measured": "measured",
    }
    return [Section(title, text, {}, tables.rows(rows, columns))]


def _batches_in_words(found: Mapping[str, Any]) -> list[str]:
    """How much noise minibatches have left, and what it does."""
    if "heating" not in found:
        return []
    noise, plain, extra = found["gradient_noise"], found["gradient_noise_without"], 100 * (found["heating"] - 1)
    how = f"with control variates (without: {shown(plain)})" if found["control_variates"] else (
        "without control variates"
    )  # fmt: skip
    return [
        f"Minibatches: noise of variance {shown(noise)} in a whitened gradient {how}, which heats by {extra:.2g} %."
    ]


def warmup_section(run: RunDirectory) -> list[Section]:
    """A table of what was found, and a figure of the windows; nothing for samplers whose numbers were given."""
    found = run.summary.get("adaptation") or {}
    if "windows" not in found:
        return []
    facts = {
        "step size": found["step_size"],
        "exchanges in a step": found["exchanges"],
        "largest curvature Λ": found["curvature"],
        "excess ℓ of one agent": found["excess"],
        "whitening": found["whitening"],
        "its condition number": found["condition"],
        "scales of the shared parameters": ", ".join(shown(one) for one in found["scales"][:_MOST_SCALES]),
        "noise of minibatches σ²": found.get("gradient_noise"),
        "without control variates": found.get("gradient_noise_without"),
        "temperature by that noise": found.get("heating"),
        "steps": found["gradients"],
        "sums over the network": found["sums"],
        "rounds": found["rounds"],
    }
    rows = [{"what": what, "value": shown(value)} for what, value in facts.items() if value not in (None, "")]
    text = (
        f"Found by the warm-up, from sums over the network and windows of the sampler's own steps; {_by_hand(run)}. "
        "The figure shows each window in its own coordinates: the eigenvalues of the draws' covariance, which "
        "should come to 1, and by how many standard deviations the mean moved."
    )
    return [
        Section("The warm-up", text, {"warmup": windows(found)}, tables.rows(rows, {"": "what", "value": "value"}))
    ]


def _by_hand(run: RunDirectory) -> str:
    """Which of the numbers were given."""
    usual = {"step_size": None, "exchanges": None, "whitening": "found"}
    given = [name for name, value in usual.items() if getattr(run.plan.sampler, name, value) != value]
    return f"{', '.join(given)} given by hand" if given else "nothing was set by hand"


def windows(found: Mapping[str, Any]) -> Figure:
    """Each window's spread and shift in its own coordinates, and its step size and curvature."""
    rows = found["windows"]
    place = np.arange(1, len(rows) + 1)
    with styled((9.2, 2.6)) as figure:
        left, right = figure.subplots(1, 2)
        low, high = ([row[name] for row in rows] for name in ("least", "largest"))
        left.axhspan(0.3, 2.5, color=COLOURS[0], alpha=0.08)
        left.vlines(place, low, high, color=COLOURS[0], linewidth=5, alpha=0.5, label="eigenvalues of the covariance")
        left.plot(place, [max(row["moved"], 1e-3) for row in rows], "o-", color=COLOURS[1], label="mean moved by")
        left.axhline(1, color="grey", linewidth=0.8, linestyle=":")
        left.set_yscale("log")
        right.plot(place, [row["step_size"] for row in rows], "o-", color=COLOURS[0], label="step size")
        right.plot(place, [row["curvature"] for row in rows], "s-", color=COLOURS[1], label="largest curvature Λ")
        right.plot(place, [row["excess"] for row in rows], "^-", color=COLOURS[2], label="excess ℓ")
        right.set_yscale("log")
        for axis in (left, right):
            axis.set_xticks(place, [f"{int(row['steps'])}" for row in rows])
            axis.set_xlabel("steps of the window")
            axis.legend(fontsize=7.5)
    return figure
