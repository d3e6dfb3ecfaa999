"""Handwritten digits with a small network, offline: SGD, C-ULA and D-ULA(5) on scikit-learn's 1,797 images.

A network of 32 hidden units learns 1,437 images of 8 × 8; 360 are held out. Out-of-distribution inputs are made from
those: with inverted brightness, and with their pixels scrambled by one fixed permutation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from consilience import graphs
from consilience.datasets import Labelled, load, splits
from consilience.experiments.classification import (
    OutOfDistribution,
    ShowShare,
    analyse_classifier,
    read_predictions,
    result_rows,
)
from consilience.experiments.classifier_tables import agent_table, label, method_table
from consilience.graphs import Graph
from consilience.models import classifier, mlp
from consilience.plans import Plan
from consilience.problems import Problem
from consilience.reports import Section, prediction_figures
from consilience.runs import RunDirectory
from consilience.samplers import dula
from consilience.schedules import FromTo

_HELD_OUT = 360
_PRIOR_SCALE = 5.0
_SETTINGS = "MLP with 32 hidden units, prior N(0, 25/fan_in), minibatches of 32, step size from 0.001 to 0.0001"


class Digits:
    """The digits experiment."""

    name = "digits"
    title = "Handwritten digits (8 × 8) with a small network, offline"
    main = "d-ula-5"
    needs_all_data = False
    network = mlp(64, [32], 10)

    def plans(self, num_steps: int | None = None) -> dict[str, Plan]:
        """SGD and C-ULA with all the data, D-ULA with 5 agents."""
        alone = self.plan(1, None, num_steps)
        cold = alone.replace(sampler=alone.sampler.model_copy(update={"temperature": 0.0}))
        return {"sgd": cold, "c-ula": alone, "d-ula-5": self.plan(5, None, num_steps)}

    def plan(self, num_agents: int, graph: Graph | None = None, num_steps: int | None = None) -> Plan:
        """The same step sizes for every network; predictions come from the second half of the steps."""
        graph, steps = graph or graphs.ring(num_agents), num_steps or 8000
        pull = 0.9 * graph.proven_consensus_limit if graph.num_edges else 1.0
        return Plan(
            problem=self.name,
            graph=graph,
            sampler=dula(FromTo(start=1e-3, end=1e-4, num_steps=steps, exponent=0.55), pull),
            num_steps=steps,
            burn_in=steps // 2,
            store_every=max(1, steps // 400),
            batch_size=max(1, min(32, (len(load("digits").labels) - _HELD_OUT) // num_agents)),
        )

    def problem_of(self, plan: Plan, agents: Sequence[int] | None = None) -> Problem:
        """The training images split among the agents of a plan, by its seed."""
        whole = self.problem(plan.num_agents, plan.seed)
        return whole if agents is None else whole.of_agents(agents)

    def problem(self, num_agents: int, seed: int = 0) -> Problem:
        """The training images split at random."""
        train, _ = _parts(seed)
        rows = splits.equal(len(train.labels), num_agents, seed)
        shards = [(train.inputs[own], train.labels[own]) for own in rows]
        return classifier(self.network, shards, "normal", _PRIOR_SCALE, self.title)

    def analyse(self, run: RunDirectory, problem: Problem, summary: dict[str, Any], show: ShowShare) -> None:
        """Every agent's predictions on held-out and on out-of-distribution images."""
        _, test = _parts(run.plan.seed)
        summary["settings"] = _SETTINGS
        analyse_classifier(run, self.network.logits, test, _outside(test.inputs), summary, show)

    def sections(self, run: RunDirectory) -> list[Section]:
        """Accuracy, calibration and out-of-distribution images of one run."""
        summary = run.summary
        return [
            Section(
                "Predictions",
                "Class probabilities averaged over the draws of the second half of the run, on "
                f"{_HELD_OUT} held-out images. {_SETTINGS}.",
                {"reliability": prediction_figures.reliability(read_predictions(run))},
                agent_table(summary),
            ),
            Section(
                "Out-of-distribution images",
                "How sure the network is of what it has never seen: brightness inverted, pixels scrambled. The AUROC "
                "is for telling them from held-out digits by the entropy of the prediction.",
                {"confidence": prediction_figures.confidence(read_predictions(run))},
            ),
        ]

    def series_results(self, summaries: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        """One row for each method."""
        return {"results": result_rows(summaries), "paper": None}

    def verdict(self, summaries: Mapping[str, dict[str, Any]]) -> str:
        """What the series shows, in words, from its numbers."""
        main, point = summaries.get("d-ula-5"), summaries.get("sgd")
        if main is None or point is None:
            return ""
        gain = 100 * (main["accuracy_mean"] - point["accuracy_mean"])
        spread = 100 * main["accuracy_std"]
        kinds = {kind: scores["auroc"] - point["out_of_distribution"][kind]["auroc"]
                 for kind, scores in main["out_of_distribution"].items()}  # fmt: skip
        better = [kind for kind, difference in kinds.items() if difference > 0]
        told = (
            f"tell {' and '.join(better)} images apart better"
            if better
            else "tell out-of-distribution images apart no better"
        )
        beside = "level with" if abs(gain) < 0.05 else f"{abs(gain):.1f} points {'above' if gain > 0 else 'below'}"
        return (
            f"The five agents, each with a fifth of the images, are {beside} SGD with all of them; their accuracies "
            f"differ by {spread:.1f} points (standard deviation). Their posteriors {told} than SGD does. "
            "The paper has no such experiment."
        )

    def series_sections(self, runs: Mapping[str, RunDirectory]) -> list[Section]:
        """The methods side by side."""
        summaries = {name: run.summary for name, run in runs.items()}
        stored = {label(summaries[name]): read_predictions(run) for name, run in runs.items()}
        return [
            Section(
                "Accuracy, calibration and out-of-distribution images",
                f"{_SETTINGS}. Predictions on {_HELD_OUT} held-out images; AUROC for telling "
                "out-of-distribution images from them by the entropy of the prediction.",
                {"methods": prediction_figures.methods(stored)},
                method_table(summaries),
            )
        ]


@lru_cache(maxsize=8)
def _parts(seed: int) -> tuple[Labelled, Labelled]:
    """Training and held-out images."""
    whole = load("digits")
    rows = np.random.default_rng([7, seed]).permutation(len(whole.labels))
    return tuple(  # type: ignore[return-value]
        Labelled(whole.inputs[own], whole.labels[own], whole.num_classes, whole.source)
        for own in (rows[_HELD_OUT:], rows[:_HELD_OUT])
    )


def _outside(images: np.ndarray) -> dict[str, OutOfDistribution]:
    scramble = np.random.default_rng(0).permutation(64)
    scrambled = images.reshape(-1, 64)[:, scramble].reshape(images.shape)
    return {"inverted": OutOfDistribution(1 - images), "scrambled": OutOfDistribution(scrambled)}
