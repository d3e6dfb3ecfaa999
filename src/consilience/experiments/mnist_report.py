"""What the report of the MNIST experiment shows: the paper's tables and figures with ours, and a verdict in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.experiments.classification import read_predictions
from consilience.experiments.classifier_tables import agent_table, label, method_table, percent
from consilience.plans import Plan
from consilience.reports import Section, image_figures, prediction_figures, tables
from consilience.runs import RunDirectory

if TYPE_CHECKING:
    import xarray

PAPER: dict[str, dict[str, Any]] = {
    "SGD": {
        "accuracy": [0.9815], "confidence": [0.974], "confidence_std": [0.078],
        "svhn_accuracy": [0.07648], "svhn_confidence": [0.849], "svhn_confidence_std": [0.154],
    },
    "C-ULA": {
        "accuracy": [0.9816], "confidence": [0.968], "confidence_std": [0.086],
        "svhn_accuracy": [0.089313], "svhn_confidence": [0.604], "svhn_confidence_std": [0.169],
    },
    "D-ULA": {
        "accuracy": [0.9852, 0.9852, 0.9839, 0.9845, 0.9847],
        "confidence": [0.973, 0.972, 0.972, 0.973, 0.973],
        "confidence_std": [0.079, 0.08, 0.08, 0.08, 0.08],
        "svhn_accuracy": [0.14897, 0.1344, 0.15346, 0.13506, 0.15934],
        "svhn_confidence": [0.659, 0.6588, 0.653, 0.663, 0.651],
        "svhn_confidence_std": [0.188, 0.189, 0.188, 0.19, 0.187],
    },
}  # fmt: skip
"""The paper's figures, one for each agent."""
PAPER_SETTINGS = (
    "10 epochs, a uniform prior of Kaiming's scale, step sizes α_0/(230 + k)^0.55 with α_0 = 0.00024, 0.00034 and "
    "0.00032 in minibatches of 1,024, 1,024 and 256 for SGD, C-ULA and D-ULA; β_k = 0.48/(230 + k)^0.05; every agent "
    "starts at a random network of its own"
)
_LEVELS = {"high": 0.999, "medium": 0.7, "low": 0.4}


def settings(plan: Plan, prior: str, scale: float) -> str:
    """The settings of a run in words."""
    described = (
        f"N(0, {scale**2:g}/fan_in)" if prior == "normal" else "uniform of Kaiming's scale, which has no gradient"
    )
    return (
        f"{plan.num_steps:,} steps with minibatches of {plan.batch_size}, {plan.sampler.describe(plan.num_steps)}, "
        f"prior {described}, temperature "
        f"{plan.sampler.temperature:g}; every agent starts at a random network of its own; predictions average "
        f"{plan.num_stored if plan.sampler.temperature else 1} draws"
    )


def store_examples(run: RunDirectory, digits: np.ndarray, numbers: np.ndarray) -> None:
    """Keep three test images and three house numbers: those that the agents are sure, less sure and unsure of."""
    found = read_predictions(run)
    images: list[np.ndarray] = []
    about: list[dict[str, Any]] = []
    for kind, (suffix, inputs) in {"MNIST": ("", digits), "SVHN": ("_svhn", numbers)}.items():
        confidence = found[f"confidence{suffix}"].mean("agent").to_numpy()
        for level, wanted in _LEVELS.items():
            place = int(np.abs(confidence - wanted).argmin())
            images.append(inputs[place])
            about.append({"kind": kind, "level": level, "place": place, "suffix": suffix})
    dimensions = ("example", "row", "column")
    run.store_beside("examples", {"image": (dimensions, np.stack(images))}, attributes={"about": about})


