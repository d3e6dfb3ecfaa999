"""What experiments with classifiers share: every agent's predictions on familiar and strange inputs, scored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import xarray

from consilience.datasets import Labelled
from consilience.predictive import ClassPredictions, Predictor, detect, parameter_draws, reliability, score
from consilience.runs import RunDirectory

Logits = Callable[[Any, Any], Any]
_CURVE = 15


def predictions(run: RunDirectory, logits: Logits, inputs: np.ndarray, agent: int) -> ClassPredictions:
    """What an agent's stored draws say about some inputs; at temperature 0 its last one alone, a point estimate."""
    draws = run.draws if run.plan.sampler.temperature > 0 else run.draws.isel(draw=[-1])
    predictor = Predictor(logits, inputs)
    predictor.add_all(parameter_draws(draws, agent))
    return predictor.result()


def analyse_classifier(
    run: RunDirectory, logits: Logits, test: Labelled, strange: Mapping[str, np.ndarray], summary: dict[str, Any]
) -> None:
    """Add every agent's scores to a summary, and store its predictions for the report.

    Args:
        run: a finished run.
        logits: the model, `(parameters, inputs) -> logits`.
        test: held-out inputs with labels.
        strange: inputs from elsewhere, by name.
        summary: takes the scores.
    """
    found = {}
    for row in summary["agents"]:
        familiar = predictions(run, logits, test.inputs, row["agent"])
        row |= _familiar_scores(familiar, test.labels)
        row["out_of_distribution"] = {}
        elsewhere = {name: predictions(run, logits, inputs, row["agent"]) for name, inputs in strange.items()}
        for name, one in elsewhere.items():
            row["out_of_distribution"][name] = {**_confidence(one), **_detection(familiar, one)}
        found[row["agent"]] = (familiar, elsewhere)
    _store(run, test.labels, found)
    agents = summary["agents"]
    summary["accuracy_mean"] = float(np.mean([row["accuracy"] for row in agents]))
    summary["accuracy_std"] = float(np.std([row["accuracy"] for row in agents]))
    summary["in_distribution"] = _mean([row["in_distribution"] for row in agents])
    summary["out_of_distribution"] = {
        name: _mean([row["out_of_distribution"][name] for row in agents]) for name in strange
    }


def read_predictions(run: RunDirectory) -> xarray.Dataset:
    """The predictions that `analyse_classifier` stored."""
    return xarray.open_zarr(run.path / "predictions.zarr", chunks=None, consolidated=False)


def method_of(summary: Mapping[str, Any], temperature: float) -> str:
    """What the algorithm is called: SGD, C-ULA or D-ULA."""
    if summary["num_agents"] > 1:
        return "D-ULA"
    return "C-ULA" if temperature > 0 else "SGD"


def _familiar_scores(found: ClassPredictions, labels: np.ndarray) -> dict[str, Any]:
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


def _confidence(found: ClassPredictions) -> dict[str, float]:
    return {
        "confidence_mean": float(found.confidence.mean()),
        "confidence_std": float(found.confidence.std()),
        "entropy": float(found.entropy.mean()),
        "mutual_information": float(found.epistemic.mean()),
    }


def _detection(familiar: ClassPredictions, strange: ClassPredictions) -> dict[str, float]:
    by_score = detect(familiar, strange)
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


def _store(run: RunDirectory, labels: np.ndarray, found: Mapping[int, Any]) -> None:
    """Keep each agent's confidence on every input, and the reliability of its predictions."""
    agents = list(found)
    curves = [reliability(found[agent][0].probabilities, labels, _CURVE) for agent in agents]
    variables: dict[str, Any] = {
        "confidence": (("agent", "input"), np.stack([found[agent][0].confidence for agent in agents])),
        "predicted": (("agent", "input"), np.stack([found[agent][0].labels for agent in agents])),
        "label": (("input",), labels),
        "bin_share": (("agent", "bin"), np.stack([curve.share for curve in curves])),
        "bin_confidence": (("agent", "bin"), np.stack([curve.confidence for curve in curves])),
        "bin_accuracy": (("agent", "bin"), np.stack([curve.accuracy for curve in curves])),
    }
    for name in found[agents[0]][1]:
        values = np.stack([found[agent][1][name].confidence for agent in agents])
        variables[f"confidence_{name}"] = (("agent", f"{name}_input"), values)
    xarray.Dataset(variables, {"agent": agents}).to_zarr(run.path / "predictions.zarr", mode="w", consolidated=False)
