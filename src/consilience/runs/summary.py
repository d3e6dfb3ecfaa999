"""A run's results in numbers, from its directory alone: what `summary.json` holds (docs/reference/summary.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from consilience.diagnostics import convergence, fitted_rate, weighted_mean
from consilience.diagnostics.convergence import bfmi
from consilience.graphs.spanning import num_hops
from consilience.runs.convergence import remedy, shortcomings, verdict, warnings_of
from consilience.runs.directory import RunDirectory, private_names
from consilience.runs.names import Names, entry_name
from consilience.runs.posterior import (
    HIGH,
    LOW,
    MOST_AGENTS,
    MOST_CHOSEN,
    both_rows,
    evenly,
    num_parameters,
    posterior_rows,
    scope,
    shared_digest,
)  # fmt: skip
from consilience.samplers import Corrected
from consilience.warmup.found import heating_warnings
from consilience.warmup.stages import SETTLING_STEPS

SUMMARY_FORMAT = 3
_READ_AT_ONCE = 2**28  # bytes of a variable; of a larger one, entry by entry


def summarise(run: RunDirectory) -> dict[str, Any]:
    """The summary of a run; of a large network or model it describes evenly chosen agents and parameters."""
    plan, status = run.plan, run.status
    return {
        "format": SUMMARY_FORMAT,
        "problem": plan.problem or status["problem_name"],
        "status": status["status"],
        "num_agents": plan.num_agents,
        "num_chains": plan.num_chains,
        "num_steps": status["step"],
        "num_draws": run.draws.sizes["draw"],
        "num_parameters": num_parameters(run.draws),
        "seed": plan.seed,
        "sampler": plan.sampler.kind,
        "method": plan.sampler.method(plan.num_agents),
        "engine": status["engine"],
        "graph": {
            "kind": plan.graph.name,
            "num_edges": plan.graph.num_edges,
            "largest_eigenvalue": plan.graph.largest_eigenvalue if plan.graph.num_edges else 0.0,
            "algebraic_connectivity": plan.graph.algebraic_connectivity,
        },
        "timing": status.get("timing", {}),
        **(in_unison(run) if plan.is_unison else by_gossip(run)),
    }


def by_gossip(run: RunDirectory) -> dict[str, Any]:
    """What agents found that each walk a chain of their own."""
    numbers = run.draws["agent"].to_numpy()
    agents = evenly(len(numbers), MOST_AGENTS)
    draws, names = flat_draws(run, agents, MOST_CHOSEN, latest=True)
    weights, private = run.draw_weights[run.draws.sizes["draw"] - draws.shape[2] :], private_names(run.draws)
    own = np.array([name.partition("[")[0] in private for name in names])
    found = _by_agent(draws, weights, numbers[agents], own)
    rows, own_rows = both_rows(run)
    sampled = [row for row in own_rows if "derived" not in row]
    across = {row["label"]: row["rhat_across_agents"] for row in rows if "rhat_across_agents" in row}
    return {
        **verdict_entries(run, sampled, across=across),
        **_gossip_costs(run, sampled),
        **_consensus(run),
        "parameters": names,
        "posterior": rows,
        **found,
    }


def _gossip_costs(run: RunDirectory, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Rounds and gradients of agents that gossip; those of a warm-up were counted by it."""
    plan, steps = run.plan, run.status["step"]
    later = max(0, steps - plan.burn_in)
    if not isinstance(plan.sampler, Corrected):
        return costs(Spent(steps, steps), Spent(later, later), plan.num_chains, rows)
    found = run.status.get("adaptation", {})
    exchanges = found.get("exchanges", plan.sampler.exchanges or 1)
    sampled = later + SETTLING_STEPS if found else steps
    return {
        **costs(
            Spent(found.get("rounds", 0) + exchanges * sampled, found.get("gradients", 0) + sampled),
            Spent(exchanges * later, later), plan.num_chains, rows,
        ),
        **({"adaptation": found, "warnings": heating_warnings(found)} if found else {}),
    }  # fmt: skip


