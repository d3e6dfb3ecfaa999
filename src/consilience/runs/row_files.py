"""The rows of a run's posterior as a table that spreadsheets and other programs read."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

COLUMNS = (
    "agent", "mean", "standard_deviation", "low", "high", "ratio_name", "ratio", "ratio_low", "ratio_high",
    "between_agents", "rhat", "ess", "ess_tail", "mean_error", "derived",
)  # fmt: skip
"""What rows have beside their names, in this order; where no row has it, there is no column."""


def columns_of(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The columns that some row has."""
    return [name for name in COLUMNS if any(name in row for row in rows)]


def name_of(row: Mapping[str, Any]) -> str:
    """What people call the parameter of a row; runs of older versions have its name and whose it is.

    >>> name_of({"parameter": "w[1]", "label": "age"}), name_of({"parameter": "effect", "agent": 2})
    ('age', 'site 2: effect')
    """
    if "label" in row:
        return str(row["label"])
    return f"site {row['agent']}: {row['parameter']}" if "agent" in row else str(row["parameter"])


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as comma-separated values, with the names that people know first.

    >>> as_csv([{"parameter": "w[0]", "label": "age", "mean": 0.5}]).splitlines()
    ['name,parameter,mean', 'age,w[0],0.5']
    """
    columns = columns_of(rows)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["name", "parameter", *columns])
    for row in rows:
        numbers = ["" if row.get(name) is None else row[name] for name in columns]
        writer.writerow([name_of(row), row["parameter"], *numbers])
    return text.getvalue()
