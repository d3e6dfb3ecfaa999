"""The paper's first experiment: the Gaussian mixture with tied means, over networks of 1, 5 and 10 agents.

100 points at `θ = (0, 1)` are divided among the agents, who run 10⁶ full-batch steps with `α` falling from 0.01
to 0.0001 and `β` from 0.36 to 0.24. In the paper's form that is `α_k = α_0/(230 + k)^0.55` and
`β_k = 0.48/(230 + k)^0.05`. The posterior has two modes; all agents must find both.

Every set of draws is compared with exact draws from the posterior on a grid by the Sinkhorn distance: 1,500 draws
a side, the chains' at equal distances of Langevin time. What two independent sets of exact draws score against each
other is the floor of that measure.

A single chain changes between the modes only some dozens of times in 10⁶ steps, so that its distance is mostly luck
of the seed. The default is therefore eight chains, compared together, with the range of the single ones beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience import graphs
from consilience.diagnostics import equal_time_draws, kl_divergence
from consilience.diagnostics.sinkhorn import REGULARISATION, sinkhorn_distances
from consilience.errors import ProblemError
from consilience.graphs import Graph
from consilience.models import tied_mixture
from consilience.models.mixture import NOISE_VARIANCE
from consilience.plans import Plan
from consilience.problems import Problem
from consilience.reports import Section, figures, tables
from consilience.runs import RunDirectory
from consilience.runs.summary import flat_draws
from consilience.samplers import dula
from consilience.schedules import FromTo
from consilience.theory import GridPosterior

if TYPE_CHECKING:
    import xarray

NUM_POINTS = 100
DATA_SEED = 13
"""Of the data sets with seeds 0 to 39, the one whose modes are nearest to the paper's (0, 1) and (1, −1)."""
PAPER_SINKHORN = {1: 0.259, 5: 0.251, 10: 0.244}

_PAPER_METHODS = ("C-ULA", "D-ULA")
_CHAINS = 8
_COMPARED = 1500
_FLOOR_PAIRS = 3
_RANGES = ((-2.5, 3.5), (-4.5, 4.5))
_SHOWN = ((-1.2, 2.4), (-2.8, 2.8))


