"""What the report of a run in unison shows: the posterior, the chains, what the warm-up found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.reports import tables
from consilience.reports.figures import (
    COLOURS,
    INK,
    MOST_PANELS,
    MOST_POINTS,
    edges_of,
    finish_traces,
    pretty,
    small_axes,
    trace_axes,
)
from consilience.reports.page import Section
from consilience.reports.posterior_table import PAGE_WIDTH, posterior_table, ratio_words
from consilience.reports.tables import shown
from consilience.runs import RunDirectory
from consilience.runs.posterior import evenly
from consilience.runs.summary import flat_draws

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_SCALES = 12
_COLOURS_BELOW = "One line a chain, in the colours of the chains below"


def sampler_in_words(summary: Mapping[str, Any]) -> list[str]:
    """What the warm-up found, how the sampler fared, what it cost, and the digest of the shared draws."""
    found, divergences, deep = summary["adaptation"], summary["divergences"], summary["depth"]
    fared = [
        f"step size {shown(found.get('step_size'))}, {found.get('mass', 'unknown')} mass",
        *([f"largest correlation {_correlation(found)}"] if "largest_correlation" in found else []),
        f"acceptance {summary['acceptance_rate']:.2f}",
        *([f"mean tree depth {deep:.1f}"] if deep else []),
        f"{divergences:,} divergence{'' if divergences == 1 else 's'}" if divergences else "no divergences",
        *([f"BFMI at least {min(summary['bfmi']):.2f}"] if summary["bfmi"] else []),
    ]
    cost = summary["rounds_per_effective_draw"]
    dear = "" if cost is None else f", {shown(cost)} for one effective draw"
    spent = f"{summary['gradients']:,} gradients at each agent, {summary['rounds']:,} rounds of messages{dear}."
    lines = [f"{summary['method']}: {', '.join(fared)}.", spent[0].upper() + spent[1:]]
    if "draws_digest" in summary:  # older runs have none
        lines.append(f"Digest of the shared draws: {summary['draws_digest'][:16]}")
    return lines


def unison_sections(run: RunDirectory, with_marginals: bool) -> list[Section]:
    """The posterior with its table, the chains, and what the warm-up found."""
    summary = run.summary
    posterior = Section(
        "Posterior",
        f"{_whose_draws(summary)} {ratio_words(summary['posterior'])}".strip(),
        {"marginals": chain_marginals(run)} if with_marginals else {},
        posterior_table(summary["posterior"], PAGE_WIDTH),
    )
    marked = " Ticks below: draws that diverged." if summary["divergences"] else ""
    traces = Section(
        "Chains", f"Chains side by side, each from its first draw to its last.{marked}", {"traces": chain_traces(run)}
    )
    return [posterior, traces, _sampler(summary)]


def _whose_draws(summary: Mapping[str, Any]) -> str:
    """Who holds the draws, and what the figure shows of them."""
    whose = sorted({row["agent"] for row in summary["posterior"] if "agent" in row})
    if not whose:
        return f"All agents hold these draws, given the data of all of them. {_COLOURS_BELOW}."
    return (
        "Draws given the data of all agents. All of them hold those of the shared parameters; those of a private one "
        f"are at its agent alone. {_COLOURS_BELOW}, private ones of agent {whose[0]}."
    )


def _depths(counts: Sequence[int]) -> str | None:
    """How many doublings trajectories took.

    >>> _depths([0, 100, 300])
    '1 (25 %), 2 (75 %)'
    """
    said = [f"{depth} ({100 * count / sum(counts):.0f} %)" for depth, count in enumerate(counts) if count]
    return ", ".join(said) or None


def _correlation(found: Mapping[str, Any]) -> str:
    """Of the dense mass's covariance, with the parameters it is between."""
    largest = found["largest_correlation"]
    return f"{largest['value']:.2f} of {' and '.join(largest['between'])}"


def _private_scales(found: Mapping[str, Any]) -> str | None:
    """Of the first agents, each agent's apart from the others'.

    >>> _private_scales({"private_scales": {"0": [0.5, 1.0], "2": [0.25]}})
    'agent 0: 0.5, 1; agent 2: 0.25'
    """
    agents, left = [], _MOST_SCALES
    for agent, scales in found.get("private_scales", {}).items():
        if left > 0:
            agents.append(f"agent {agent}: {', '.join(shown(one) for one in scales[:left])}")
        left -= len(scales)
    return "; ".join(agents) or None


