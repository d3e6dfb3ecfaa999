"""Figures of the table of posteriors: errors of every method on every posterior, and what an effective draw takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.reports.figures import styled
from consilience.reports.theme import COLOURS, INK, MUTED

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LOWEST, _HIGHEST = 0.01, 3.0
"""Between which errors colours differ."""
_GROUND, _ON_GROUND, _ON_COLOUR = "#eceff3", "#5b6672", "#000000"
"""Of cells, which look the same in both themes of a page; none of these is one of the theme's own colours."""
_LEAST_ROUNDS, _LEAST_ERROR = 0.1, 1e-3
_MARKS = "osD^v<>PX*h"


def heat_map(rows: Sequence[Mapping[str, Any]], methods: Sequence[str]) -> Figure:
    """The largest error of a mean, of each method on each posterior: the worst over graphs and splits.

    Args:
        rows: of the table.
        methods: in the order of the columns.
    """
    from matplotlib.colors import LogNorm

    names = list(dict.fromkeys(row["posterior"] for row in rows))
    there = [method for method in methods if any(row["method"] == method for row in rows)]
    errors = np.full((len(names), len(there)), np.nan)
    for row in rows:
        place = names.index(row["posterior"]), there.index(row["method"])
        found = np.inf if row["failed"] is not None else row["mean_error"]
        errors[place] = np.nanmax([errors[place], found])
    with styled((1.6 + 3.0 + 0.82 * len(there), max(2.8, 1.6 + 0.34 * len(names)))) as figure:
        axes = figure.subplots()
        shown = np.clip(np.ma.masked_invalid(errors), _LOWEST, _HIGHEST)
        image = axes.imshow(shown, norm=LogNorm(_LOWEST, _HIGHEST), cmap="RdYlBu_r", aspect="auto", alpha=0.75)
        for (i, j), error in np.ndenumerate(errors):
            if not np.isnan(error):
                text = "failed" if np.isinf(error) else f"{error:.2f}" if error < 10 else f"{error:,.0f}"
                colour = _ON_GROUND if np.isinf(error) else _ON_COLOUR
                axes.text(j, i, text, ha="center", va="center", fontsize=8, color=colour)
        axes.set_xticks(range(len(there)), there, rotation=35, ha="right", fontsize=9, color=INK)
        axes.set_yticks(range(len(names)), names, fontsize=8, color=INK)
        axes.set_facecolor(_GROUND)
        figure.colorbar(image, ax=axes, label="error, sd", shrink=0.9)
    return figure


def rounds_and_errors(rows: Sequence[Mapping[str, Any]], methods: Sequence[str]) -> Figure:
    """Rounds for an effective draw, and the error that is left, of all cells with messages or a hand-in."""
    with styled((8.6, 5.0)) as figure:
        axes = figure.subplots()
        shown = [row for row in rows if row["failed"] is None and row["num_agents"] > 1]
        there = [method for method in methods if any(row["method"] == method for row in shown)]
        for method, colour, mark in zip(there, cycle(COLOURS), _MARKS, strict=False):
            own = [row for row in shown if row["method"] == method]
            x = [max(row["rounds_per_effective_mean"], _LEAST_ROUNDS) for row in own]
            y = [max(row["mean_error"], _LEAST_ERROR) for row in own]
            axes.scatter(x, y, s=34, color=colour, marker=mark, alpha=0.8, label=method, linewidths=0)
        axes.axhline(0.1, color=MUTED, linewidth=0.8, linestyle="--")
        axes.set(
            xscale="log", yscale="log", xlabel="rounds of messages for one effective draw",
            ylabel="largest error of a mean, in standard deviations",
        )  # fmt: skip
        if there:
            axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure
