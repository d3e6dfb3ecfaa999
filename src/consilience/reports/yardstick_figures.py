"""Figures of the table of posteriors: errors of every method on every posterior, and what an effective draw takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LOWEST, _HIGHEST = 0.01, 3.0
"""Between which errors colours differ."""
_LEAST_ROUNDS, _LEAST_ERROR = 0.1, 1e-3
_MARKS = "osD^v<>PX*h"


def heat_map(rows: Sequence[Mapping[str, Any]], methods: Sequence[str]) -> Figure:
    """The largest error of a mean, of each method on each posterior: the worst over graphs and splits.

    Args:
        rows: of the table.
        methods: in the order of the columns.
    """
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(row["posterior"] for row in rows))
    there = [method for method in methods if any(row["method"] == method for row in rows)]
    errors = np.full((len(names), len(there)), np.nan)
    figure = Figure(figsize=(1.6 + 3.0 + 0.82 * len(there), max(2.8, 1.6 + 0.34 * len(names))), layout="constrained")
    axes = figure.subplots()
    for row in rows:
        place = names.index(row["posterior"]), there.index(row["method"])
        found = np.inf if row["failed"] is not None else row["mean_error"]
        errors[place] = np.nanmax([errors[place], found])
    shown = np.ma.masked_invalid(errors)
    image = axes.imshow(
        np.clip(shown, _LOWEST, _HIGHEST), norm=LogNorm(_LOWEST, _HIGHEST), cmap="RdYlGn_r", aspect="auto", alpha=0.75
    )
    for (i, j), error in np.ndenumerate(errors):
        if not np.isnan(error):
            text = "failed" if np.isinf(error) else f"{error:.2f}" if error < 10 else f"{error:,.0f}"
            colour = "#616e7c" if np.isinf(error) else "black"
            axes.text(j, i, text, ha="center", va="center", fontsize=8, color=colour)
    axes.set_xticks(range(len(there)), there, rotation=35, ha="right", fontsize=9)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set_facecolor("#eceff3")
    figure.colorbar(image, ax=axes, label="error, sd", shrink=0.9)
    return figure


def rounds_and_errors(rows: Sequence[Mapping[str, Any]], methods: Sequence[str]) -> Figure:
    """Rounds for an effective draw, and the error that is left, of all cells with messages or a hand-in."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.6, 5.0), layout="constrained")
    axes = figure.subplots()
    colours = _colours(len(methods))
    for method, colour, mark in zip(methods, colours, (_MARKS * 2), strict=False):
        own = [row for row in rows if row["method"] == method and row["failed"] is None and row["num_agents"] > 1]
        if own:
            x = [max(row["rounds_per_effective_mean"], _LEAST_ROUNDS) for row in own]
            y = [max(row["mean_error"], _LEAST_ERROR) for row in own]
            axes.scatter(x, y, s=34, color=colour, marker=mark, alpha=0.8, label=method, linewidths=0)
    axes.axhline(0.1, color="#9aa5b1", linewidth=0.8, linestyle="--")
    axes.set(
        xscale="log", yscale="log", xlabel="rounds of messages for one effective draw",
        ylabel="largest error of a mean, in standard deviations",
    )  # fmt: skip
    axes.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def _colours(count: int) -> list[Any]:
    from matplotlib import colormaps

    return [colormaps["tab20"](place / 20) for place in range(count)]
