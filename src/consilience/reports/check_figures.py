"""Figures of what the model says beside what was observed: drawn outcomes, and calibration; a panel for each site."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.reports.figures import ACCENT, COLOURS, INK, MUTED, small_axes
from consilience.runs.posterior import evenly

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_SITES = 9


def drawn_outcomes(name: str, sites: Sequence[Mapping[str, Any]]) -> Figure:
    """Counts of outcomes in bins: observed as a line, 95 % of drawn sets as a band."""
    chosen = [sites[place] for place in evenly(len(sites), MOST_SITES)]
    columns = min(3, len(chosen))
    figure, axes = small_axes(len(chosen), columns, (8.8 / columns if columns > 1 else 6.4, 2.5))
    for place, (axis, site) in enumerate(zip(axes, chosen, strict=True)):
        one = site["outcomes"][name]
        edges = np.array(one["edges"])
        axis.stairs(one["high"], edges, baseline=one["low"], fill=True, color=COLOURS[0], alpha=0.28, label="model")
        axis.stairs(one["median"], edges, color=COLOURS[0], linewidth=0.9, alpha=0.8, baseline=None)
        axis.stairs(one["observed"], edges, color=INK, linewidth=1.3, baseline=None, label="observed")
        axis.set_ylim(bottom=0)
        axis.set_title(_title(site, one))
        axis.set_xlabel(name)
        if place % columns == 0:
            axis.set_ylabel("rows")
        if place == 0:
            axis.legend(fontsize=8)
    return figure


def calibration(name: str, sites: Sequence[Mapping[str, Any]]) -> Figure:
    """The observed share over the predicted one, in bins of rows; bars hold 95 % of drawn sets."""
    chosen = [sites[place] for place in evenly(len(sites), MOST_SITES)]
    columns = min(3, len(chosen))
    figure, axes = small_axes(len(chosen), columns, (8.8 / columns if columns > 1 else 4.2, 2.9))
    for place, (axis, site) in enumerate(zip(axes, chosen, strict=True)):
        one = site["outcomes"][name]
        axis.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle="--")
        axis.vlines(one["predicted"], one["low"], one["high"], color=COLOURS[0], linewidth=5, alpha=0.3)
        inside = [
            low <= seen <= high for low, seen, high in zip(one["low"], one["observed"], one["high"], strict=True)
        ]
        colours = [COLOURS[0] if fine else ACCENT for fine in inside]
        axis.scatter(one["predicted"], one["observed"], s=24, color=colours, zorder=3)
        axis.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
        axis.set_title(_title(site, one))
        axis.set_xlabel("predicted probability")
        if place % columns == 0:
            axis.set_ylabel("share that is right" if one["kind"] == "class" else f"observed share, {name}")
    return figure


def _title(site: Mapping[str, Any], one: Mapping[str, Any]) -> str:
    return f"site {site['agent']}, {one['num_rows']:,} rows"
