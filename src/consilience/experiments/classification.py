"""What experiments with classifiers share: every agent's predictions, in and out of distribution, scored.

What is stored for the report, in `predictions.zarr`: for the held-out inputs, and with the suffix `_NAME` for each
set of out-of-distribution ones, every agent's `confidence` in its `predicted` class and the `deviation` of that over
draws; for sets with labels also the `confusion` (how many of a true class were taken for each class) and the mean
`probability` of each class by true class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from consilience.datasets import Labelled
from consilience.predictive import ClassPredictions, Predictor, detect, parameter_draws, pooled, reliability, score
from consilience.runs import RunDirectory

if TYPE_CHECKING:
    import xarray

Logits = Callable[[Any, Any], Any]
ShowShare = Callable[[float], None]
_CURVE = 15


class OutOfDistribution(NamedTuple):
    """Inputs from elsewhere; with labels if they have classes of the model's, as house numbers have digits."""

    inputs: np.ndarray
    labels: np.ndarray | None = None
    source: str = ""


def predictions(run: RunDirectory, logits: Logits, inputs: np.ndarray, agent: int) -> ClassPredictions:
    """What an agent's stored draws say about some inputs; at temperature 0 its last one alone, a point estimate."""
    draws = run.draws if run.plan.sampler.temperature > 0 else run.draws.isel(draw=[-1])
    predictor = Predictor(logits, inputs)
    predictor.add_all(parameter_draws(draws, agent))
    return predictor.result()


def analyse_classifier(
    run: RunDirectory,
    logits: Logits,
    test: Labelled,
    outside: Mapping[str, OutOfDistribution],
    summary: dict[str, Any],
    show: ShowShare,
) -> None:
    """Add every agent's scores to a summary, and those of all draws together; store predictions for the report.

    Args:
        run: a finished run.
        logits: the model, `(parameters, inputs) -> logits`.
        test: held-out inputs with labels.
        outside: inputs from elsewhere, by name.
        summary: takes the scores.
        show: called with the share that is done.
    """
    variables: list[dict[str, Any]] = []
    agents = summary["agents"]
    inside: list[ClassPredictions] = []
    elsewhere: dict[str, list[ClassPredictions]] = {name: [] for name in outside}
    for place, row in enumerate(agents):
        held_out = predictions(run, logits, test.inputs, row["agent"])
        inside.append(held_out)
        stored = _per_input(held_out, test.labels, "")
        for done, (name, one) in enumerate(outside.items()):
            show((place + (1 + done) / (1 + len(outside))) / len(agents))
            found = predictions(run, logits, one.inputs, row["agent"])
            elsewhere[name].append(found)
            stored |= _per_input(found, one.labels, f"_{name}")
        row |= _scores(held_out, {name: every[-1] for name, every in elsewhere.items()}, test, outside)
        variables.append(stored)
    if len(agents) > 1:
        everywhere = {name: pooled(every) for name, every in elsewhere.items()}
        summary["pooled"] = _scores(pooled(inside), everywhere, test, outside)
    _store(run, test.labels, outside, [row["agent"] for row in agents], variables)
    summary["accuracy_mean"] = float(np.mean([row["accuracy"] for row in agents]))
    summary["accuracy_std"] = float(np.std([row["accuracy"] for row in agents]))
    summary["in_distribution"] = _mean([row["in_distribution"] for row in agents])
    summary["out_of_distribution"] = {
        name: _mean([row["out_of_distribution"][name] for row in agents]) for name in outside
    }


def read_predictions(run: RunDirectory) -> xarray.Dataset:
    """The predictions that `analyse_classifier` stored."""
    return run.read_beside("predictions")


