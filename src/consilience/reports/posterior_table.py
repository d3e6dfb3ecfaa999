"""The posterior as a table that people read, on the page and in a terminal: as many columns as there is room for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from consilience.reports import tables
from consilience.reports.tables import Table
from consilience.runs.row_files import name_of

PAGE_WIDTH = 110
"""How many characters a line has on the page."""
_LESS_WANTED = ("tail ESS", "MCSE", "between agents")
"""Columns that a narrow terminal goes without, the first first."""


def posterior_table(rows: Sequence[Mapping[str, Any]], width: int | None = None) -> Table:
    """Mixing, which must not hide at the end of a line, means, 95 % intervals and ratios, a row for each parameter.

    Args:
        rows: of a run's posterior.
        width: how many characters there are in a line; by default, as many as it takes.
    """
    columns = {
        "": "name", "R-hat": "rhat", "ESS": "ess", "tail ESS": "ess_tail", "mean": "mean", "MCSE": "mean_error",
        "sd": "standard_deviation", "2.5 %": "low", "97.5 %": "high", ratio_heading(rows): "ratio",
        "between agents": "between_agents",
    }  # fmt: skip
    titles = [name_of(row) for row in rows]
    if len(set(titles)) < len(titles):  # a parameter at several agents
        columns = {"": "name", "agent": "agent", **columns}
    there = {"name", *(name for row in rows for name, value in row.items() if value is not None)}
    columns = {title: name for title, name in columns.items() if name in there}
    cells = [{**row, "name": name_of(row), **_to_the_point(row)} for row in rows]
    found = tables.rows(cells, columns)
    for title in _LESS_WANTED:
        if width is None or _width(found) <= width:
            break
        columns.pop(title, None)
        found = tables.rows(cells, columns)
    return found


def ratio_heading(rows: Sequence[Mapping[str, Any]]) -> str:
    """What the ratios of some rows are called: `odds ratio (95 %)`."""
    names = dict.fromkeys(row["ratio_name"] for row in rows if row.get("ratio_name"))
    return f"{next(iter(names)) if len(names) == 1 else 'ratio'} (95 %)"


def ratio_words(rows: Sequence[Mapping[str, Any]]) -> str:
    """What the ratios of some rows are, in words; nothing if there are none."""
    names = dict.fromkeys(row["ratio_name"] for row in rows if row.get("ratio_name"))
    if not names:
        return ""
    return (
        f"The {' or '.join(names)} is the exponential of a coefficient: its median and 95 % interval over the draws."
    )


def ratio_cell(row: Mapping[str, Any]) -> str:
    """A ratio and its interval.

    >>> ratio_cell({"ratio": 1.4222, "ratio_low": 1.1, "ratio_high": 21.83})
    '1.42 (1.10–21.83)'
    """
    return f"{_short(row['ratio'])} ({_short(row['ratio_low'])}–{_short(row['ratio_high'])})"


def _short(value: float | None) -> str:
    """A positive number: two decimals where that says enough."""
    if value is None:
        return "∞"
    if value >= 1e5 or value < 0.001:
        return f"{value:.2g}"
    return f"{value:,.{3 if value < 0.1 else 2 if value < 100 else 0}f}"


def _to_the_point(row: Mapping[str, Any]) -> dict[str, str]:
    """A parameter's numbers with as many decimals as three digits of its spread have, R-hat with three, ESS whole."""
    found = {"rhat": tables.rhat_cell(row["rhat"])}
    found |= {name: tables.ess_cell(row.get(name)) for name in ("ess", "ess_tail")}
    if row.get("ratio") is not None:
        found["ratio"] = ratio_cell(row)
    moments = {"mean": 0, "standard_deviation": 0, "low": 0, "high": 0, "between_agents": 0, "mean_error": 1}
    spread = row["standard_deviation"]
    return found | {name: tables.beside_spread(row.get(name), spread, more) for name, more in moments.items()}


def _width(table: Table) -> int:
    """How many characters a line of a table takes in a terminal, a space on either side of each cell."""
    return sum(2 + max(len(row[place]) for row in (table.header, *table.body)) for place in range(len(table.header)))
