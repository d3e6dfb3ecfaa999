"""The forest plot: every coefficient with its interval, readable with three of them and with sixty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.reports.figures import ACCENT, COLOURS, INK, MUTED, styled
from consilience.reports.posterior_table import ratio_cell
from consilience.runs.row_files import name_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_ROWS = 60
INTERCEPT = "intercept"
_ROW_INCHES = 0.235
_SHOWN = 44  # characters of a name


def forest_rows(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The rows of a forest plot: entries of vectors, and of them those with names or ratios if there are any.

    The intercept is left out, as it is no effect of anything and may lie far from the others.
    """
    known = [row for row in rows if row.get("mean") is not None and row.get("low") is not None]
    shared = [row for row in known if "agent" not in row and "derived" not in row]
    named = [row for row in shared if row.get("ratio_name")] or [row for row in shared if _has_label(row)]
    chosen = named or [row for row in shared if "[" in row["parameter"]]
    effects = [row for row in chosen if name_of(row).lower() != INTERCEPT]
    labels = {name_of(row) for row in named}
    own = [row for row in known if "agent" in row and name_of(row).rpartition(": ")[2] in labels]
    return [*effects, *own][:MOST_ROWS] if len(effects) > 1 else []


def forest(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Means with 95 % intervals, one line each; those of single sites in another colour.

    With ratios the axis is that of ratios, on a logarithmic scale, and each is written beside its line.
    """
    height = 0.75 + _ROW_INCHES * len(rows)
    as_ratios = any(row.get("ratio_name") for row in rows)
    with styled((8.6, height), layout=None) as figure:
        axis = figure.subplots()
        places = np.arange(len(rows))[::-1]
        for place, row in zip(places, rows, strict=True):
            colour = COLOURS[1] if "agent" in row else COLOURS[0]
            axis.plot([row["low"], row["high"]], [place, place], color=colour, linewidth=2.2, solid_capstyle="butt")
            middle = row["mean"] if row.get("ratio") is None else np.log(row["ratio"])
            axis.plot([middle], [place], "o", color=colour, markersize=4.6)
        axis.axvline(0, color=ACCENT if as_ratios else MUTED, linewidth=1, zorder=0)
        axis.set_yticks(places, [_shortened(name_of(row)) for row in rows], color=INK, fontsize=8.6)
        axis.set_ylim(-0.7, len(rows) - 0.3)
        axis.tick_params(axis="y", length=0)
        axis.spines["left"].set_visible(False)
        axis.grid(axis="x", color="#e4e7eb", linewidth=0.7)
        axis.set_axisbelow(True)
        if as_ratios:
            _ratio_scale(axis, rows, places)
        else:
            axis.set_xlabel("mean and 95 % interval")
        figure.set_layout_engine("tight")
    return figure


def _ratio_scale(axis: Any, rows: Sequence[Mapping[str, Any]], places: np.ndarray) -> None:
    """Ticks at ratios, and every ratio in numbers on the right."""
    low, high = axis.get_xlim()
    nice = np.array([0.001, 0.01, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 100, 1000])
    inside = nice[(np.log(nice) >= low) & (np.log(nice) <= high)]
    if len(inside) < 3:
        inside = np.unique(np.round(np.exp(np.linspace(low, high, 5)), 2))
    axis.set_xticks(np.log(inside), [f"{one:g}" for one in inside])
    names = dict.fromkeys(row["ratio_name"] for row in rows if row.get("ratio_name"))
    axis.set_xlabel(f"{' or '.join(names)}, 95 % interval (logarithmic scale)")
    right = axis.get_yaxis_transform()
    for place, row in zip(places, rows, strict=True):
        if row.get("ratio") is not None:
            axis.text(1.01, place, ratio_cell(row), transform=right, va="center", fontsize=8.2, color=INK)


def _has_label(row: Mapping[str, Any]) -> bool:
    """Whether a row has another name than its place in a vector."""
    return "label" in row and row["label"].rpartition(": ")[2] != row["parameter"]


def _shortened(name: str) -> str:
    return name if len(name) <= _SHOWN else f"{name[: _SHOWN - 1]}…"