def result_rows(summaries: Mapping[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each run of a series, for its `results`."""
    kept = ("method", "num_agents", "accuracy_mean", "accuracy_std", "in_distribution", "out_of_distribution")
    return [
        {
            **{name: summary[name] for name in kept},
            "pooled": summary.get("pooled"),
            "agents": [{"agent": one["agent"], "accuracy": one["accuracy"]} for one in summary["agents"]],
        }
        for summary in summaries.values()
    ]


def _scores(
    held_out: ClassPredictions,
    found: Mapping[str, ClassPredictions],
    test: Labelled,
    outside: Mapping[str, OutOfDistribution],
) -> dict[str, Any]:
    """Of the draws of one agent, or of all."""
    beside = {name: _outside_scores(held_out, one, outside[name].labels) for name, one in found.items()}
    return {**_held_out_scores(held_out, test.labels), "out_of_distribution": beside}


def _held_out_scores(found: ClassPredictions, labels: np.ndarray) -> dict[str, Any]:
    scores = score(found.probabilities, labels)
    return {
        "accuracy": scores.accuracy,
        "in_distribution": {
            **_confidence(found),
            "log_loss": scores.log_loss,
            "brier": scores.brier,
            "ece": scores.calibration_error,
        },
    }


def _outside_scores(
    held_out: ClassPredictions, found: ClassPredictions, labels: np.ndarray | None
) -> dict[str, float]:
    """Of inputs without labels of ours no prediction is right, so all their confidence is calibration error."""
    confidence = _confidence(found)
    if labels is None:
        right = {"ece": confidence["confidence_mean"]}
    else:
        scores = score(found.probabilities, labels)
        right = {"accuracy": scores.accuracy, "ece": scores.calibration_error}
    return {**confidence, **right, **_detection(held_out, found)}


def _confidence(found: ClassPredictions) -> dict[str, float]:
    return {
        "confidence_mean": float(found.confidence.mean()),
        "confidence_std": float(found.confidence.std()),
        "entropy": float(found.entropy.mean()),
        "mutual_information": float(found.epistemic.mean()),
    }


def _detection(held_out: ClassPredictions, outside: ClassPredictions) -> dict[str, float]:
    by_score = detect(held_out, outside)
    best = by_score["entropy"]
    return {
        "auroc": best.auroc,
        "aupr": best.aupr,
        "fpr95": best.false_alarms,
        "auroc_confidence": by_score["confidence"].auroc,
        "auroc_mutual_information": by_score["mutual_information"].auroc,
    }


def _mean(rows: list[dict[str, float]]) -> dict[str, float]:
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}


def _per_input(found: ClassPredictions, labels: np.ndarray | None, suffix: str) -> dict[str, Any]:
    """What is stored of one agent's predictions: dimensions and values by name."""
    inputs = (f"input{suffix}",)
    stored: dict[str, Any] = {
        "confidence": (inputs, found.confidence.astype(np.float32)),
        "deviation": (inputs, found.confidence_deviation.astype(np.float32)),
        "predicted": (inputs, found.labels.astype(np.int32)),
    }
    if labels is not None:
        classes = found.probabilities.shape[1]
        counts = np.zeros((classes, classes), int)
        np.add.at(counts, (labels, found.labels), 1)
        sums = np.zeros((classes, classes))
        np.add.at(sums, labels, found.probabilities)
        stored["confusion"] = (("true", "class"), counts)
        stored["probability"] = (("true", "class"), sums / np.maximum(counts.sum(1, keepdims=True), 1))
        curve = reliability(found.probabilities, labels, _CURVE)
        for name in ("share", "confidence", "accuracy"):
            stored[f"bin_{name}"] = (("bin",), getattr(curve, name))
    return {name + suffix: value for name, value in stored.items()}


def _store(
    run: RunDirectory,
    labels: np.ndarray,
    outside: Mapping[str, OutOfDistribution],
    agents: list[int],
    by_agent: list[dict[str, Any]],
) -> None:
    variables: dict[str, Any] = {
        name: (("agent", *dimensions), np.stack([stored[name][1] for stored in by_agent]))
        for name, (dimensions, _) in by_agent[0].items()
    }
    variables["label"] = (("input",), labels)
    for name, one in outside.items():
        if one.labels is not None:
            variables[f"label_{name}"] = ((f"input_{name}",), one.labels)
    run.store_beside("predictions", variables, {"agent": agents}, {"out_of_distribution": list(outside)})