def _sampler(summary: Mapping[str, Any]) -> Section:
    found = summary["adaptation"]
    facts = {
        "step size": found.get("step_size"),
        "mass": found.get("mass"),
        "longest trajectory": found.get("longest_trajectory"),
        "acceptance rate": summary["acceptance_rate"],
        "sums over the network": summary["evaluations"],
        "hops of each": summary["hops"],
        "rounds for an effective draw": summary["rounds_per_effective_draw"],
        "divergences": summary["divergences"],
        "tree depths": _depths(summary.get("depths", ())),
        "BFMI, lowest of the chains": min(summary["bfmi"], default=None),
        "scales of the shared parameters": ", ".join(shown(one) for one in found.get("scales", ())[:_MOST_SCALES]),
        "largest correlation": _correlation(found) if "largest_correlation" in found else None,
        "condition number of the correlations": found.get("condition"),
        "scales of private parameters": _private_scales(found),
        "digest of the shared draws": summary.get("draws_digest"),
    }
    rows = [{"what": what, "value": shown(value)} for what, value in facts.items() if value not in (None, "")]
    text = "Found by the warm-up, from sums over the network; nothing was set by hand."
    return Section("The sampler", text, {}, tables.rows(rows, {"": "what", "value": "value"}))


def chain_marginals(run: RunDirectory) -> Figure:
    """The marginal density of parameters, one line a chain."""
    draws, names = _draws(run, MOST_PANELS)
    figure, axes = small_axes(len(names), min(4, len(names)), (2.6, 2.0))
    for column, (axis, name) in enumerate(zip(axes, names, strict=False)):
        values = draws[..., column]
        edges = edges_of(values, values.shape[1])
        for chain in range(len(values)):
            height, _ = np.histogram(values[chain], edges, density=True)
            axis.stairs(height, edges, color=COLOURS[chain % len(COLOURS)], linewidth=1.1, alpha=0.8)
        axis.set_title(pretty(name))
        axis.set_yticks([])
    return figure


def chain_traces(run: RunDirectory) -> Figure:
    """Parameters over draws, chains side by side; ticks below them where a draw diverged."""
    draws, names = _draws(run, MOST_PANELS)
    num_chains, num_draws = draws.shape[:2]
    measured = _diverging(run)
    of_chain, when = np.nonzero(measured)
    diverged = num_draws * (of_chain + when / max(1, measured.shape[1]))
    chosen = evenly(num_draws, 1500 if len(names) <= 4 else 600)
    heavy = num_chains * len(chosen) * len(names) > MOST_POINTS
    figure, axes = trace_axes(len(names))
    for column, (axis, name) in enumerate(zip(axes, names, strict=True)):
        for chain in range(num_chains):
            line, colour = draws[chain, chosen, column], COLOURS[chain % len(COLOURS)]
            where, label = chain * num_draws + chosen, f"chain {chain}"
            axis.plot(where, line, color=colour, linewidth=0.7, label=label, rasterized=heavy)
        if len(diverged):
            bottom, low = axis.get_xaxis_transform(), np.zeros(len(diverged))
            axis.plot(diverged, low, "|", color=INK, markersize=9, transform=bottom, clip_on=False)
        axis.set_xticks(num_draws * np.arange(num_chains + 1), labels=[])
        axis.set_title(pretty(name), loc="left", fontsize=8.5)
    finish_traces(figure, axes, f"{num_draws:,} draws of each chain")
    return figure


def _diverging(run: RunDirectory) -> np.ndarray:
    """`(chains, draws)`: which draws diverged."""
    measured = run.metrics
    return measured["diverging"].to_numpy()[:, measured["step"].to_numpy() > run.plan.burn_in] > 0


def _draws(run: RunDirectory, most: int) -> tuple[np.ndarray, list[str]]:
    """Draws of the first agent that is here, `(chains, draws, size)`; shared ones are everybody's."""
    draws, names = flat_draws(run, np.array([0]), for_people=True)
    there = [place for place in range(len(names)) if np.isfinite(draws[..., place]).all()]
    chosen = [there[place] for place in evenly(len(there), most)]
    return draws[:, 0][..., chosen], [names[place] for place in chosen]
