"""The paper's third experiment: LeNet-5 on MNIST with SGD, C-ULA and D-ULA(5), and what it makes of others.

Five agents hold 12,000 of the 60,000 images each; training takes 10 epochs, predictions average the class
probabilities of draws from the second half. Out of distribution are house numbers (SVHN, grey), clothing and cursive
characters. All are 32 × 32 with values between 0 and 1.

The paper's step size for D-ULA lies on the edge of stability, where some seeds never learn. Ours train for every
seed; the report says both in words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import jax
import numpy as np

from consilience import graphs
from consilience.datasets import Labelled, load, splits
from consilience.experiments import mnist_report
from consilience.experiments.classification import OutOfDistribution, ShowShare, analyse_classifier, result_rows
from consilience.graphs import Graph
from consilience.models import Network, classifier, lenet5
from consilience.models.classifier import Prior
from consilience.plans import Plan
from consilience.problems import Problem
from consilience.reports import Section
from consilience.runs import RunDirectory
from consilience.samplers import dula
from consilience.schedules import FromTo

_EPOCHS = 10
_IMAGES = 60_000
_DRAWS = 10
_BATCH_OF_NETWORK = 240  # images that all agents together look at in a step
_ORDER = 12345  # decides which images are held out, whatever the seed of a plan
_NETWORK = lenet5()


@dataclass(frozen=True)
class MNIST:
    """The MNIST experiment with one prior.

    Attributes:
        name: what the command line calls it.
        prior: of the weights.
        scale: of a normal prior, in units of `1/sqrt(fan_in)`.
        temperature: of C-ULA and D-ULA.
        holds_out: whether a twelfth of the training images, the same for every seed, is held out to choose settings.
        concentration: of the Dirichlet distribution by which each label's images are shared out; without it they
            are shared out evenly.
    """

    name: str = "mnist"
    prior: Prior = "normal"
    scale: float = 1.5
    temperature: float = 0.3
    holds_out: bool = False
    concentration: float | None = None

    main = "d-ula-5"
    needs_all_data = False

    @property
    def title(self) -> str:
        """What it is, with its prior, and what sets it apart."""
        kept = ", some images held out" * self.holds_out
        skewed = ", agents that differ in their labels" * (self.concentration is not None)
        return f"LeNet-5 on MNIST with a {self.prior} prior, and images from elsewhere{kept}{skewed}"

    def plans(self, num_steps: int | None = None) -> dict[str, Plan]:
        """SGD and C-ULA with all images, D-ULA with 5 agents."""
        alone = self.plan(1, None, num_steps)
        return {"sgd": _at(alone, 0.0), "c-ula": alone, "d-ula-5": self.plan(5, None, num_steps)}

    def plan(self, num_agents: int, graph: Graph | None = None, num_steps: int | None = None) -> Plan:
        """As many images a step for every network; draws come from the second half of the steps.

        A single agent begins with half the step size: at the networks' it would overshoot, for some seeds beyond
        repair.
        """
        graph, batch = graph or graphs.ring(num_agents), max(1, _BATCH_OF_NETWORK // num_agents)
        images = _IMAGES - _held_out(_IMAGES) if self.holds_out else _IMAGES
        steps = num_steps or _EPOCHS * max(1, images // num_agents // batch)
        pull = 0.9 * graph.proven_consensus_limit if graph.num_edges else 1.0
        first = 2e-5 if num_agents > 1 else 1e-5
        return Plan(
            problem=self.name,
            graph=graph,
            sampler=dula(FromTo(start=first, end=1e-6, num_steps=steps, exponent=0.55), pull, self.temperature),
            num_steps=steps,
            burn_in=steps // 2,
            store_every=max(1, (steps - steps // 2) // _DRAWS),
            batch_size=batch,
        )

    def problem_of(self, plan: Plan, agents: Sequence[int] | None = None) -> Problem:
        """The training images split by the plan's seed; each agent's are enlarged apart."""
        train = training_images() if self.holds_out else _images("mnist", "train")
        if self.concentration is None:
            rows = splits.equal(len(train.labels), plan.num_agents, plan.seed)
        else:
            rows = splits.by_label(train.labels, plan.num_agents, self.concentration, plan.seed)
        wanted = range(plan.num_agents) if agents is None else agents
        shards = [(_enlarged(train.inputs[rows[agent]]), train.labels[rows[agent]]) for agent in wanted]
        made = classifier(_NETWORK, shards, self.prior, self.scale, self.title)
        return made if agents is None else replace(made, network_size=plan.num_agents)

    def analyse(self, run: RunDirectory, problem: Problem, summary: dict[str, Any], show: ShowShare) -> None:
        """Every agent's predictions on MNIST's test images and on images from elsewhere."""
        outside = _outside()
        test = _images("mnist", "test")
        summary["settings"] = mnist_report.settings(run.plan, self.prior, self.scale)
        summary["paper_settings"] = mnist_report.PAPER_SETTINGS
        summary["prior"], summary["temperature"] = self.prior, run.plan.sampler.temperature
        summary["data"] = [test.source, *(one.source for one in outside.values())]
        analyse_classifier(run, _NETWORK.logits, test, outside, summary, show)
        summary["paper"] = mnist_report.PAPER.get(summary["method"])
        mnist_report.store_examples(run, test.inputs, outside["svhn"].inputs)

    def sections(self, run: RunDirectory) -> list[Section]:
        """Accuracy, calibration and out-of-distribution images of one run."""
        return mnist_report.run_sections(run)

    def series_results(self, summaries: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        """One row for each method, beside the paper's figures."""
        return {"results": result_rows(summaries), "paper": mnist_report.PAPER}

    def verdict(self, summaries: Mapping[str, dict[str, Any]]) -> str:
        """Beside the paper, method by method."""
        return mnist_report.verdict(summaries)

    def series_sections(self, runs: Mapping[str, RunDirectory]) -> list[Section]:
        """The paper's tables and figures, and what it does not show."""
        return mnist_report.series_sections(runs)


