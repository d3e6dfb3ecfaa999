"""Figures of test accuracy over iterations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from consilience.reports.figures import COLOURS, styled

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

_FIRST = 1200


def over_iterations(stored: Mapping[str, xarray.Dataset]) -> Figure:
    """Mean and one standard deviation over repetitions; beside it every agent's curve over the first iterations."""
    with styled((10.2, 3.6)) as figure:
        whole, zoom = figure.subplots(1, 2, width_ratios=(3, 2))
        lowest = 1.0
        for colour, (label, one) in zip(COLOURS, stored.items(), strict=False):
            steps, accuracy = one["step"].to_numpy(), 100 * one["accuracy"].to_numpy()
            runs = accuracy.mean(1)
            mean, spread = runs.mean(0), runs.std(0)
            whole.plot(steps, mean, color=colour, linewidth=1.6, label=label)
            whole.fill_between(steps, mean - spread, mean + spread, color=colour, alpha=0.18, linewidth=0)
            early = steps <= _FIRST
            agents = accuracy.shape[1]
            for agent in range(agents):  # the more there are, the thinner, and below the others
                line = accuracy[:, agent, early].mean(0)
                zoom.plot(
                    steps[early], line, color=colour, linewidth=0.4 + 0.8 / agents, alpha=0.6, zorder=3 - agents / 50
                )
            late = mean[len(mean) // 5 :]
            lowest = min(lowest, float(late.min()) / 100) if late.size else lowest
        whole.set(
            xscale="log", xlabel="iteration", ylabel="test accuracy, %", ylim=(max(50.0, 100 * lowest - 6), None)
        )
        zoom.set(xlabel="iteration", xlim=(0, _FIRST), ylim=whole.get_ylim(), title="every agent")
        whole.legend(fontsize=8.5, loc="lower right")
        whole.set_yticks(np.arange(np.ceil(whole.get_ylim()[0]), whole.get_ylim()[1], 2))
    return figure
