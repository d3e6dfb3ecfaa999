"""What the theory says about a plan, as sections of a page; from `theory.json` alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from consilience.reports import tables, theory_figures
from consilience.reports.page import Section, render_page
from consilience.reports.tables import Table, shown


def write_theory_page(described: Mapping[str, Any], directory: Path, details: Mapping[str, str]) -> Path:
    """Write `report.html` and the figures about a plan that was assessed.

    Args:
        described: the assessment in plain values.
        directory: where to write.
        details: longer texts to fold away at the end of the page.
    """
    plan = described["plans"][0]
    facts = {
        "agents": shown(described["num_agents"]),
        "graph": described["graph"],
        "steps": shown(described["num_steps"]),
        "inside the theorems": "no" if described["unmet_conditions"] else "yes",
        "rate promised": f"{plan['slope']['theorem']:.3g}" if plan["slope"]["theorem"] > 0 else "none",
        f"steps until KL ≤ {described['tolerance']:g}": _answers(plan)[-1][1],
    }
    title = f"What the theory says about {described['problem']}"
    subtitle = "Before any machine-day is spent: does it converge, how fast, and how many steps does it need?"
    return render_page(directory, title, subtitle, facts, theory_sections(described), details)


def theory_sections(described: Mapping[str, Any]) -> list[Section]:
    """The sections about bounds, answers, constants and comparisons."""
    tolerance, plans = described["tolerance"], described["plans"]
    sections = [
        Section(
            "How many steps",
            conditions_in_words(described) + " " + _kinds_in_words(described),
            table=answer_table(described),
        )
    ]
    if described["num_agents"] > 1:
        sections.append(
            Section(
                "Agreement between agents, and Theorem 1",
                slopes_in_words(plans[0]),
                figures={"theory_consensus": theory_figures.bounds(plans, "consensus")},
            )
        )
    sections.append(
        Section(
            "Distance of the average from the posterior, and Theorem 2",
            "The closed form bounds the tight recursion, which bounds the true values. How far they are apart is "
            "what the proofs gave away. Measured values below what exact draws would score are left out.",
            figures={"theory_divergence": theory_figures.bounds(plans, "divergence", tolerance)},
        )
    )
    if described["comparisons"]:
        sections.append(
            Section(
                "Other graphs, other numbers of agents",
                comparison_in_words(described),
                figures={"theory_comparisons": theory_figures.comparisons(described["comparisons"], tolerance)},
                table=comparison_table(described),
            )
        )
    sections.append(
        Section(
            "The constants of the problem", "Each is exact, a bound, or an estimate.", table=problem_table(described)
        )
    )
    if described["theorem_constants"]:
        whose = "this plan" if len(plans) == 1 else "the nearest plan inside the theorems"
        sections.append(
            Section(
                "The constants of the theorems",
                f"For {whose}, by the paper's equations.",
                table=theorem_table(described),
            )
        )
    return sections


def conditions_in_words(described: Mapping[str, Any]) -> str:
    """Whether the plan is inside the theorems, and what is done if not."""
    if not described["unmet_conditions"]:
        return "The plan is inside both theorems."
    unmet = "; ".join(described["unmet_conditions"])
    if described["inside_theorem_1"]:
        return f"The plan is inside Theorem 1 but outside Theorem 2 ({unmet})." + _nearest_in_words(described)
    words = f"The plan is outside the theorems ({unmet}), so only the recursion behind them speaks about it."
    return words + _nearest_in_words(described)


def _nearest_in_words(described: Mapping[str, Any]) -> str:
    return " The closed forms are shown for the nearest plan inside them." if len(described["plans"]) > 1 else ""


def slopes_in_words(plan: Mapping[str, Any]) -> str:
    """The rate that Theorem 1 promises, and the one that is there."""
    slope = plan["slope"]
    true = slope.get("exact", slope.get("approximate"))
    if slope["theorem"] > 0:
        words = f"Theorem 1's rate is δ₂ − 2δ₁ = {slope['theorem']:.3g}, for gradients as bad as Assumption 3 allows."
    else:
        words = "Step sizes that fall like these are outside Theorem 1, which promises no rate for them."
    if true is None or slope["tight"] is None:
        return words
    return words + (
        f" Over the last decade it is {true:.3g} here, and {slope['tight']:.3g} for the tight recursion; noise alone "
        f"falls like α/β, at the rate δ₂ − δ₁ = {slope['noise']:.3g}."
    )


def comparison_in_words(described: Mapping[str, Any]) -> str:
    """What the theorem promises for more agents, and what is there."""
    words = (
        "The data, the step sizes and β₀λ_max are the same everywhere. With a = C_a^(1/3)/n³ Theorem 2 promises that "
        "the late part of its bound falls like 1/n. For that the first step size a has to shrink, so that k* grows."
    )
    found = []
    for family in dict.fromkeys(row["graph"] for row in described["comparisons"]):
        known = [row for row in described["comparisons"] if row["graph"] == family and row["steps"] is not None]
        if len(known) > 1:
            few, many = min(known, key=_agents), max(known, key=_agents)
            found.append(
                f"{few['steps']:,} steps with {few['num_agents']} and {many['steps']:,} with {_agents(many)}"
            )
            found[-1] += f" agents on a {family}"
    really = f" What it really takes: {'; '.join(found)}." if found else ""
    return words + really + " What more agents do is share the work of each step."


def _agents(row: Mapping[str, Any]) -> int:
    return row["num_agents"]


def answer_table(described: Mapping[str, Any]) -> Table:
    """After how many steps the divergence stays below the tolerance, for each plan, by each way to ask."""
    ways = [way for way, _ in _answers(described["plans"][0])]
    body = [(plan["title"], *(answer for _, answer in _answers(plan))) for plan in described["plans"]]
    return Table((f"Steps until KL ≤ {described['tolerance']:g}", *ways), tuple(body))


def problem_table(described: Mapping[str, Any]) -> Table:
    """The constants of the problem, each with its label."""
    columns = {"Symbol": "symbol", "Meaning": "meaning", "Value": "value", "Kind": "kind", "From": "how"}
    return tables.rows(described["problem_constants"], columns)


def theorem_table(described: Mapping[str, Any]) -> Table:
    """The constants of the theorems, each with its equation."""
    columns = {"Symbol": "symbol", "Meaning": "meaning", "Value": "value", "Equation": "equation"}
    return tables.rows(described["theorem_constants"], columns)


def comparison_table(described: Mapping[str, Any]) -> Table:
    """One row for each graph and number of agents."""
    columns = {
        "Graph": "graph",
        "Agents": "num_agents",
        "λ_2": "connectivity",
        "β_0": "consensus",
        "Agreement": "agreement",
        "E‖w̃‖² at the end": "consensus_error",
        "KL at the end": "divergence",
        "Steps": "steps",
        "Promised": "promised",
        "Q_2": "late_scale",
        "k*": "proven_steps",
    }
    return tables.rows(described["comparisons"], columns)


def _answers(plan: Mapping[str, Any]) -> list[tuple[str, str]]:
    needed = plan["steps_needed"]
    exact = "exact" if "exact" in needed else "approximate"
    label = "Exact" if exact == "exact" else "Normal approximation"
    theorem = needed["theorem"]
    ways = ["measured"] if "measured" in needed else []
    return [
        ("Theorem (k*)", "outside" if theorem is None else theorem["value"]),
        ("Tight recursion", _within(needed["tight"], needed["looked_at"]["tight"]) if "tight" in needed else "–"),
        (label, _within(needed[exact], needed["looked_at"][exact])),
        *(("Measured", _within(needed[way], needed["looked_at"][way])) for way in ways),
    ]


def _within(steps: int | None, looked_at: int) -> str:
    return f"> {looked_at:,}" if steps is None else f"{steps:,}"


def _kinds_in_words(described: Mapping[str, Any]) -> str:
    if described["gaussian"]:
        gradients = ", for full gradients" if described["minibatches"] else ""
        return f"The problem is Gaussian: its values are exact, without sampling{gradients}."
    return (
        "The problem is not Gaussian: its constants are estimates or bounds, and its true values are those of the "
        "normal approximation at its deepest mode, and what was measured."
    )
