"""The paper's second experiment: Bayesian logistic regression on a9a, with C-ULA and D-ULA of 5, 10 and 25 agents.

A run holds out a fifth of the 32,561 rows at random, splits the rest among the agents, and takes 10 epochs in
minibatches of 10. The experiment repeats that 50 times with other splits, partitions and noise: every repetition is a
chain with data of its own, so all of them are sampled together. The test accuracy is that of single draws, over
iterations, as in the paper; that of probabilities averaged over the second half of the draws stands beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from consilience import graphs
from consilience.datasets import load, splits
from consilience.graphs import Graph
from consilience.models import logistic_regression
from consilience.plans import Plan
from consilience.problems import Problem
from consilience.reports import Section, accuracy_figures, tables
from consilience.runs import RunDirectory
from consilience.samplers import dula
from consilience.schedules import Polynomial

if TYPE_CHECKING:
    import xarray

PAPER_ACCURACY = {1: 0.8389, 5: 0.8438, 10: 0.8456, 25: 0.8456}
"""The paper's test accuracies by number of agents; 1 is C-ULA."""
_STEP_SCALE = {1: 0.004}
_DECENTRALIZED_SCALE = 0.00082
_ROWS = 32_561
_TEST_SHARE = 0.2
_BATCH = 10
_EPOCHS = 10
_REPETITIONS = 50
_CURVE_POINTS = 260
_GOAL = 0.84


