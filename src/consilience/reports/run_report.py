"""The report of one run: what its experiment shows, then what every run shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from consilience.reports import figures, tables
from consilience.reports.answer_sections import check_sections, effect_sections, score_sections
from consilience.reports.page import Section, render_page
from consilience.reports.posterior_table import PAGE_WIDTH, posterior_table, ratio_words
from consilience.reports.study_report import study_sections
from consilience.reports.tables import shown
from consilience.reports.theory_report import theory_sections
from consilience.reports.unison_report import unison_sections
from consilience.reports.verdicts import verdict_section
from consilience.reports.warmup_report import prediction_section, warmup_section
from consilience.runs import RunDirectory
from consilience.runs.files import read_json

_CLOSE = 0.25  # of a theorem's slope, within which a measured one needs no words
_AGREEMENT = ("consensus_error", "distance_to_neighbours")


def write_report(run: RunDirectory, first: Sequence[Section]) -> Path:
    """Write `report.html` and the figures of a complete run.

    Args:
        run: the run.
        first: the experiment's own sections, which come first after the verdict.
    """
    summary, plan = run.summary, run.plan
    timing = summary["timing"]
    facts = {
        "agents": shown(plan.num_agents),
        "graph": plan.graph.name.replace("_", " "),
        "chains": shown(plan.num_chains),
        **({"sampler": summary["method"]} if plan.sampler.tunes_itself else {"steps": shown(plan.num_steps)}),
        "draws of a chain" if plan.is_unison else "draws an agent": shown(summary["num_draws"]),
        "steps per second": shown(timing["steps_per_second"]),
        "sampling": f"{timing['sampling_seconds']:.1f} s",
        **{name.replace("_", " "): shown(summary[name]) for name in _AGREEMENT if name in summary},
    }
    sections = [
        *_verdict(summary), *first, *participation_section(run),
        *generic_sections(run, with_marginals=not first), *study_sections(run), *nodes_of(run), *theory_of(run),
    ]  # fmt: skip
    title = run.status["problem_name"]
    subtitle = f"{plan.num_agents} agents, each with its own data, sample one posterior" if plan.num_agents > 1 else (
        "One agent with all the data: the centralized algorithm"
    )  # fmt: skip
    return render_page(run.path, title, subtitle, facts, sections, details(run))


def _verdict(summary: Mapping[str, Any]) -> list[Section]:
    """Whether the run has converged, what an effective draw costs, and remarks."""
    cost = summary.get("rounds_per_effective_draw")
    words = [] if cost is None else [f"One effective draw takes {shown(cost)} rounds of messages."]
    return verdict_section(summary, [*words, *(f"Note: {one}." for one in summary.get("warnings", ()))])


def generic_sections(run: RunDirectory, with_marginals: bool) -> list[Section]:
    """What any run can show: the posterior, agreement or chains, the graph."""
    own = unison_sections if run.plan.is_unison else gossip_sections
    rows = run.summary.get("posterior")
    effects = effect_sections(rows) if with_marginals and isinstance(rows, list) else []
    first, *rest = own(run, with_marginals)
    return [first, *effects, *check_sections(run), *score_sections(run), *rest, *_graph(run)]


def gossip_sections(run: RunDirectory, with_marginals: bool) -> list[Section]:
    """What runs show whose agents each walk a chain of their own: marginals, agreement, mixing."""
    sections, summary = [], run.summary
    if with_marginals:
        rows: Any = summary.get("posterior")
        known = isinstance(rows, list)  # not of older versions
        sections.append(
            Section(
                "Marginal posteriors",
                "One line an agent, in the colours of the traces below, draws weighted by their step size."
                + (_network_words(summary) if known else ""),
                {"marginals": figures.marginals(run)},
                posterior_table(rows, PAGE_WIDTH) if known else tables.agents(summary),
            )
        )
        if known and run.plan.num_agents > 1:
            sections.append(Section("Agent by agent", "The first parameters.", table=tables.agents(summary)))
    if run.plan.num_agents > 1:
        sections.append(
            Section(
                "Agreement between agents",
                _agreement_words(summary),
                {"consensus": figures.consensus({f"{run.plan.num_agents} agents": run})},
            )
        )
    worst = max((value for value in summary["rhat_across_agents"] if value is not None), default=None)
    text = (
        "Every agent's path over the run (first chain), one over the other, the first agent's the widest."
        + _panels_in_words(summary)
    )
    if run.plan.num_agents > 1:
        text += f" R-hat across agents, which measures agreement and not convergence, is at most {shown(worst)}."
    sections.append(Section("Traces", text, {"traces": figures.traces(run)}))
    return [*sections, *prediction_section(run), *warmup_section(run)]


def _panels_in_words(summary: Mapping[str, Any]) -> str:
    """How many parameters figures show, if not all."""
    every = summary.get("num_parameters", 0)
    return f" {figures.MOST_PANELS} of {every:,} parameters, evenly chosen." if every > figures.MOST_PANELS else ""


def _network_words(summary: Mapping[str, Any]) -> str:
    """What the rows of the table are, where every agent has draws of its own."""
    rows, every = summary["posterior"], summary.get("num_parameters", 0)
    there = len({row["parameter"] for row in rows if "derived" not in row})
    chosen = f" {there} of {every:,} parameters, evenly chosen." if there < every else ""
    if not any(row.get("between_agents") is not None for row in rows):
        return f"{chosen} {ratio_words(rows)}".rstrip()
    return (
        f"{chosen} In the table, the draws of all agents together; R-hat and ESS are those of the worst agent, and "
        f"“between agents” is the standard deviation of their means. {ratio_words(rows)}"
    ).rstrip()


def _graph(run: RunDirectory) -> list[Section]:
    if run.plan.num_agents == 1:
        return []
    graph = run.summary["graph"]
    return [
        Section(
            "Who talks to whom",
            f"{graph['num_edges']:,} edges; λ₂ = {graph['algebraic_connectivity']:.4g}, "
            f"λ_max = {graph['largest_eigenvalue']:.4g}.",
            {"network": figures.network(run)},
        )
    ]


def _agreement_words(summary: Mapping[str, Any]) -> str:
    if "distance_to_neighbours" in summary:
        return "A node sees its neighbours only: this is the squared distance to them, summed."
    falls = (
        "The consensus error falls as the step size does; Theorem 1 gives the rate of its expectation."
        if summary["consensus_rate"]["theorem"] is not None
        else "How far agents are from their average."
    )
    return f"{falls} Draws of an agent carry this error on top of the network average.{_beside_theorem(summary)}"


def _beside_theorem(summary: Mapping[str, Any]) -> str:
    """Why the measured slope is not the theorem's, where they are far apart."""
    fitted, theorem = (summary["consensus_rate"][name] for name in ("fitted", "theorem"))
    if fitted is None or theorem is None or theorem <= 0 or abs(fitted - theorem) <= _CLOSE * theorem:
        return ""
    here = f"falls at the rate {fitted:.2f} here" if fitted > 0 else f"does not fall here (slope {-fitted:.2f})"
    beside = f" The error {here}, and the theorem says {theorem:.2f}: "
    if fitted > theorem:
        return beside + (
            "that is a bound from above, for the worst gradients and late steps. Agents may agree sooner, above all "
            "while they still leave their starts."
        )
    return beside + (
        "that is about late steps of plans inside its conditions, with full gradients. Either this run is too short "
        "to show them, or it is outside (`consilience check` says)."
    )