def run_sections(run: RunDirectory) -> list[Section]:
    """Accuracy, calibration and out-of-distribution images of one run."""
    summary, found = run.summary, read_predictions(run)
    name = label(summary)
    return [
        Section(
            "Predictions",
            f"On MNIST's 10,000 test images. {summary['settings']}. Data: {', '.join(summary['data'])}.",
            {"reliability": prediction_figures.reliability(found)},
            agent_table(summary),
        ),
        Section(
            "Images from elsewhere",
            "How sure the network is of what it has never seen; AUROC for telling it from MNIST by the entropy of "
            "the prediction.",
            {"confidence": prediction_figures.confidence(found)},
            paper_table({name: run}),
        ),
        *_class_sections({name: found}),
        _example_section({name: found}, _read_examples(run)),
    ]


def series_sections(runs: Mapping[str, RunDirectory]) -> list[Section]:
    """The paper's tables and figures, and what it does not show."""
    summaries = {name: run.summary for name, run in runs.items()}
    named = {label(summaries[name]): run for name, run in runs.items()}
    found = {name: read_predictions(run) for name, run in named.items()}
    main = runs.get("d-ula-5") or next(iter(runs.values()))
    own = "; ".join(f"{label(one)}: {one['settings']}" for one in summaries.values())
    return [
        Section(
            "Accuracy and probability of the predicted label",
            "The paper's tables, its figures beside ours: mean (standard deviation) of the predicted label's "
            f"probability over the test images. Settings here — {own}. The paper's — {PAPER_SETTINGS}. Data: "
            f"{', '.join(next(iter(summaries.values()))['data'])}.",
            table=paper_table(named),
        ),
        Section(
            "Calibration and images from elsewhere",
            "Beyond the paper: proper scores and calibration on MNIST, and how well the entropy of the prediction "
            "tells house numbers, clothing and cursive characters from digits (AUROC). Above: accuracy over "
            "confidence; below: the density of the predicted label's probability, as in the paper (that of held-out "
            "images runs off the top).",
            {"methods": prediction_figures.methods(found)},
            method_table(summaries),
        ),
        *_class_sections(found),
        _example_section(found, _read_examples(main)),
    ]


def scan_sections(results: Mapping[str, Any]) -> list[Section]:
    """The trade-off between accuracy and confidence over temperature and prior."""
    points, paper = _scan_points(results), _paper_means()
    curves = {
        prior: [one for one in points if one["prior"] == prior] for prior in {one["prior"]: 0 for one in points}
    }
    panels: dict[str, dict[str, Any]] = {
        "accuracy": {"title": "MNIST accuracy, %", "paper": 100 * paper["accuracy"]},
        "confidence": {"title": "confidence on MNIST", "paper": paper["confidence"]},
        "svhn": {"title": "confidence on SVHN", "paper": paper["svhn_confidence"]},
        "auroc": {"title": "AUROC, MNIST or SVHN", "paper": None},
    }
    columns = {
        "Prior": "prior", "Temperature": "temperature", "Accuracy, %": "accuracy",
        "Confidence on MNIST": "confidence", "on SVHN": "svhn", "AUROC": "auroc", "ECE": "ece",
    }  # fmt: skip
    return [
        Section(
            "Temperature and prior",
            "D-ULA with five agents, everything else equal. Temperature 1 samples the posterior, 0 is gradient "
            "descent with consensus. Means over agents.",
            {"trade-off": image_figures.trade_off(curves, panels)},
            tables.rows(points, columns),
        )
    ]


def scan_verdict(results: Mapping[str, Any]) -> str:
    """Which setting the paper's figures correspond to, in words, from the scan's numbers."""
    points, paper = _scan_points(results), _paper_means()

    def words(one: Mapping[str, Any]) -> str:
        return (
            f"accuracy {one['accuracy']:.2f} %, confidence {one['confidence']:.3f} on MNIST and {one['svhn']:.3f} on "
            "SVHN"
        )

    nearest = min(points, key=lambda one: _distance(one, paper))
    told = (
        f"Nearest to the paper's D-ULA (accuracy {100 * paper['accuracy']:.2f} %, confidence "
        f"{paper['confidence']:.3f} on MNIST and {paper['svhn_confidence']:.3f} on SVHN) is the {nearest['prior']} "
        f"at temperature {nearest['temperature']:g}: {words(nearest)}."
    )
    for one in points:
        if one["temperature"] == 1 and one is not nearest:
            told += f" The posterior itself, temperature 1, with the {one['prior']}: {words(one)}."
    return told