@dataclass(frozen=True)
class MNISTScan:
    """D-ULA(5) at several temperatures with two priors: what each does to accuracy and confidence."""

    name: str = "mnist-scan"
    title = "LeNet-5 on MNIST: temperatures and priors"
    main = "normal-1"
    needs_all_data = False
    temperatures = (1.0, 0.3, 0.0)

    def plans(self, num_steps: int | None = None) -> dict[str, Plan]:
        """One run for each temperature and prior."""
        return {
            f"{prior}-{temperature:g}": _at(PRIORS[prior].plan(5, None, num_steps), temperature)
            for temperature in self.temperatures
            for prior in PRIORS
        }

    def plan(self, num_agents: int, graph: Graph | None = None, num_steps: int | None = None) -> Plan:
        """The plan with the normal prior at temperature 1."""
        return _at(PRIORS["normal"].plan(num_agents, graph, num_steps), 1.0)

    def problem_of(self, plan: Plan, agents: Sequence[int] | None = None) -> Problem:
        """That of the prior which the plan names."""
        return next(one for one in PRIORS.values() if one.name == plan.problem).problem_of(plan, agents)

    def analyse(self, run: RunDirectory, problem: Problem, summary: dict[str, Any], show: ShowShare) -> None:
        """As for the single experiment, which the runs' plans name."""
        PRIORS["normal"].analyse(run, problem, summary, show)

    def sections(self, run: RunDirectory) -> list[Section]:
        """As for the single experiment."""
        return mnist_report.run_sections(run)

    def series_results(self, summaries: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        """One row for each temperature and prior."""
        rows = result_rows(summaries)
        for row, summary in zip(rows, summaries.values(), strict=True):
            row |= {"prior": summary["prior"], "temperature": summary["temperature"]}
        return {"results": rows, "paper": mnist_report.PAPER}

    def verdict(self, summaries: Mapping[str, dict[str, Any]]) -> str:
        """Which setting the paper's figures correspond to."""
        return mnist_report.scan_verdict(self.series_results(summaries))

    def series_sections(self, runs: Mapping[str, RunDirectory]) -> list[Section]:
        """The trade-off between accuracy and confidence."""
        return mnist_report.scan_sections(self.series_results({name: run.summary for name, run in runs.items()}))


PRIORS = {"normal": MNIST(), "uniform": MNIST("mnist-uniform", "uniform", 1.0)}


SPLITS = {
    "even": MNIST("mnist-even", "uniform", 1.0, 1.0, holds_out=True),
    "skewed": MNIST("mnist-skewed", "uniform", 1.0, 1.0, holds_out=True, concentration=0.3),
}
"""The posterior itself, from images of which some are held out: agents have all labels alike, or few each."""


def network() -> Network:
    """The network of all these experiments."""
    return _NETWORK


def training_images() -> Labelled:
    """The training images without those that are held out to choose settings."""
    return _chosen(slice(None, -_held_out(len(_images("mnist", "train").labels))))


def validation_images() -> Labelled:
    """The training images that are held out to choose settings, of 32 × 32."""
    found = _chosen(slice(-_held_out(len(_images("mnist", "train").labels)), None))
    return found._replace(inputs=_enlarged(found.inputs))


def _chosen(part: slice) -> Labelled:
    train = _images("mnist", "train")
    rows = np.random.default_rng(_ORDER).permutation(len(train.labels))[part]
    return train._replace(inputs=train.inputs[rows], labels=train.labels[rows])


def _held_out(count: int) -> int:
    return count // 12


def _at(plan: Plan, temperature: float) -> Plan:
    return plan.replace(sampler=plan.sampler.model_copy(update={"temperature": temperature}))


@lru_cache(maxsize=8)
def _images(name: str, part: Any) -> Labelled:
    """A data set with images of 32 × 32; those to train with as they are stored, until an agent takes its own."""
    found = load(name, part)
    if part == "train" or found.inputs.shape[1:] == (32, 32):
        return found
    return found._replace(inputs=_enlarged(found.inputs))


def _enlarged(images: np.ndarray) -> np.ndarray:
    """Images of 32 × 32."""
    return np.asarray(jax.image.resize(images, (len(images), 32, 32), "linear"))


def _outside() -> dict[str, OutOfDistribution]:
    numbers = _images("svhn", "test")
    others = {name: _images(name, "test") for name in ("fashion-mnist", "kmnist")}
    return {
        "svhn": OutOfDistribution(numbers.inputs, numbers.labels, numbers.source),
        **{name: OutOfDistribution(one.inputs, None, one.source) for name, one in others.items()},
    }