def participation_section(run: RunDirectory) -> list[Section]:
    """Whose data counted in the draws, where it was not everybody's in all of them."""
    shares = run.summary.get("participation", ())
    missing = [agent for agent, share in enumerate(shares) if share < 1]
    if not missing:
        return []
    names = ", ".join(f"agent {agent}" for agent in missing)
    rows = [{"name": f"agent {agent}", "share": f"{100 * share:.1f} %"} for agent, share in enumerate(shares)]
    return [
        Section(
            "Whose data counted",
            f"This run continued while agents were lost: the data of {names} is missing from some of its draws. Such "
            f"a draw comes from the posterior given the data of the others, {_prior_words(run)} "
            "`participation` in draws.zarr says it for every draw.",
            {},
            tables.rows(rows, {"": "name", "Share of the draws": "share"}),
        )
    ]


def _prior_words(run: RunDirectory) -> str:
    if not run.plan.begins_anew_without:
        return "with their share of the prior."
    if not run.plan.is_unison:
        return "with the whole prior. Verdict and tables are of the draws since agents were last lost or came back."
    return (
        "with the whole prior. Chains warmed up anew whenever agents were lost or came back; what is shown here is "
        "of the draws since then."
    )


def nodes_of(run: RunDirectory) -> list[Section]:
    """How the nodes fared that made the run, if nodes did."""
    nodes = run.summary.get("nodes", [])
    if not nodes:
        return []
    records = [{**node, **node["messages"], "node": f"agent {node['agent']}"} for node in nodes]
    columns = {
        "": "node", "rounds per second": "rounds_per_second", "messages sent": "sent", "received": "received",
        "rejected": "rejected", "restarts": "restarts",
    }  # fmt: skip
    text = (
        "Every agent was a process of its own, beside its own data. Messages are counted since a node's last start; "
        "one that was started again resumed from its checkpoint, which does not change its draws."
    )
    return [Section("The nodes", text, table=tables.rows(records, columns))]


def theory_of(run: RunDirectory) -> list[Section]:
    """What the theory says about the run, if it was asked."""
    place = run.path / "theory.json"
    return theory_sections(read_json(place)) if place.exists() else []


def details(run: RunDirectory) -> dict[str, str]:
    """The plan, the provenance and the summary as they stand on disk."""
    return {name: (run.path / name).read_text() for name in ("plan.toml", "provenance.json", "summary.json")}
