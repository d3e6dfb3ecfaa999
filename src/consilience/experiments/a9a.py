"""The paper's second experiment: Bayesian logistic regression on a9a, with C-ULA and D-ULA of 5, 10 and 25 agents.

As `a9a-by-label` it is the same over agents whose labels differ: each label's rows go to them in shares from a
Dirichlet law of concentration 0.3, the same in all repetitions, which hold out a fifth of each label.

A run holds out a fifth of the 32,561 rows at random, splits the rest among the agents, and takes 10 epochs in
minibatches of 10. The experiment repeats that 50 times with other splits, partitions and noise: every repetition is a
chain with data of its own, so all of them are sampled together. The test accuracy is that of single draws, over
iterations, as in the paper; that of probabilities averaged over the second half of the draws stands beside it. So
does how far these draws are from the posterior, in the first repetition, where a long run of NUTS on all its rows
says what that is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from consilience import graphs
from consilience.datasets import load, splits
from consilience.errors import DataError
from consilience.experiments.references import Reference, pooled_logistic, pooled_reference, posterior_error
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

Split = Callable[[int, int], tuple[np.ndarray, np.ndarray, int]]
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
_MOST_SEEDS = 1_000
_TRAIN_LABELS = (19_776, 6_273)  # of each label, when a fifth of each is held out
_CONCENTRATION = 0.3
_REFERENCE_DRAWS = 250


class A9A:
    """The a9a experiment."""

    main = "d-ula-5"
    needs_all_data = False

    def __init__(self, by_label: bool = False) -> None:
        self.by_label = by_label
        self.name = "a9a-by-label" if by_label else "a9a"
        self.title = "Bayesian logistic regression on a9a" + (", agents that differ in their labels" * by_label)

    def plans(self, num_steps: int | None = None) -> dict[str, Plan]:
        """C-ULA, and D-ULA on rings of 5, 10 and 25 agents."""
        return {
            "c-ula": self.plan(1, None, num_steps),
            **{f"d-ula-{n}": self.plan(n, None, num_steps) for n in (5, 10, 25)},
        }

    def plan(self, num_agents: int, graph: Graph | None = None, num_steps: int | None = None) -> Plan:
        """The paper's step sizes, 10 epochs unless another number of steps is given; small shards, small batches.

        By label they are smaller as the largest shard is larger than an equal one, or D-ULA would not be stable.
        """
        rows = max(1, _train_rows() // num_agents)
        batch = min(_BATCH, rows)
        steps = num_steps or _EPOCHS * (rows // batch)
        scale = _STEP_SCALE.get(num_agents, _DECENTRALIZED_SCALE)
        if self.by_label:
            scale *= min(1.0, rows / max(map(len, label_split(num_agents, np.repeat((0, 1), _TRAIN_LABELS)))))
        return Plan(
            problem=self.name,
            graph=graph or graphs.ring(num_agents),
            sampler=dula(
                Polynomial(scale=scale, offset=230, exponent=0.55),
                Polynomial(scale=0.48, offset=230, exponent=0.05),
            ),
            num_steps=steps,
            store_every=max(1, steps // _CURVE_POINTS),
            num_chains=_REPETITIONS,
            batch_size=batch,
        )

    def num_draws(self, plan: Plan, store_every: int) -> int:
        """Of a sampler that tunes itself: as many steps after the warm-up as the plan has."""
        return max(4, plan.num_steps // store_every)

    def split(self, seed: int, chain: int) -> tuple[np.ndarray, np.ndarray, int]:
        """Training rows, test rows, and a seed for the partition, of one repetition."""
        return _split_of_each_label(seed, chain) if self.by_label else _split(seed, chain)

    def problem_of(self, plan: Plan, agents: Sequence[int] | None = None) -> Problem:
        """Every chain's own rows, split among the agents at random; rows are their numbers in the whole set."""
        features, labels = _table()
        wanted = range(plan.num_agents) if agents is None else agents
        chains = []
        for train, _, seed in (self.split(plan.seed, chain) for chain in range(plan.num_chains)):
            equal = not self.by_label
            rows = (
                splits.equal(len(train), plan.num_agents, seed)
                if equal
                else (label_split(plan.num_agents, labels[train]))
            )
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
        """Test accuracy of every agent in every repetition, over iterations and at the end; posterior errors."""
        curves, predictive = _accuracies(run, self.split)
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
        if problem.network_size is None and run.plan.sampler.temperature == 1:
            summary["posterior_error"] = self._posterior_error(run)
        summary["paper"] = {"accuracy": self._papers(summary)}
        summary["data"] = load("a9a", "train").source

    def _posterior_error(self, run: RunDirectory) -> dict[str, float]:
        """Of the second half of the first repetition's draws, averaged over agents and parameters."""
        known = _reference(self.by_label, run.plan.seed)
        half = run.draws.sizes["draw"] // 2
        draws = run.draws["w"].to_numpy()[:1, :, half:].astype(float)
        found = posterior_error(draws, known, run.draw_weights[half:])
        return {**found._asdict(), "reference_effective_draws": float(known.effective.min())}

    def _papers(self, summary: Mapping[str, Any]) -> float | None:
        """The paper's figure for the same algorithm, as many agents and rows at random, if it has one."""
        if self.by_label or summary["method"] not in ("C-ULA", "D-ULA"):
            return None
        return PAPER_ACCURACY.get(summary["num_agents"])

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
                "accuracy_range_of_agents", "posterior_error")  # fmt: skip
        results = []
        for summary in summaries.values():
            row = {name: summary.get(name) for name in kept}
            row["accuracy_paper"] = self._papers(summary)
            row["agents"] = [{"agent": one["agent"], "accuracy": one["accuracy"]} for one in summary["agents"]]
            results.append(row)
        return {"results": results, "paper": {"accuracy": {str(n): value for n, value in PAPER_ACCURACY.items()}}}

    def verdict(self, summaries: Mapping[str, dict[str, Any]]) -> str:
        """Beside the paper, network by network."""
        told = [
            f"{_label(one)}: {_percent(one['accuracy_mean'])}, {_verdict(one, self._papers(one))} (paper "
            f"{_percent(self._papers(one))})."
            for one in summaries.values()
        ]
        widest = max(one["accuracy_range_of_agents"] for one in summaries.values())
        averaged = min(one["predictive_accuracy"] for one in summaries.values())
        told.append(
            f"All agents agree within {100 * widest:.2f} points, and probabilities averaged over draws reach at "
            f"least {_percent(averaged)} with every method."
        )
        if any(one["method"] == "C-ULA" for one in summaries.values()):
            told.append(
                "Single draws of C-ULA are worse than those of networks because the paper gives it a five times "
                "larger step size, and so more noise."
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
                "paper": _percent(self._papers(summary)),
                "predictive": _percent(summary["predictive_accuracy"]),
                "range": f"{100 * summary['accuracy_range_of_agents']:.2f}",
                "reached": summary["iterations_to_84"],
                **_errors(summary),
                "verdict": _verdict(summary, self._papers(summary)),
            }
            for summary in summaries.values()
        ]
        columns = {
            "Method": "name", "Test accuracy": "accuracy", "Paper": "paper", "Averaged": "predictive",
            "Agents differ by": "range", "Iterations to 84 %": "reached", "Error of means, sd": "away",
            "Error of variances": "wide", "Verdict": "verdict",
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


def label_split(num_agents: int, labels: np.ndarray) -> list[np.ndarray]:
    """Rows by label, with the first seed that gives every agent a minibatch, which their numbers decide."""
    return splits.by_label(labels, num_agents, _CONCENTRATION, _label_seed(num_agents, *np.bincount(labels).tolist()))


@lru_cache(maxsize=16)
def _label_seed(num_agents: int, *of_each: int) -> int:
    made_up = np.repeat(np.arange(len(of_each)), of_each)
    for seed in range(_MOST_SEEDS):
        with contextlib.suppress(DataError):  # an agent without rows
            if min(map(len, splits.by_label(made_up, num_agents, _CONCENTRATION, seed))) >= _BATCH:
                return seed
    raise DataError(f"no split by label gives each of {num_agents} agents {_BATCH} rows: take fewer agents")


@lru_cache(maxsize=2)
def _reference(by_label: bool, seed: int) -> Reference:
    """The posterior of the first repetition, which is the same whatever the network."""
    features, labels = _table()
    train, _, _ = A9A(by_label).split(seed, 0)
    return pooled_reference(pooled_logistic(features[train], labels[train]), _REFERENCE_DRAWS)


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


def _accuracies(run: RunDirectory, split: Split) -> tuple[np.ndarray, np.ndarray]:
    """Accuracies `(chains, agents, draws)` of single draws, and `(chains, agents)` of averaged probabilities."""
    features, labels = _table()
    draws = run.draws["w"]
    chains, agents, count, size = draws.shape
    curves, predictive = np.empty((chains, agents, count)), np.empty((chains, agents))
    for chain in range(chains):
        _, test, _ = split(run.plan.seed, chain)
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


def _split_of_each_label(seed: int, chain: int) -> tuple[np.ndarray, np.ndarray, int]:
    """The same with a fifth of each label held out, so that all repetitions have as many rows of each."""
    rng, (_, labels) = np.random.default_rng([seed, chain]), _table()
    train, test = [], []
    for label, count in enumerate(_TRAIN_LABELS):
        rows = rng.permutation(np.flatnonzero(labels == label))
        train.append(rows[:count])
        test.append(rows[count:])
    return np.concatenate(train), np.concatenate(test), int(rng.integers(2**31))


def _errors(summary: Mapping[str, Any]) -> dict[str, str]:
    """How far draws are from the posterior, for the table."""
    found = summary.get("posterior_error")
    if found is None:
        return {"away": "–", "wide": "–"}
    return {"away": f"{found['mean']:.2f}", "wide": f"{100 * found['variance']:.0f} %"}


def _label(summary: Mapping[str, Any]) -> str:
    return summary["method"] + (f" ({summary['num_agents']} agents)" if summary["num_agents"] > 1 else "")


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.2f} %"


def _verdict(summary: Mapping[str, Any], paper: float | None) -> str:
    """Reproduced, better or worse than the paper, within one standard deviation between repetitions."""
    if paper is None:
        return "the paper has no such network"
    difference, spread = summary["accuracy_mean"] - paper, max(summary["accuracy_std"], 5e-4)
    if abs(difference) <= spread:
        return "reproduced"
    return f"{'better' if difference > 0 else 'worse'} by {100 * abs(difference):.2f} points"
