"""Figures about images and classes: confusion, mean probabilities, single images with their predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.reports.figures import COLOURS, INK, MUTED, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def class_maps(maps: Mapping[str, Mapping[str, np.ndarray]], unit: str) -> Figure:
    """Shares by true class (down) and class (across): one row of panels for each data set, a column for each method.

    Args:
        maps: by data set, then by method, arrays `(true, class)` whose rows add up to 1.
        unit: what a cell is, for the scale beside the panels.
    """
    columns = list(next(iter(maps.values())))
    with styled((3.35 * len(columns) + 0.6, 3.3 * len(maps))) as figure:
        axes = figure.subplots(len(maps), len(columns), squeeze=False)
        for line, (name, methods) in zip(axes, maps.items(), strict=True):
            for axis, method in zip(line, columns, strict=True):
                shown = _class_map(axis, methods[method])
                axis.set_title(f"{method}, {name}")
            line[0].set_ylabel("true label")
        for axis in axes[-1]:
            axis.set_xlabel("label")
        figure.colorbar(shown, ax=axes, label=unit, shrink=0.5, aspect=30)
    return figure


def examples(images: Sequence[np.ndarray], titles: Sequence[str], captions: Sequence[str]) -> Figure:
    """Single images side by side, with words above and below."""
    with styled((1.75 * len(images), 2.45)) as figure:
        for axis, image, title, caption in zip(
            figure.subplots(1, len(images), squeeze=False)[0], images, titles, captions, strict=True
        ):
            axis.imshow(image, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
            axis.set_xticks([])
            axis.set_yticks([])
            axis.set_title(title, fontsize=8.5)
            axis.set_xlabel(caption, fontsize=8.5)
    return figure


def trade_off(curves: Mapping[str, Sequence[Mapping[str, float]]], panels: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Measures over temperature, a line for each prior, the paper's figure dashed.

    Args:
        curves: by prior, points with `temperature` and the measures.
        panels: by measure, its `title` and the `paper`'s figure (or `None`).
    """
    with styled((2.75 * len(panels), 3.0)) as figure:
        for axis, (measure, panel) in zip(figure.subplots(1, len(panels)), panels.items(), strict=True):
            for colour, (prior, points) in zip(COLOURS, curves.items(), strict=False):
                x = [point["temperature"] for point in points]
                axis.plot(x, [point[measure] for point in points], "o-", color=colour, markersize=4, label=prior)
            if panel["paper"] is not None:
                axis.axhline(panel["paper"], color=INK, linewidth=1, linestyle="--", label="paper, D-ULA")
            axis.set(title=panel["title"], xlabel="temperature")
            ticks = sorted({point["temperature"] for points in curves.values() for point in points})
            axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        figure.axes[0].legend(fontsize=8)
    return figure


def _class_map(axis: Any, shares: np.ndarray) -> Any:
    shown = axis.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for true in range(len(shares)):
        for other in range(len(shares)):
            share = 100 * shares[true, other]
            if share >= 0.5:
                colour = "white" if share > 55 else INK
                axis.text(other, true, f"{share:.0f}", ha="center", va="center", fontsize=6.5, color=colour)
    axis.set_xticks(range(len(shares)))
    axis.set_yticks(range(len(shares)))
    axis.tick_params(length=0, colors=MUTED)
    return shown