def in_unison(run: RunDirectory) -> dict[str, Any]:
    """What agents found together that all walk the same chains."""
    plan, every, measured = run.plan, posterior_rows(run), run.metrics.load()
    rows = [row for row in every if "derived" not in row]
    since = run.latest_draws["step"].to_numpy().min(initial=plan.num_steps)
    drawn = measured.isel(time=measured["step"].to_numpy() >= since)
    diverging, energy = drawn["diverging"].to_numpy(), drawn["energy"].to_numpy()
    depth = drawn["depth"].to_numpy()
    fractions = bfmi(energy).tolist()
    deepest = float((depth >= getattr(plan.sampler, "max_depth", np.inf)).mean())
    evaluations = measured["evaluations"].to_numpy()[0]
    hops = num_hops(plan.graph, plan.summation)
    every_sum, later = int(evaluations.sum()), int(drawn["evaluations"].to_numpy()[0].sum())
    return {
        **verdict_entries(run, rows, float(diverging.mean())),
        "warnings": warnings_of(int(diverging.sum()), fractions, deepest),
        **costs(Spent(every_sum * hops, every_sum), Spent(later * hops, later), plan.num_chains, rows),
        "evaluations": every_sum,
        "hops": hops,
        "divergences": int(diverging.sum()),
        "acceptance_rate": float(drawn["acceptance_rate"].mean()),
        "depth": float(depth.mean()),
        "depths": np.bincount(depth.astype(int).ravel()).tolist() if depth.any() else [],
        "bfmi": fractions,
        "adaptation": run.status.get("adaptation", {}),
        "draws_digest": shared_digest(run.draws),
        "parameters": list(dict.fromkeys(row["parameter"] for row in rows)),
        "posterior": every,
        **_of_agents(rows, evenly(plan.num_agents, MOST_AGENTS)),
    }


def _of_agents(rows: list[dict[str, Any]], agents: np.ndarray) -> dict[str, Any]:
    """What each agent holds: the shared parameters, which are the same everywhere, and its own."""
    known = {(row["parameter"], row.get("agent")): row for row in rows}
    names = list(dict.fromkeys(row["parameter"] for row in rows))

    def entries(agent: int | None) -> dict[str, Any]:
        own = [known.get((name, None)) or known.get((name, agent)) or {} for name in names]
        columns = {
            "mean": "mean",
            "weighted_mean": "mean",
            **{one: one for one in ("standard_deviation", "low", "high", "rhat", "ess")},
        }
        return {column: [row.get(entry) for row in own] for column, entry in columns.items()}

    return {
        "agents": [{"agent": int(agent), **entries(int(agent))} for agent in agents],
        "network_average": entries(None),
    }


def verdict_entries(
    run: RunDirectory,
    rows: list[dict[str, Any]],
    diverging: float = 0.0,
    across: Mapping[str, float | None] | None = None,
) -> dict[str, Any]:
    """Whether a run has converged, why not, that in words, and what to do if it has not."""
    plan = run.plan
    temperature = 1.0 if plan.is_unison else plan.sampler.temperature
    if temperature != 1:
        why_not = [f"the temperature is {temperature:g}"]
        return {"converged": None, "why_not": why_not, "verdict": verdict(None, why_not), "remedy": ""}
    why_not = shortcomings(rows, diverging, across)
    what_to_do = remedy(plan, rows, diverging, bool(shortcomings([], 0.0, across))) if why_not else ""
    why_not += [_spent(run)] if why_not and _spent(run) else []
    return {
        "converged": not why_not, "why_not": why_not, "verdict": verdict(not why_not, why_not, rows, scope(run)),
        "remedy": what_to_do,
    }  # fmt: skip


def _spent(run: RunDirectory) -> str:
    """That a run which stops when its draws suffice did not: its budget was spent."""
    if not run.plan.stops_itself or run.status["step"] < run.plan.num_steps:
        return ""
    return f"the budget of {run.plan.num_stored:,} draws a chain is spent (max_draws)"


class Spent(NamedTuple):
    """What every chain of an agent took: rounds, which chains share, and gradients."""

    rounds: int
    gradients: int


