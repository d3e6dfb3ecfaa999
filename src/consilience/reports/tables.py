"""Tables as text cells, for the page and the terminal alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Table:
    """A header and rows of text."""

    header: tuple[str, ...]
    body: tuple[tuple[str, ...], ...]

    @property
    def word_columns(self) -> tuple[bool, ...]:
        """For each column whether it holds words, which stand on the left, and not numbers only.

        >>> Table(("what", "value", "note"), (("x", "1,000", "yes"), ("y", "> 2", "so so"))).word_columns
        (True, False, True)
        """
        return tuple(any(_is_words(row[place]) for row in self.body) for place in range(len(self.header)))


def rows(records: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> Table:
    """A table of records; `columns` maps each heading to the record's entry.

    >>> rows([{"x": 0.12345, "y": None}], {"X": "x", "Y": "y"}).body
    (('0.1235', '–'),)
    """
    return Table(
        tuple(columns), tuple(tuple(shown(record.get(key)) for key in columns.values()) for record in records)
    )


def agents(summary: Mapping[str, Any], extra: Sequence[str] = ()) -> Table:
    """Mean, spread and mixing of every agent in a summary, and of the network average."""
    names = summary["parameters"][:4]
    rows = summary.get("posterior")
    labels = (
        {row["parameter"]: row.get("label") for row in rows if "agent" not in row} if isinstance(rows, list) else {}
    )
    known = [labels.get(name) or name for name in names]
    header = ["", *(f"mean {name}" for name in known), *(f"sd {name}" for name in known), "ESS", "R-hat"]
    header += [key.replace("_", " ") for key in extra]

    def cells(label: str, row: Mapping[str, Any]) -> tuple[str, ...]:
        means = [shown(value) for value in row["mean"][: len(names)]]
        spreads = [shown(value) for value in row["standard_deviation"][: len(names)]]
        mixing = [shown(_extreme(row["ess"], min)), shown(_extreme(row["rhat"], max))]
        return (label, *means, *spreads, *mixing, *(shown(row.get(key)) for key in extra))

    body = [cells(f"agent {row['agent']}", row) for row in summary["agents"]]
    if summary["num_agents"] > 1:
        body.append(cells("network average", summary["network_average"]))
    return Table(tuple(header), tuple(body))


def shown(value: Any) -> str:
    """A value as people read it."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        if value != value:
            return "–"
        return f"{value:,.0f}" if 100 <= abs(value) < 1e9 else f"{value:.4g}"
    return str(value)


def _is_words(cell: str) -> bool:
    return cell[:1].isalpha() and cell not in ("yes", "no", "outside")


def _extreme(values: Sequence[float | None], pick: Any) -> float | None:
    finite = [value for value in values if value is not None]
    return pick(finite) if finite else None
