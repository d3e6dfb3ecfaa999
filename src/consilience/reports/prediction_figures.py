"""Figures about predictions: reliability, confidence in and out of distribution."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.reports.figures import ACCENT, COLOURS, INK, MUTED, styled

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

_EDGES = np.linspace(0, 1, 41)
_KINDS = (INK, ACCENT, COLOURS[4], COLOURS[3], COLOURS[2])


def reliability(stored: xarray.Dataset) -> Figure:
    """Accuracy over confidence, one line an agent; below the diagonal the network is too sure of itself."""
    with styled((4.4, 3.9)) as figure:
        axis = figure.subplots()
        _reliability_lines(axis, stored)
        axis.set(xlabel="confidence", ylabel="accuracy")
    return figure


def confidence(stored: xarray.Dataset) -> Figure:
    """The density of the predicted class's probability in and out of distribution, all agents together."""
    with styled((6.4, 3.0)) as figure:
        axis = figure.subplots()
        _densities(axis, stored)
        axis.set(xlabel="probability of the predicted class", ylabel="density")
        axis.legend(fontsize=8.5)
    return figure


def methods(stored: Mapping[str, xarray.Dataset]) -> Figure:
    """For each method the reliability above and the confidences below."""
    with styled((3.3 * len(stored), 5.6)) as figure:
        axes = figure.subplots(2, len(stored), squeeze=False)
        for (upper, lower), (name, one) in zip(axes.T, stored.items(), strict=True):
            _reliability_lines(upper, one)
            upper.set(title=name, xlabel="confidence")
            _densities(lower, one)
            lower.set(xlabel="probability of the predicted class")
        axes[0, 0].set_ylabel("accuracy")
        axes[1, 0].set_ylabel("density")
        axes[1, 0].legend(fontsize=8)
    return figure


def _reliability_lines(axis: Any, stored: xarray.Dataset) -> None:
    axis.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle="--")
    for i in range(stored.sizes["agent"]):
        one = stored.isel(agent=i)
        used = one["bin_share"].to_numpy() > 0
        x, y, share = (one[name].to_numpy()[used] for name in ("bin_confidence", "bin_accuracy", "bin_share"))
        axis.plot(x, y, color=COLOURS[i % len(COLOURS)], linewidth=1.2, alpha=0.8)
        axis.scatter(x, y, s=8 + 160 * share, color=COLOURS[i % len(COLOURS)], alpha=0.6, linewidths=0)
    axis.set(xlim=(0, 1), ylim=(0, 1.02))


def _densities(axis: Any, stored: xarray.Dataset) -> None:
    """Held-out inputs are nearly all near 1; their last bar runs off the top, so that the others can be seen."""
    highest = 0.0
    for colour, name in zip(_KINDS, ["", *_outside(stored)], strict=False):
        values = stored[f"confidence_{name}" if name else "confidence"].to_numpy().ravel()
        heights, _ = np.histogram(values, _EDGES, density=True)
        axis.stairs(heights, _EDGES, color=colour, label=name or "held out")
        highest = max(highest, float(heights.max())) if name else highest
    axis.set(yticks=[], xlim=(0, 1), ylim=(0, 1.25 * highest))


def _outside(stored: xarray.Dataset) -> list[str]:
    """The names of the out-of-distribution sets; runs of format 1 have another word for them."""
    return list(stored.attrs.get("out_of_distribution", stored.attrs.get("strange", ())))
