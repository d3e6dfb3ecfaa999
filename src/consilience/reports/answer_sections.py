"""What a report shows for people who ask what the posterior means: effects, checks against the data, scores."""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from typing import Any

from consilience.reports import tables
from consilience.reports.check_figures import MOST_SITES, calibration, drawn_outcomes
from consilience.reports.forest import MOST_ROWS, forest, forest_rows
from consilience.reports.page import Section
from consilience.runs import RunDirectory
from consilience.runs.answers import checks_of, has_scores, scores_by_site


def effect_sections(rows: Sequence[Mapping[str, Any]]) -> list[Section]:
    """The forest plot of coefficients, if there are several."""
    shown = forest_rows(rows)
    if not shown:
        return []
    more = f" The first {MOST_ROWS}; the table has all." if len(shown) == MOST_ROWS else ""
    left_out = " The intercept is in the table." if _has_intercept(rows) else ""
    own = " Orange: what is a site's own." if any("agent" in row for row in shown) else ""
    what = "Ratios" if any(row.get("ratio_name") for row in shown) else "Means"
    text = f"{what} with 95 % intervals.{own}{left_out}{more}"
    return [Section("Effects", text, {"forest": forest(shown)})]


def check_sections(run: RunDirectory) -> list[Section]:
    """What the model says of every outcome beside what was observed, by site."""
    sites = checks_of(run)
    if not sites:
        return []
    found = []
    for name, one in sites[0]["outcomes"].items():
        by_bins = one["kind"] in ("binary", "class")
        figure = (calibration if by_bins else drawn_outcomes)(name, sites)
        title = f"Is it calibrated? {name}" if by_bins else f"Does the model say what was seen? {name}"
        text = (_calibration_words(one) if by_bins else _drawn_words()) + _whose(run, sites)
        found.append(Section(title, text, {_file(f"check {name}"): figure}, _statistics(name, sites)))
    return found


def score_sections(run: RunDirectory) -> list[Section]:
    """How well the model predicts rows that it has not seen."""
    if not has_scores(run):
        return []
    by_site = scores_by_site(run)
    whole = functools.reduce(operator.add, by_site.values())
    named = {f"site {agent}": one for agent, one in by_site.items()}
    rows = [
        {
            "name": name, "rows": one.rows, "elpd": f"{one.elpd[0]:,.1f}", "error": f"{one.error(0):,.1f}",
            "parameters": f"{one.parameters[0]:,.1f}", "bad": int(one.bad[0]),
        }
        for name, one in ({**named, "all sites": whole} if len(named) > 1 else named).items()
    ]  # fmt: skip
    columns = {
        "": "name", "rows": "rows", "elpd": "elpd", "standard error": "error", "p_loo": "parameters",
        "rows not to be trusted": "bad",
    }  # fmt: skip
    text = (
        "The expected log predictive density of a row that was left out, summed over rows (PSIS-LOO). Larger is "
        "better, beside another model of the same rows: `consilience compare RUN RUN`. Each site computed it for its "
        "own rows; the total is the sum of the sites'."
    )
    return [Section("How well does it predict rows it has not seen?", text, {}, tables.rows(rows, columns))]


def _drawn_words() -> str:
    return (
        "Outcomes drawn from the posterior for the rows that a site holds (blue: 95 % of the sets, and their "
        "median), beside the observed ones (black). Where black leaves the band, the model says something else than "
        "the data."
    )


def _calibration_words(one: Mapping[str, Any]) -> str:
    what = "the share of right predictions" if one["kind"] == "class" else "the share of ones"
    return (
        f"Rows in bins of their predicted probability: the dot is {what} that was observed, the bar holds 95 % of "
        "what the model itself would give. Red dots lie outside. The rows were also fitted to, so this shows what "
        "the model cannot fit, not how it does on new rows."
    )


def _whose(run: RunDirectory, sites: Sequence[Mapping[str, Any]]) -> str:
    """Whose rows are shown, and what a page that puts sites together then holds of them."""
    some = f" {MOST_SITES} of {len(sites)} sites are shown." if len(sites) > MOST_SITES else ""
    if run.status["engine"] != "peers":
        return some
    if "nodes" not in run.status:
        return f"{some} These are the rows of this node alone, and the numbers stay in its directory."
    return (
        f"{some} Each site counted its own rows. This page holds the counts of every site: who reads it learns how "
        "outcomes are distributed at each."
    )


def _statistics(name: str, sites: Sequence[Mapping[str, Any]]) -> tables.Table:
    rows = [
        {"site": f"site {site['agent']}", "what": what, **one, "interval": f"{one['low']:.4g} to {one['high']:.4g}"}
        for site in sites
        for what, one in site["outcomes"][name]["statistics"].items()
    ]
    columns = {
        "": "site", "statistic": "what", "observed": "observed", "95 % of drawn sets": "interval",
        "share of sets above": "share_above",
    }  # fmt: skip
    return tables.rows(rows, columns)


def _has_intercept(rows: Sequence[Mapping[str, Any]]) -> bool:
    return any(row.get("label", "").lower() == "intercept" for row in rows)


def _file(name: str) -> str:
    """A name that a file can have."""
    return "-".join("".join(one if one.isalnum() else " " for one in name).split())