class A9A:
    """The a9a experiment."""

    name = "a9a"
    title = "Bayesian logistic regression on a9a"
    main = "d-ula-5"
    needs_all_data = False

    def plans(self, num_steps: int | None = None) -> dict[str, Plan]:
        """C-ULA, and D-ULA on rings of 5, 10 and 25 agents."""
        return {
            "c-ula": self.plan(1, None, num_steps),
            **{f"d-ula-{n}": self.plan(n, None, num_steps) for n in (5, 10, 25)},
        }

    def plan(self, num_agents: int, graph: Graph | None = None, num_steps: int | None = None) -> Plan:
        """The paper's step sizes, 10 epochs unless another number of steps is given; small shards, small batches."""
        rows = max(1, _train_rows() // num_agents)
        batch = min(_BATCH, rows)
        steps = num_steps or _EPOCHS * (rows // batch)
        return Plan(
            problem=self.name,
            graph=graph or graphs.ring(num_agents),
            sampler=dula(
                Polynomial(scale=_STEP_SCALE.get(num_agents, _DECENTRALIZED_SCALE), offset=230, exponent=0.55),
                Polynomial(scale=0.48, offset=230, exponent=0.05),
            ),
            num_steps=steps,
            store_every=max(1, steps // _CURVE_POINTS),
            num_chains=_REPETITIONS,
            batch_size=batch,
        )

    def problem_of(self, plan: Plan, agents: Sequence[int] | None = None) -> Problem:
        """Every chain's own rows, split among the agents at random; rows are their numbers in the whole set."""
        features, labels = _table()
        wanted = range(plan.num_agents) if agents is None else agents
        chains = []
        for train, _, seed in (_split(plan.seed, chain) for chain in range(plan.num_chains)):
            rows = splits.equal(len(train), plan.num_agents, seed)
            chains.append([train[rows[agent]].astype(np.int32) for agent in wanted])
        model = logistic_regression([(features[:1], labels[:1])] * plan.num_agents, "laplace")
        words, classes = jnp.asarray(packed(features)), jnp.asarray(labels)

        def log_likelihood(w: jax.Array, rows: jax.Array) -> jax.Array:
            own = unpacked(words[rows], w.dtype)
            padded = jnp.pad(w, (0, own.shape[-1] - w.shape[-1]))
            return model.log_likelihood(padded, (own, classes[rows].astype(w.dtype)))

        return Problem(
            log_likelihood, model.log_prior, model.init, chains[0], name=self.title,
            replicas=chains if plan.num_chains > 1 else None,
            network_size=None if agents is None else plan.num_agents,
        )  # fmt: skip

    def analyse(
        self, run: RunDirectory, problem: Problem, summary: dict[str, Any], show: Callable[[float], None]
    ) -> None:
        """Test accuracy of every agent in every repetition, over iterations and at the end."""
        curves, predictive = _accuracies(run)
        steps = run.draws["step"].to_numpy()
        _store(run, curves, steps)
        final = curves[:, :, -1]
        stored = run.draws["agent"].to_numpy().tolist()
        described = [stored.index(row["agent"]) for row in summary["agents"]]
        for place, row in zip(described, summary["agents"], strict=True):
            row["accuracy"] = float(final[:, place].mean())
        summary["accuracy_mean"] = float(final.mean())
        summary["accuracy_std"] = float(final.mean(1).std())
        summary["accuracy_range_of_agents"] = float(np.ptp(final[:, described].mean(0)))
        summary["predictive_accuracy"] = float(predictive.mean())
        reached = np.flatnonzero(curves.mean((0, 1)) >= _GOAL)
        summary["iterations_to_84"] = int(steps[reached[0]]) if reached.size else None
        summary["paper"] = {"accuracy": _papers(summary)}
        summary["data"] = load("a9a", "train").source

    def sections(self, run: RunDirectory) -> list[Section]:
        """The accuracy over iterations, and every agent's at the end."""
        summary = run.summary
        rows = [{"name": f"agent {row['agent']}", "accuracy": _percent(row["accuracy"])} for row in summary["agents"]]
        return [
            Section(
                "Test accuracy",
                f"Mean over {summary['num_chains']} repetitions, of single draws as in the paper. Probabilities "
                f"averaged over the second half of the draws reach {_percent(summary['predictive_accuracy'])}.",
                {"accuracy": accuracy_figures.over_iterations({_label(summary): read_accuracy(run)})},
                tables.rows(rows, {"": "name", "Accuracy at the end": "accuracy"}),
            )
        ]

    def series_results(self, summaries: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        """One row for each method and network size, beside the paper's."""
        kept = ("method", "num_agents", "accuracy_mean", "accuracy_std", "predictive_accuracy", "iterations_to_84",
                "accuracy_range_of_agents")  # fmt: skip
        results = []
        for summary in summaries.values():
            row = {name: summary[name] for name in kept}
            row["accuracy_paper"] = _papers(summary)
            row["agents"] = [{"agent": one["agent"], "accuracy": one["accuracy"]} for one in summary["agents"]]
            results.append(row)
        return {"results": results, "paper": {"accuracy": {str(n): value for n, value in PAPER_ACCURACY.items()}}}

    def verdict(self, summaries: Mapping[str, dict[str, Any]]) -> str:
        """Beside the paper, network by network."""
        told = [
            f"{_label(one)}: {_percent(one['accuracy_mean'])}, {_verdict(one)} (paper {_percent(_papers(one))})."
            for one in summaries.values()
        ]
        widest = max(one["accuracy_range_of_agents"] for one in summaries.values())
        averaged = min(one["predictive_accuracy"] for one in summaries.values())
        told.append(
            f"All agents agree within {100 * widest:.2f} points, and probabilities averaged over draws reach at "
            f"least {_percent(averaged)} with every method. Single draws of C-ULA are worse than those of networks "
            "because the paper gives it a five times larger step size, and so more noise."
        )
        return " ".join(told)

    def series_sections(self, runs: Mapping[str, RunDirectory]) -> list[Section]:
        """The paper's Figure 2, its zoom, and the table."""
        summaries = {name: run.summary for name, run in runs.items()}
        curves = {_label(summaries[name]): read_accuracy(run) for name, run in runs.items()}
        rows = [
            {
                "name": _label(summary),
                "accuracy": f"{_percent(summary['accuracy_mean'])} ± {100 * summary['accuracy_std']:.2f}",
                "paper": _percent(_papers(summary)),
                "predictive": _percent(summary["predictive_accuracy"]),
                "range": f"{100 * summary['accuracy_range_of_agents']:.2f}",
                "reached": summary["iterations_to_84"],
                "verdict": _verdict(summary),
            }
            for summary in summaries.values()
        ]
        columns = {
            "Method": "name", "Test accuracy": "accuracy", "Paper": "paper", "Averaged": "predictive",
            "Agents differ by": "range", "Iterations to 84 %": "reached", "Verdict": "verdict",
        }  # fmt: skip
        repetitions = next(iter(summaries.values()))["num_chains"]
        return [
            Section(
                "Test accuracy over iterations",
                f"Mean and one standard deviation over {repetitions} repetitions with other splits, partitions and "
                "noise; on the right every agent's curve over the first 1,200 iterations: Figure 2 of the paper.",
                {"accuracy": accuracy_figures.over_iterations(curves)},
                tables.rows(rows, columns),
            )
        ]


def packed(features: np.ndarray) -> np.ndarray:
    """Rows of zeros and ones as 32-bit words: a minibatch then fetches 4 numbers a row instead of 123.

    >>> packed(np.array([[1, 0, 1], [0, 1, 0]])).tolist()
    [[5], [2]]
    """
    count = -(-features.shape[1] // 32)
    bits = np.zeros((len(features), 32 * count), np.uint8)
    bits[:, : features.shape[1]] = features
    return np.packbits(bits, axis=-1, bitorder="little").view("<u4").reshape(len(features), count)


def unpacked(words: jax.Array, dtype: Any) -> jax.Array:
    """The zeros and ones that `packed` made words of, with zeros up to a multiple of 32, which compilers like."""
    bits = (words[..., None] >> jnp.arange(32, dtype=jnp.uint32)) & 1
    return bits.reshape(*words.shape[:-1], -1).astype(dtype)


def read_accuracy(run: RunDirectory) -> xarray.Dataset:
    """The accuracies that `analyse` stored: `accuracy` with dimensions `(chain, agent, time)`, and `step`."""
    return run.read_beside("accuracy")


def _accuracies(run: RunDirectory) -> tuple[np.ndarray, np.ndarray]:
    """Accuracies `(chains, agents, draws)` of single draws, and `(chains, agents)` of averaged probabilities."""
    features, labels = _table()
    draws = run.draws["w"]
    chains, agents, count, size = draws.shape
    curves, predictive = np.empty((chains, agents, count)), np.empty((chains, agents))
    for chain in range(chains):
        _, test, _ = _split(run.plan.seed, chain)
        weights = np.asarray(draws[chain]).reshape(-1, size)
        logits = (features[test] @ weights.T).reshape(len(test), agents, count)
        right = labels[test].astype(bool)[:, None]
        curves[chain] = ((logits > 0) == right[..., None]).mean(0)
        averaged = (1 / (1 + np.exp(-logits[..., count // 2 :]))).mean(-1)
        predictive[chain] = ((averaged > 0.5) == right).mean(0)
    return curves, predictive


def _store(run: RunDirectory, curves: np.ndarray, steps: np.ndarray) -> None:
    run.store_beside("accuracy", {"accuracy": (("chain", "agent", "time"), curves), "step": (("time",), steps)})


@lru_cache(maxsize=1)
def _table() -> tuple[np.ndarray, np.ndarray]:
    whole = load("a9a", "train")
    return whole.inputs, whole.labels


def _train_rows() -> int:
    return _ROWS - round(_TEST_SHARE * _ROWS)


def _split(seed: int, chain: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Training rows, test rows, and a seed for the partition, of one repetition."""
    rng = np.random.default_rng([seed, chain])
    rows = rng.permutation(_ROWS)
    return rows[: _train_rows()], rows[_train_rows() :], int(rng.integers(2**31))


def _label(summary: Mapping[str, Any]) -> str:
    return summary["method"] + (f" ({summary['num_agents']} agents)" if summary["num_agents"] > 1 else "")


def _papers(summary: Mapping[str, Any]) -> float | None:
    """The paper's figure for the same algorithm and as many agents, if it has one."""
    return PAPER_ACCURACY.get(summary["num_agents"]) if summary["method"] in ("C-ULA", "D-ULA") else None


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.2f} %"


def _verdict(summary: Mapping[str, Any]) -> str:
    """Reproduced, better or worse than the paper, within one standard deviation between repetitions."""
    paper = _papers(summary)
    if paper is None:
        return "the paper has no such network"
    difference, spread = summary["accuracy_mean"] - paper, max(summary["accuracy_std"], 5e-4)
    if abs(difference) <= spread:
        return "reproduced"
    return f"{'better' if difference > 0 else 'worse'} by {100 * abs(difference):.2f} points"
