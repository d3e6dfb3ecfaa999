"""MNIST at temperature 1 by a corrected sampler, beside D-ULA and C-ULA that look at as many images.

The prior is the paper's uniform one. 5,000 training images, the same for every seed, are held out: on them, and
nowhere else, the settings of all three methods were chosen (`mnist-choice`), by the lowest log loss among a few. The
other 55,000 are trained with, and the test images are looked at once in a run. In a second network agents have few
labels each, which D-ULA's agents feel and corrected ones should not.

The corrected sampler walks in the network's own coordinates, with numbers given by hand: nothing is known yet of how
good those of its warm-up are for a network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from consilience import graphs
from consilience.experiments import mnist, mnist_report
from consilience.experiments.classification import ShowShare, analyse_classifier, result_rows
from consilience.experiments.classifier_tables import agent_table, method_table, percent
from consilience.experiments.mnist import SPLITS
from consilience.graphs import Graph
from consilience.plans import Plan
from consilience.problems import Problem
from consilience.reports import Section, tables
from consilience.runs import RunDirectory
from consilience.samplers import kinetic
from consilience.schedules import FromTo

_CHOSEN = {"c-ula": (1.5e-5, 1.5e-6), "d-ula": (2e-5, 1e-6), "kinetic": (2e-3, 200.0)}
"""First and last step size; step size and friction."""
_TRIED = {
    "c-ula": ((5e-6, 5e-7), (1e-5, 1e-6), (1.5e-5, 1.5e-6), (2e-5, 2e-6)),
    "d-ula": ((1e-5, 5e-7), (2e-5, 1e-6)),
    "kinetic": (
        (6e-4, 170.0),
        (1e-3, 40.0),
        (1e-3, 100.0),
        (1e-3, 300.0),
        (1.5e-3, 100.0),
        (1.5e-3, 300.0),
        (2e-3, 200.0),
    ),
}
_AGENTS = 5


def _plan(
    method: str, numbers: tuple[float, float], split: str, num_steps: int | None, graph: Graph | None = None
) -> Plan:
    """Ten epochs of 240 images a step for every method; draws come from the second half."""
    size = 1 if method == "c-ula" else graph.num_agents if graph else _AGENTS
    plan = SPLITS[split].plan(size, graph, num_steps)
    if method == "kinetic":
        step, friction = numbers
        counted = {name: getattr(plan, name) for name in ("num_steps", "burn_in", "store_every")}
        return plan.replace(sampler=kinetic(step, 1, friction=friction, whitening="none"), num_chains=1, **counted)
    falling = FromTo(start=numbers[0], end=numbers[1], num_steps=plan.num_steps, exponent=0.55)
    return plan.replace(sampler=plan.sampler.model_copy(update={"step_size": falling}))


@dataclass(frozen=True)
class MNISTKinetic:
    """The corrected sampler, D-ULA and C-ULA, with the settings that were chosen."""

    name: str = "mnist-kinetic"
    title = "LeNet-5 on MNIST: a corrected sampler at temperature 1"
    main = "kinetic-5"
    needs_all_data = False

    def plans(self, num_steps: int | None = None) -> dict[str, Plan]:
        """Every method with labels split evenly, and those of networks with few labels at each agent."""
        return {"c-ula": _plan("c-ula", _CHOSEN["c-ula"], "even", num_steps)} | {
            f"{method}-5" + ("-skewed" if split == "skewed" else ""): _plan(method, _CHOSEN[method], split, num_steps)
            for split in SPLITS
            for method in ("d-ula", "kinetic")
        }

    def plan(self, num_agents: int, graph: Graph | None = None, num_steps: int | None = None) -> Plan:
        """The corrected sampler's."""
        return _plan("kinetic", _CHOSEN["kinetic"], "even", num_steps, graph or graphs.ring(num_agents))

    def problem_of(self, plan: Plan, agents: Sequence[int] | None = None) -> Problem:
        """That of the split which the plan names."""
        return _split_of(plan.problem).problem_of(plan, agents)

    def analyse(self, run: RunDirectory, problem: Problem, summary: dict[str, Any], show: ShowShare) -> None:
        """As for the single experiment, which the runs' plans name."""
        SPLITS["even"].analyse(run, problem, summary, show)

    def sections(self, run: RunDirectory) -> list[Section]:
        """As for the single experiment."""
        return mnist_report.run_sections(run)

    def series_results(self, summaries: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        """One row for each method and split."""
        return {"results": _named_rows(summaries), "paper": mnist_report.PAPER}

    def verdict(self, summaries: Mapping[str, dict[str, Any]]) -> str:
        """Whether every agent is as accurate as C-ULA, and what few labels at each agent cost."""
        central, ours = summaries["c-ula"], summaries["kinetic-5"]
        worst = min(row["accuracy"] for row in ours["agents"])
        enough = "as accurate as" if worst >= central["accuracy_mean"] else "less accurate than"
        told = (
            f"The corrected sampler's least accurate agent has {percent(worst)}, which is {enough} C-ULA "
            f"with all images in one place ({percent(central['accuracy_mean'])}); D-ULA's agents have "
            f"{percent(summaries['d-ula-5']['accuracy_mean'])} on average."
        )
        for name, words in (("d-ula-5", "D-ULA"), ("kinetic-5", "the corrected sampler")):
            lost = 100 * (summaries[name]["accuracy_mean"] - summaries[f"{name}-skewed"]["accuracy_mean"])
            told += f" Few labels at each agent cost {words} {lost:.2f} points."
        return told

    def series_sections(self, runs: Mapping[str, RunDirectory]) -> list[Section]:
        """Accuracy and out-of-distribution images for each method, by agent and for all draws together."""
        summaries = {name: run.summary for name, run in runs.items()}
        settings = "; ".join(f"{name}: {one['settings']}" for name, one in summaries.items())
        return [
            Section(
                "Every agent, and all agents' draws together",
                "Test images, looked at once. 5,000 training images were held out to choose the settings, the other "
                "55,000 are trained with. Skewed: each label's images are shared out in proportions from a Dirichlet "
                f"distribution (0.3). {settings}.",
                table=tables.rows(*_agents_and_network(summaries)),
            ),
            Section(
                "Beside the paper",
                f"Labels split evenly. The paper's settings: {mnist_report.PAPER_SETTINGS}.",
                table=mnist_report.paper_table({name: run for name, run in runs.items() if "skewed" not in name}),
            ),
        ]


def _named_rows(summaries: Mapping[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return [row | {"run": name} for row, name in zip(result_rows(summaries), summaries, strict=True)]


def _split_of(problem: str | None) -> mnist.MNIST:
    return next((one for one in SPLITS.values() if one.name == problem), SPLITS["even"])


def _agents_and_network(summaries: Mapping[str, Mapping[str, Any]]) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Rows and columns: scores of each run, as means over agents with the worst, and of all draws together."""
    found = []
    for name, one in summaries.items():
        together = one.get("pooled") or one
        auroc = [row["out_of_distribution"]["svhn"]["auroc"] for row in one["agents"]]
        found.append(
            {
                "name": name,
                "mean": percent(one["accuracy_mean"]),
                "worst": percent(min(row["accuracy"] for row in one["agents"])),
                "together": percent(together.get("accuracy", one["accuracy_mean"])),
                "log_loss": one["in_distribution"]["log_loss"],
                "confidence": one["in_distribution"]["confidence_mean"],
                "svhn": one["out_of_distribution"]["svhn"]["confidence_mean"],
                "auroc": f"{min(auroc):.3f} … {max(auroc):.3f}",
                "auroc_together": together["out_of_distribution"]["svhn"]["auroc"],
            }
        )
    columns = {
        "Run": "name", "Accuracy": "mean", "worst agent": "worst", "all draws": "together", "Log loss": "log_loss",
        "Confidence on MNIST": "confidence", "on SVHN": "svhn", "AUROC SVHN, agents": "auroc",
        "AUROC, all draws": "auroc_together",
    }  # fmt: skip
    return found, columns


@dataclass(frozen=True)
class MNISTChoice:
    """The settings that were tried, on the images held out for it; nothing else is looked at."""

    name: str = "mnist-choice"
    title = "LeNet-5 on MNIST: the choice of settings on images held out"
    main = "kinetic-0.002-200"
    needs_all_data = False

    def plans(self, num_steps: int | None = None) -> dict[str, Plan]:
        """One run for each setting."""
        return {
            f"{method}-{numbers[0]:g}-{numbers[1]:g}": self._own(_plan(method, numbers, "even", num_steps))
            for method, tried in _TRIED.items()
            for numbers in tried
        }

    def plan(self, num_agents: int, graph: Graph | None = None, num_steps: int | None = None) -> Plan:
        """The corrected sampler's, with the settings that were chosen."""
        return self._own(MNISTKinetic().plan(num_agents, graph, num_steps))

    def _own(self, plan: Plan) -> Plan:
        return plan.replace(problem=self.name)

    def problem_of(self, plan: Plan, agents: Sequence[int] | None = None) -> Problem:
        """With labels split evenly."""
        return SPLITS["even"].problem_of(plan, agents)

    def analyse(self, run: RunDirectory, problem: Problem, summary: dict[str, Any], show: ShowShare) -> None:
        """Every agent's predictions on the images held out."""
        summary["settings"] = mnist_report.settings(run.plan, SPLITS["even"].prior, SPLITS["even"].scale)
        analyse_classifier(run, mnist.network().logits, mnist.validation_images(), {}, summary, show)

    def sections(self, run: RunDirectory) -> list[Section]:
        """Every agent's scores."""
        return [Section("Images held out", f"{run.summary['settings']}.", table=agent_table(run.summary))]

    def series_results(self, summaries: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        """One row for each setting."""
        return {"results": _named_rows(summaries), "paper": None}

    def verdict(self, summaries: Mapping[str, dict[str, Any]]) -> str:
        """The setting with the lowest log loss of each method."""
        best: dict[str, str] = {}
        for name, one in summaries.items():
            before = best.get(one["method"])
            if before is None or _log_loss(one) < _log_loss(summaries[before]):
                best[one["method"]] = name
        return "Lowest log loss: " + "; ".join(f"{method} with {name}" for method, name in best.items()) + "."

    def series_sections(self, runs: Mapping[str, RunDirectory]) -> list[Section]:
        """Scores of every setting."""
        summaries = {name: run.summary for name, run in runs.items()}
        return [Section("Images held out", "Means over agents.", table=method_table(summaries))]


def _log_loss(summary: Mapping[str, Any]) -> float:
    return float(summary["in_distribution"]["log_loss"])