def _scan_points(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the scan shows of each run, by prior and temperature."""
    points = [
        {
            "prior": f"{row['prior']} prior",
            "temperature": row["temperature"],
            "accuracy": 100 * row["accuracy_mean"],
            "confidence": row["in_distribution"]["confidence_mean"],
            "ece": row["in_distribution"]["ece"],
            "svhn": row["out_of_distribution"]["svhn"]["confidence_mean"],
            "auroc": row["out_of_distribution"]["svhn"]["auroc"],
        }
        for row in results["results"]
    ]
    return sorted(points, key=lambda one: (one["prior"], one["temperature"]))


def _paper_means() -> dict[str, float]:
    """The paper's figures for D-ULA, averaged over agents."""
    return {key: float(np.mean(values)) for key, values in PAPER["D-ULA"].items()}


def verdict(summaries: Mapping[str, Mapping[str, Any]]) -> str:
    """What the series shows beside the paper, in words, from its numbers."""
    told = []
    for summary in summaries.values():
        paper = PAPER.get(summary["method"])
        if paper is None:
            told.append(
                f"{label(summary)}: accuracy {percent(summary['accuracy_mean'])}; the paper has no such method."
            )
            continue
        gap = 100 * (summary["accuracy_mean"] - float(np.mean(paper["accuracy"])))
        worth = "reproduced" if abs(gap) <= 0.15 else f"{'better' if gap > 0 else 'worse'} by {abs(gap):.2f} points"
        shift = summary["out_of_distribution"]["svhn"]["confidence_mean"] - float(np.mean(paper["svhn_confidence"]))
        surer = "as sure of house numbers" if abs(shift) <= 0.03 else (
            f"{'surer' if shift > 0 else 'less sure'} of house numbers by {abs(shift):.2f}"
        )  # fmt: skip
        told.append(
            f"{label(summary)}: accuracy {percent(summary['accuracy_mean'])}, {worth} (paper "
            f"{percent(float(np.mean(paper['accuracy'])))}); {surer}."
        )
    many, point = summaries.get("d-ula-5"), summaries.get("sgd")
    if many is not None and point is not None:
        ours, theirs = (one["out_of_distribution"]["svhn"]["auroc"] for one in (many, point))
        told.append(
            f"House numbers are told from digits with an AUROC of {ours:.3f} by D-ULA's posterior and {theirs:.3f} "
            f"by SGD: {'better' if ours > theirs else 'no better'}."
        )
    return " ".join(told)


def _distance(row: Mapping[str, Any], paper: Mapping[str, float]) -> float:
    """How far a row is from the paper's figures, each in units of what would count as a difference."""
    return float(
        abs(row["accuracy"] / 100 - paper["accuracy"]) / 0.002
        + abs(row["confidence"] - paper["confidence"]) / 0.01
        + abs(row["svhn"] - paper["svhn_confidence"]) / 0.05
    )


def paper_table(runs: Mapping[str, RunDirectory]) -> tables.Table:
    """Accuracy and confidence of every agent beside the paper's."""
    rows = []
    for name, run in runs.items():
        summary = run.summary
        paper, agents = PAPER.get(summary["method"], {}), summary["agents"]
        for row in agents:
            inside, outside = row["in_distribution"], row["out_of_distribution"]["svhn"]
            beside = {key: _of_agent(paper.get(key, ()), row["agent"]) for key in PAPER["D-ULA"]}
            rows.append(
                {
                    "name": name if len(agents) == 1 else f"{summary['method']}, agent {row['agent']}",
                    "accuracy": percent(row["accuracy"]),
                    "paper accuracy": percent(beside["accuracy"]),
                    "confidence": _spread(inside["confidence_mean"], inside["confidence_std"]),
                    "paper confidence": _spread(beside["confidence"], beside["confidence_std"]),
                    "svhn": percent(outside["accuracy"]),
                    "paper svhn": percent(beside["svhn_accuracy"]),
                    "svhn confidence": _spread(outside["confidence_mean"], outside["confidence_std"]),
                    "paper svhn confidence": _spread(beside["svhn_confidence"], beside["svhn_confidence_std"]),
                }
            )
    columns = {
        "": "name", "MNIST": "accuracy", "paper": "paper accuracy", "confidence": "confidence",
        "paper ": "paper confidence", "SVHN": "svhn", "paper  ": "paper svhn", "confidence ": "svhn confidence",
        "paper   ": "paper svhn confidence",
    }  # fmt: skip
    return tables.rows(rows, columns)


def _of_agent(values: Sequence[float], agent: int) -> float | None:
    return values[agent] if agent < len(values) else None


def _spread(mean: float | None, deviation: float | None) -> str:
    return "–" if mean is None or deviation is None else f"{mean:.3f} ({deviation:.3f})"


def _class_sections(found: Mapping[str, xarray.Dataset]) -> list[Section]:
    """Confusion matrices and mean probabilities by true label; of several agents the first one's."""

    def maps(kind: str, suffix: str) -> dict[str, np.ndarray]:
        first = {name: one[f"{kind}{suffix}"].isel(agent=0).to_numpy() for name, one in found.items()}
        return {name: values / np.maximum(values.sum(1, keepdims=True), 1e-12) for name, values in first.items()}

    sets = {"MNIST": "", "SVHN": "_svhn"}
    return [
        Section(
            "Confusion",
            "Of all images of a true label (down), how many are taken for which label (across), in percent; of "
            "several agents the first. On MNIST the diagonal is nearly all; house numbers go to a few labels.",
            {"confusion": image_figures.class_maps({k: maps("confusion", v) for k, v in sets.items()}, "share")},
        ),
        Section(
            "Average probabilities",
            "The probability that each label gets on average over the images of a true label, in percent. Where a "
            "network is unsure, it is spread over many.",
            {"probabilities": image_figures.class_maps({k: maps("probability", v) for k, v in sets.items()}, "mean")},
        ),
    ]


def _example_section(found: Mapping[str, xarray.Dataset], examples: xarray.Dataset) -> Section:
    """Six single images, and what every method and agent makes of them."""
    rows, captions, titles = [], [], []
    for about in examples.attrs["about"]:
        suffix, place = about["suffix"], about["place"]
        titles.append(f"{about['kind']}, {about['level']}")
        row = {"image": titles[-1], "true": str(next(iter(found.values()))[f"label{suffix}"].to_numpy()[place])}
        for name, one in found.items():
            for agent in range(one.sizes["agent"]):
                sure, spread = (float(one[f"{key}{suffix}"][agent, place]) for key in ("confidence", "deviation"))
                who = f"agent {agent}" if one.sizes["agent"] > 1 else name
                row[who] = f"{int(one[f'predicted{suffix}'][agent, place])}: {sure:.3f} ± {spread:.3f}"
        rows.append(row)
        captions.append(f"true {row['true']}, seen\n{row[who]}")
    columns = {"Image, confidence": "image", "True": "true"}
    columns |= {who: who for who in rows[0] if who not in ("image", "true")}
    return Section(
        "Single images",
        "Images of high, medium and low confidence: predicted label, mean and standard deviation over draws of its "
        "probability, for every method and agent. Below each image what the last column says.",
        {"examples": image_figures.examples(list(examples["image"].to_numpy()), titles, captions)},
        tables.rows(rows, columns),
    )


def _read_examples(run: RunDirectory) -> xarray.Dataset:
    return run.read_beside("examples").load()