def costs(spent: Spent, later: Spent, num_chains: int, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Rounds and gradients of a run, and rounds for one effective draw of the worst parameter at the worst agent.

    Args:
        spent: all of them, the warm-up's included.
        later: those after the warm-up.
        num_chains: which share a message.
        rows: with the effective draws of each parameter.
    """
    fewest = min((row["ess"] for row in rows if row["ess"] is not None), default=None)
    return {
        "rounds": spent.rounds,
        "gradients": spent.gradients,
        "warmup_rounds": spent.rounds - later.rounds,
        "warmup_gradients": spent.gradients - later.gradients,
        "rounds_per_effective_draw": later.rounds * num_chains / fewest if fewest else None,
    }


def flat_draws(
    run: RunDirectory,
    agents: np.ndarray,
    most: int | None = None,
    *,
    for_people: bool = False,
    latest: bool = False,
) -> tuple[np.ndarray, list[str]]:
    """Draws of the given agents as `(chains, agents, draws, size)`, and the name of each parameter.

    With `most`, at most so many parameters, evenly chosen; names are those that people know, if it is for them. All
    draws, or the latest ones, which are of one posterior.
    """
    dataset = run.latest_draws if latest else run.draws
    if "agent" in dataset.dims:
        dataset = dataset.isel(agent=agents)
    for name in dataset.attrs["parameters"]:
        if "agent" not in dataset[name].dims:  # the same at all agents
            dataset[name] = dataset[name].expand_dims(agent=agents, axis=1)
    entries = [
        (name, place) for name in dataset.attrs["parameters"] for place in np.ndindex(*dataset[name].shape[3:])
    ]
    chosen = [entries[i] for i in evenly(len(entries), most or len(entries))]
    labels = [entry_name(name, place) for name, place in chosen]
    if for_people:
        private, known = private_names(dataset), Names.of(dataset, run.derived)
        labels = [("own " if name in private else "") + known.entry(name, place) for name, place in chosen]
    read = {
        name: dataset[name].to_numpy() if dataset[name].nbytes <= _READ_AT_ONCE else dataset[name]
        for name in dict.fromkeys(name for name, _ in chosen)
    }
    return np.stack([np.asarray(read[name][(..., *place)]) for name, place in chosen], -1), labels


def _consensus(run: RunDirectory) -> dict[str, Any]:
    """How far agents are apart over the last tenth of the run, and how fast that falls, beside the theorem's rate.

    A node knows the distance to its neighbours only.
    """
    metrics, decay = run.metrics, run.plan.sampler.consensus_decay
    name = "consensus_error" if "consensus_error" in metrics else "distance_to_neighbours"
    steps, errors = metrics["step"].to_numpy(), metrics[name].to_numpy().mean(0)
    late = steps > 0.9 * steps[-1]
    fitted = fitted_rate(steps, errors, decay.offset if decay else 1.0)
    return {
        name: float(errors[late].mean()),
        "consensus_rate": {
            "fitted": None if np.isnan(fitted) else fitted,
            "theorem": decay.rate if decay else None,
        },
    }


def _by_agent(draws: np.ndarray, weights: np.ndarray, agents: np.ndarray, private: np.ndarray) -> dict[str, Any]:
    """Moments and mixing of each agent and of the average, of which parameters that are `private` have none."""
    mixing = convergence(draws)
    rows = [
        {
            "agent": int(agent),
            **_moments(draws[:, i], weights),
            "rhat": _plain(mixing.rhat_chains[i]),
            "ess": _plain(mixing.ess_agents[i]),
        }
        for i, agent in enumerate(agents)
    ]
    return {
        "agents": rows,
        "network_average": {
            **_moments(_without(private, draws.mean(1)), weights),
            "rhat": _plain(_without(private, mixing.rhat_average)),
            "ess": _plain(_without(private, mixing.ess_average)),
        },
        "rhat_across_agents": _plain(_without(private, mixing.rhat_agents)),
    }


def _without(private: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Values `(…, size)` of shared parameters; those of private ones are no numbers."""
    return np.where(private, np.nan, values) if private.any() else values


def _moments(draws: np.ndarray, weights: np.ndarray) -> dict[str, list[float | None]]:
    """Moments of one agent's draws `(chains, draws, size)`, in double precision."""
    exact = draws.astype(float)
    low, high = np.quantile(exact, (LOW, HIGH), axis=(0, 1))
    return {
        "mean": _plain(exact.mean((0, 1))),
        "weighted_mean": _plain(weighted_mean(exact, weights, axis=1).mean(0)),
        "standard_deviation": _plain(exact.std((0, 1))),
        "low": _plain(low),
        "high": _plain(high),
    }


def _plain(values: np.ndarray) -> list[float | None]:
    return [None if not np.isfinite(value) else float(value) for value in values]
