"""Tables as text cells, for the page and the terminal alike."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_MOST_DECIMALS = 6
_WRAPPED = 32  # characters of a column of words, which a terminal breaks into lines


@dataclass(frozen=True)
class Table:
    """A header and rows of text.

    Attributes:
        header: of the columns.
        body: the rows.
        links: for each row, where its first cell leads to on a page; empty if nowhere.
        sorts: whether a page lets readers sort it by its columns.
    """

    header: tuple[str, ...]
    body: tuple[tuple[str, ...], ...]
    links: tuple[str, ...] = ()
    sorts: bool = False

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
    header = ["", "R-hat", "ESS", *(f"mean {name}" for name in known), *(f"sd {name}" for name in known)]
    header += [key.replace("_", " ") for key in extra]

    def cells(label: str, row: Mapping[str, Any]) -> tuple[str, ...]:
        moments = list(zip(row["mean"], row["standard_deviation"], strict=True))[: len(names)]
        means = [beside_spread(mean, spread) for mean, spread in moments]
        spreads = [beside_spread(spread, spread) for _, spread in moments]
        mixing = rhat_cell(_extreme(row["rhat"], max)), ess_cell(_extreme(row["ess"], min))
        return (label, *mixing, *means, *spreads, *(shown(row.get(key)) for key in extra))

    body = [cells(f"agent {row['agent']}", row) for row in summary["agents"]]
    if len(summary["agents"]) > 1:  # one node's summary knows no other agent
        body.append(cells("network average", summary["network_average"]))
    return Table(tuple(header), tuple(body))


def classifiers(summary: Mapping[str, Any]) -> Table:
    """Accuracy of every agent, with confidence and calibration where they were measured, and of all together."""
    records = [
        {"name": f"agent {row['agent']}", "accuracy": _percent(row["accuracy"]), **_scores(row)}
        for row in summary["agents"]
    ]
    if len(records) > 1:
        share = summary.get("predictive_accuracy")
        averaged = {} if share is None else {"averaged": _percent(share)}
        accuracy = _percent(summary["accuracy_mean"])
        records.append({"name": "all agents", "accuracy": accuracy, **averaged, **_scores(summary)})
    there = {name for record in records for name in record}
    columns = {
        "": "name", "accuracy": "accuracy", "of averaged draws": "averaged", "confidence": "confidence",
        "calibration error": "ece",
    }  # fmt: skip
    return rows(records, {title: name for title, name in columns.items() if name in there})


def _scores(row: Mapping[str, Any]) -> dict[str, Any]:
    found = row.get("in_distribution", {})
    return {name: found[key] for name, key in (("confidence", "confidence_mean"), ("ece", "ece")) if key in found}


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def in_parts(shown: Table, width: int) -> list[Table]:
    """The columns of a table in parts that fit into a line, each with the first column.

    >>> table = Table(("", "mean", "sd"), (("slope", "1.25", "0.50"),))
    >>> [part.header for part in in_parts(table, 16)]
    [('', 'mean'), ('', 'sd')]
    >>> len(in_parts(table, 80))
    1
    """
    widths = [2 + max(map(len, column)) for column in zip(shown.header, *shown.body, strict=True)]
    pairs = zip(widths, shown.word_columns, strict=True)
    taken = [min(one, _WRAPPED) if words and place else one for place, (one, words) in enumerate(pairs)]
    parts, room = [[0]], width - taken[0]
    for place, one in enumerate(taken[1:], start=1):
        if one > room and len(parts[-1]) > 1:
            parts.append([0])
            room = width - taken[0]
        parts[-1].append(place)
        room -= one
    return [
        Table(tuple(shown.header[one] for one in part), tuple(tuple(row[one] for one in part) for row in shown.body))
        for part in parts
    ]


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


def beside_spread(value: float | None, spread: float | None, more: int = 0) -> str:
    """A number with as many decimals as three digits of a spread have, or so many more.

    >>> beside_spread(0.046661, 0.4344), beside_spread(-0.0001, 0.4344), beside_spread(12345.6, 250.0)
    ('0.047', '0.000', '12,346')
    """
    if value is None or not spread or not math.isfinite(spread) or not math.isfinite(value):
        return shown(value)
    decimals = 2 - math.floor(math.log10(spread))
    if not 0 <= decimals <= _MOST_DECIMALS:
        return shown(value)
    return f"{round(value, decimals + more) + 0.0:,.{decimals + more}f}"  # no minus before a zero


def rhat_cell(rhat: float | None) -> str:
    """R-hat with three decimals: its goal has two.

    >>> rhat_cell(1.07), rhat_cell(None)
    ('1.070', '–')
    """
    return shown(None) if rhat is None else f"{rhat:.3f}"


def ess_cell(ess: float | None) -> str:
    """Effective draws, whole.

    >>> ess_cell(1249.2), ess_cell(None)
    ('1,249', '–')
    """
    return shown(None) if ess is None else f"{ess:,.0f}"


def _is_words(cell: str) -> bool:
    return cell[:1].isalpha() and cell not in ("yes", "no", "outside")


def _extreme(values: Sequence[float | None], pick: Any) -> float | None:
    finite = [value for value in values if value is not None]
    return pick(finite) if finite else None