class GMM:
    """The Gaussian mixture experiment."""

    name = "gmm"
    title = "Gaussian mixture with tied means"
    main = "agents-5"
    needs_all_data = True

    @cached_property
    def data(self) -> np.ndarray:
        """The 100 points, the same for every network."""
        rng = np.random.default_rng(DATA_SEED)
        second = rng.random(NUM_POINTS) < 0.5
        noise = rng.normal(scale=np.sqrt(NOISE_VARIANCE), size=NUM_POINTS)
        return (second * 1.0 + noise).astype(np.float32)

    def plans(self, num_steps: int | None = None) -> dict[str, Plan]:
        """Networks of 1, 5 and 10 agents."""
        return {f"agents-{n}": self.plan(n, None, num_steps) for n in (1, 5, 10)}

    def problem_of(self, plan: Plan, agents: Sequence[int] | None = None) -> Problem:
        """The points divided among the agents of a plan."""
        return self.problem(plan.num_agents, agents)

    def problem(self, num_agents: int, agents: Sequence[int] | None = None) -> Problem:
        """The points divided among the agents, as evenly as they go; of some agents, or of all."""
        if num_agents > NUM_POINTS:
            raise ProblemError(f"gmm has {NUM_POINTS} points: take at most so many agents, got {num_agents}")
        parts = np.array_split(self.data, num_agents)
        return tied_mixture(parts) if agents is None else tied_mixture(parts).of_agents(agents)

    def plan(self, num_agents: int, graph: Graph | None = None, num_steps: int | None = None) -> Plan:
        """The paper's schedules stretched over `num_steps`, on a ring unless another graph is given.

        The consensus step is the paper's where it keeps a margin to instability (`β_0 λ_max ≤ 1.5`: the step size
        adds up to about 0.7 to that at the start), otherwise just inside the theorems.
        """
        graph = graph or graphs.ring(num_agents)
        steps = num_steps or 1_000_000
        start = 0.36 if 0.75 * graph.stable_consensus_limit >= 0.36 else 0.9 * graph.proven_consensus_limit
        return Plan(
            problem=self.name,
            graph=graph,
            sampler=dula(
                step_size=FromTo(start=0.01, end=0.0001, num_steps=steps, exponent=0.55),
                consensus=FromTo(start=start, end=start * 0.24 / 0.36, num_steps=steps, exponent=0.05),
            ),
            num_steps=steps,
            burn_in=steps // 100,
            store_every=10 if steps >= 10_000 else 1,
            num_chains=_CHAINS,
        )

    def analyse(
        self, run: RunDirectory, problem: Problem, summary: dict[str, Any], show: Callable[[float], None]
    ) -> None:
        """Compare every agent with the exact posterior."""
        truth = GridPosterior.of(problem, *_RANGES)
        exact = truth.draw(_COMPARED, seed=1)
        others = [truth.draw(_COMPARED, seed=2 + pair) for pair in range(_FLOOR_PAIRS)]
        _store_reference(run, truth, exact)
        rows = summary["agents"]
        compared = comparison_draws(run, [row["agent"] for row in rows])
        distances = sinkhorn_distances([*compared, *_single_chains(run), *others], exact)
        for row, draws, distance in zip(rows, compared, distances, strict=False):
            row["sinkhorn"] = distance
            row["kl"] = kl_divergence(draws, exact)
            row["share_of_upper_mode"] = float((draws[:, 1] > 0).mean())
        summary["sinkhorn_single_chains"] = distances[len(rows) : -_FLOOR_PAIRS]
        share = float(truth.probabilities[:, truth.second > 0].sum())
        summary["sinkhorn"] = float(np.mean([row["sinkhorn"] for row in summary["agents"]]))
        summary["sinkhorn_floor"] = float(np.mean(distances[-_FLOOR_PAIRS:]))
        summary["sinkhorn_settings"] = {
            "draws": _COMPARED, "cost": "Euclidean", "regularisation": REGULARISATION
        }  # fmt: skip
        summary["kl_floor"] = float(np.mean([kl_divergence(other, exact) for other in others]))
        summary["true_posterior"] = {"mean": truth.mean.tolist(), "share_of_upper_mode": share}
        summary["both_modes_found"] = all(
            min(row["share_of_upper_mode"], 1 - row["share_of_upper_mode"]) > 0.5 * min(share, 1 - share)
            for row in summary["agents"]
        )
        summary["paper"] = {"sinkhorn": _papers(summary)}

    def sections(self, run: RunDirectory) -> list[Section]:
        """The agents' posteriors beside the true one, and their distances to it."""
        summary, reference = run.summary, read_reference(run)
        panels = {"True posterior": reference["exact"].to_numpy()}
        agents = [row["agent"] for row in summary["agents"][:10]]
        titles = [f"Agent {agent}" if run.plan.num_agents > 1 else "C-ULA" for agent in agents]
        panels |= dict(zip(titles, comparison_draws(run, agents), strict=True))
        return [
            Section(
                "The posterior",
                "The posterior on a grid, and the draws of each agent, who has seen only its own "
                f"{NUM_POINTS // run.plan.num_agents} or so of the {NUM_POINTS} points. White lines are the true "
                "posterior's contours, the same in every panel.",
                figures={"posterior": figures.posterior_panels(reference, panels, _SHOWN)},
            ),
            Section(
                "Distance to the true posterior",
                _measure_words(summary),
                figures={"sinkhorn": figures.distance_bars(_bars([summary]), summary["sinkhorn_floor"])},
                table=tables.agents(summary, ("sinkhorn", "kl")),
            ),
        ]

    def series_results(self, summaries: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        """One row for each network, beside the paper's figures."""
        return {
            "results": [
                {
                    "method": "C-ULA" if summary["num_agents"] == 1 else "D-ULA",
                    "num_agents": summary["num_agents"],
                    "sinkhorn": summary["sinkhorn"],
                    "sinkhorn_paper": _papers(summary),
                    "sinkhorn_floor": summary["sinkhorn_floor"],
                    "single_chains": _range(summary["sinkhorn_single_chains"]),
                    "kl": float(np.mean([row["kl"] for row in summary["agents"]])),
                    "both_modes_found": summary["both_modes_found"],
                    "consensus_error": summary["consensus_error"],
                    "steps_per_second": summary["timing"]["steps_per_second"],
                }
                for summary in summaries.values()
            ],
            "paper": {"sinkhorn": {str(n): value for n, value in PAPER_SINKHORN.items()}},
        }

    def verdict(self, summaries: Mapping[str, dict[str, Any]]) -> str:
        """Beside the paper, network by network."""
        told = []
        for one in summaries.values():
            name, paper = _bars([one])[0]["label"], _papers(one)
            worth = (
                "" if paper is None else f" ({'better' if one['sinkhorn'] < paper else 'worse'}; paper {paper:.3f})"
            )
            told.append(f"{name}: Sinkhorn distance {one['sinkhorn']:.3f}{worth}.")
        found = all(one["both_modes_found"] for one in summaries.values())
        floor = float(np.mean([one["sinkhorn_floor"] for one in summaries.values()]))
        chains = next(iter(summaries.values()))["num_chains"]
        told.append(
            f"Every agent of every network finds both modes: {'yes' if found else 'no'}. Exact draws score "
            f"{floor:.3f}; the distances are that near because {chains} chains together visit both modes in the "
            "right shares, where a single one does so by luck."
        )
        return " ".join(told)

    def series_sections(self, runs: Mapping[str, RunDirectory]) -> list[Section]:
        """The paper's Figure 1, and the three networks side by side."""
        summaries = {name: run.summary for name, run in runs.items()}
        reference = read_reference(next(iter(runs.values())))
        panels = {"True posterior": reference["exact"].to_numpy()}
        for run in runs.values():
            if run.plan.num_agents == 1:
                (panels["C-ULA (1 agent)"],) = comparison_draws(run, [0])
        main = runs.get(self.main)
        if main is not None:
            shown = comparison_draws(main, range(5))
            panels |= {f"Agent {i} of {main.plan.num_agents}": draws for i, draws in enumerate(shown)}
        floor = float(np.mean([summary["sinkhorn_floor"] for summary in summaries.values()]))
        traced = main or next(iter(runs.values()))
        several = {f"{run.plan.num_agents} agents": run for run in runs.values() if run.plan.num_agents > 1}
        return [
            Section(
                "The posterior, as each agent sees it",
                "Every agent holds only its own share of the 100 points and talks only to its two neighbours on a "
                "ring, yet each one's draws follow the posterior given all points, with both modes. White lines are "
                "the true posterior's contours, the same in every panel. This is Figure 1 of the paper.",
                figures={"posterior": figures.posterior_panels(reference, panels, _SHOWN)},
            ),
            Section(
                "Distance to the true posterior",
                _measure_words(next(iter(summaries.values()))),
                figures={"sinkhorn": figures.distance_bars(_bars(summaries.values()), floor)},
                table=tables.rows(
                    self.series_results(summaries)["results"],
                    {
                        "Method": "method",
                        "Agents": "num_agents",
                        "Sinkhorn": "sinkhorn",
                        "Paper": "sinkhorn_paper",
                        "Floor": "sinkhorn_floor",
                        "Single chains": "single_chains",
                        "KL (nats)": "kl",
                        "Both modes": "both_modes_found",
                        "Steps per second": "steps_per_second",
                    },
                ),
            ),
            Section(
                "Agreement between agents",
                "The consensus error of each network, beside the rate that Theorem 1 promises for its expectation, "
                "drawn through the end of each curve.",
                figures={"consensus": figures.consensus(several)},
            ),
            Section(
                "Traces",
                f"The network of {traced.plan.num_agents}, first chain: the agents move and change modes together.",
                figures={"traces": figures.traces(traced)},
            ),
        ]


def comparison_draws(run: RunDirectory, agents: Sequence[int]) -> list[np.ndarray]:
    """1,500 draws of each agent at equal distances of Langevin time, from all chains together: `(1500, 2)` each."""
    draws, _ = flat_draws(run, np.asarray(agents))
    weights = run.draw_weights
    lengths = [len(share) for share in np.array_split(np.arange(_COMPARED), len(draws)) if len(share)]
    taken = [(chain, equal_time_draws(weights, length)) for chain, length in enumerate(lengths)]
    return [np.concatenate([own[chain, times] for chain, times in taken]) for own in draws.swapaxes(0, 1)]


def _single_chains(run: RunDirectory) -> list[np.ndarray]:
    """As many draws of each chain of the first agent alone."""
    draws, _ = flat_draws(run, np.zeros(1, int))
    return list(draws[:, 0, equal_time_draws(run.draw_weights, _COMPARED)])


def read_reference(run: RunDirectory) -> xarray.Dataset:
    """The exact posterior that `analyse` stored: its density on a grid, and draws from it."""
    return run.read_beside("reference")


def _store_reference(run: RunDirectory, truth: GridPosterior, exact: np.ndarray) -> None:
    run.store_beside(
        "reference",
        {
            "density": ((truth.names[0], truth.names[1]), truth.density),
            "exact": (("exact_draw", "parameter"), exact),
        },
        {truth.names[0]: truth.first, truth.names[1]: truth.second},
        {"parameters": list(truth.names)},
    )


def _bars(summaries: Any) -> list[dict[str, Any]]:
    return [
        {
            "label": summary.get("method", "C-ULA")
            if summary["num_agents"] == 1
            else f"{summary['num_agents']} agents",
            "values": [row["sinkhorn"] for row in summary["agents"]],
            "paper": _papers(summary),
        }
        for summary in summaries
    ]


def _papers(summary: Mapping[str, Any]) -> float | None:
    """The paper's figure for the same algorithm and as many agents, if it has one."""
    return PAPER_SINKHORN.get(summary["num_agents"]) if summary.get("method", "D-ULA") in _PAPER_METHODS else None


def _range(distances: Sequence[float]) -> str:
    return f"{min(distances):.3f} to {max(distances):.3f}"


def _measure_words(summary: Mapping[str, Any]) -> str:
    settings, single = summary["sinkhorn_settings"], _range(summary["sinkhorn_single_chains"])
    return (
        f"Sinkhorn distance with {settings['cost']} cost and regularisation {settings['regularisation']:g} between "
        f"{settings['draws']:,} draws of an agent, taken from all chains at equal distances of Langevin time, and as "
        "many exact draws. Exact draws do not score 0 against each other: that floor is marked. Single chains score "
        f"{single} (first agent), as a chain seldom changes modes; the paper does not say how many it used. KL is a "
        f"nearest-neighbour estimate whose floor is {summary['kl_floor']:.3f} nats."
    )
