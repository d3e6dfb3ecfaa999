"""The figures of reports, each a function from numbers to a Matplotlib figure; nothing global is touched."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.diagnostics import fitted_rate
from consilience.reports.theme import ACCENT, COLOURS, INK, MUTED
from consilience.runs import RunDirectory
from consilience.runs.posterior import evenly
from consilience.runs.summary import flat_draws

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

MOST_PANELS = 24
"""How many parameters a figure of marginals or traces shows at most."""
_WIDER = 0.5  # a line than the one that is drawn over it
_LOWERED = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
MOST_POINTS = 60_000
"""Of lines in a figure; with more they are drawn as an image."""
_MEASURES = {
    "consensus_error": "consensus error  Σ‖wᵢ − w̄‖²",
    "distance_to_neighbours": "squared distance to neighbours",
}
STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "text.color": INK,
    "axes.facecolor": "none",
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.titlesize": 10,
    "axes.titlecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "legend.frameon": False,
}


@contextlib.contextmanager
def styled(size: tuple[float, float], layout: Any = "constrained") -> Iterator[Figure]:
    """A new figure of some inches in the style of all; Matplotlib, which takes a while to load, is loaded here."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        yield Figure(figsize=size, layout=layout)


def posterior_panels(
    reference: xarray.Dataset,
    panels: Mapping[str, np.ndarray],
    shown: tuple[tuple[float, float], tuple[float, float]],
) -> Figure:
    """The true density first, then a smoothed histogram of each set of draws with the true contours over it."""
    names = reference.attrs["parameters"]
    density = reference["density"].to_numpy()
    x, y = reference[names[0]].to_numpy(), reference[names[1]].to_numpy()
    levels = _mass_levels(density, (0.95, 0.8, 0.5, 0.2))
    columns = min(4, len(panels))
    figure, axes = small_axes(len(panels), columns, (2.7, 2.6))
    for place, (axis, (title, draws)) in enumerate(zip(axes, panels.items(), strict=False)):
        axis.set_facecolor("#000004")  # where the colour map begins
        if place == 0:
            image = density
            axis.pcolormesh(x, y, image.T, cmap="magma", shading="auto", rasterized=True)
        else:
            _smoothed(axis, draws, shown)
            axis.contour(x, y, density.T, levels=levels, colors="white", linewidths=0.7, alpha=0.8)
        axis.set(xlim=shown[0], ylim=shown[1])
        axis.set_title(title, weight="bold" if place == 0 else "normal")
        if place % columns == 0:
            axis.set_ylabel(pretty(names[1]))
        else:
            axis.set_yticklabels([])
        if place + columns >= len(panels):  # nothing stands below
            axis.set_xlabel(pretty(names[0]))
        else:
            axis.set_xticklabels([])
    return figure


def distance_bars(groups: Sequence[Mapping[str, Any]], floor: float) -> Figure:
    """Distances of every agent, grouped by network, with the paper's figure and the floor."""
    with styled((max(6.4, 1.2 + 0.34 * sum(len(g["values"]) + 1 for g in groups)), 3.0), layout=None) as figure:
        axis = figure.subplots()
        place, centres = 0.0, []
        for number, group in enumerate(groups):
            where = place + np.arange(len(group["values"]))
            label = "ours, one bar an agent" if number == 0 else None
            axis.bar(where, group["values"], width=0.78, color=COLOURS[0], label=label)
            if group["paper"] is not None:
                ends = (where[0] - 0.5, where[-1] + 0.5)
                label = "paper" if number == 0 else None
                axis.plot(ends, [group["paper"]] * 2, color=ACCENT, linewidth=2, label=label)
            centres.append(where.mean())
            place = where[-1] + 2
        axis.axhline(floor, color=INK, linewidth=1, linestyle="--", label="floor: exact against exact draws")
        axis.set_xticks(centres, [group["label"] for group in groups], color=INK)
        axis.tick_params(axis="x", length=0)
        axis.set_ylabel("Sinkhorn distance to the posterior")
        axis.set_ylim(0, 1.08 * max(floor, *(max([*g["values"], g["paper"] or 0]) for g in groups)))
        axis.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, fontsize=8.5)
        figure.set_layout_engine("tight")
    return figure


def consensus(runs: Mapping[str, RunDirectory]) -> Figure:
    """The consensus error over steps, log–log, beside the rate of a theorem; for nodes their neighbours' distance."""
    with styled((6.6, 3.4), layout=None) as figure:
        axis = figure.subplots()
        for colour, (label, run) in zip(COLOURS, runs.items(), strict=False):
            metrics, decay = run.metrics, run.plan.sampler.consensus_decay
            steps, measure = metrics["step"].to_numpy(), next(name for name in _MEASURES if name in metrics)
            errors = metrics[measure].to_numpy().mean(0)
            steps, errors = steps[errors > 0], errors[errors > 0]  # agents may begin at one place
            if not len(steps):
                continue
            rate, offset = decay if decay is not None else (0.0, 1.0)
            axis.plot(steps, errors, color=colour, alpha=0.18, linewidth=0.5, rasterized=True)
            time, level = _binned(steps, errors)
            measured = fitted_rate(steps, errors, offset)
            axis.plot(time, level, color=colour, linewidth=2, label=f"{label}: slope {_signed(-measured)}")
            if rate > 0:
                late = len(level) * 3 // 4
                scale = np.exp(np.mean(np.log(level[late:]) + rate * np.log(offset + time[late:])))
                guide = scale * (offset + time) ** -rate
                axis.plot(
                    time, guide, color=INK, linewidth=1.1, linestyle="--", label=f"theorem: slope {_signed(-rate)}"
                )
        axis.set(xscale="log", yscale="log", xlabel="step k", ylabel=_MEASURES[measure])
        handles = dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
        axis.legend(handles.values(), handles.keys(), fontsize=8.5)
        figure.set_layout_engine("tight")
    return figure


def _signed(slope: float) -> str:
    """A slope with the sign that print has.

    >>> _signed(-0.451), _signed(0.05), _signed(float("nan"))
    ('−0.45', '0.05', 'unknown')
    """
    return f"{slope:.2f}".replace("-", "−") if slope == slope else "unknown"


def trace_axes(count: int) -> tuple[Figure, list[Any]]:
    """A figure with a panel for each of so many traces: in one column, or in two if they are many."""
    columns = 1 if count <= 4 else 2
    lines = -(-count // columns)
    with styled((9.2, (1.75 if columns == 1 else 1.3) * lines + 0.5), layout=None) as figure:
        axes = figure.subplots(lines, columns, sharex=True, squeeze=False).T.ravel().tolist()
    for axis in axes[count:]:
        axis.set_axis_off()
    return figure, axes[:count]


def finish_traces(figure: Figure, axes: Sequence[Any], along: str) -> None:
    """The legend, with lines thick enough to tell their colours, what the panels are drawn over, and the layout."""
    from matplotlib.transforms import ScaledTranslation

    above = axes[0].transAxes + ScaledTranslation(0, 0.22, figure.dpi_scale_trans)  # the first panel's name
    legend = axes[0].legend(
        ncols=4 if len(axes) > 4 else 8, fontsize=8, loc="lower left", bbox_to_anchor=(0, 1), bbox_transform=above,
        borderaxespad=0, frameon=False, labelcolor=INK,
    )  # fmt: skip
    for line in legend.get_lines():
        line.set(linewidth=3, alpha=1)
    for axis in axes:
        if axis.get_subplotspec().is_last_row() or axis is axes[-1]:
            axis.set_xlabel(along)
            axis.tick_params(labelbottom=True)
    figure.set_layout_engine("tight", rect=(0.012, 0, 1, 1))


def traces(run: RunDirectory) -> Figure:
    """Parameters over time, a line for each agent."""
    numbers = run.draws["agent"].to_numpy()
    agents = evenly(len(numbers), 8)
    draws, names = flat_draws(run, agents, MOST_PANELS, for_people=True)
    chosen = evenly(draws.shape[2], 1500 if len(names) <= 4 else 600)
    steps = run.draws["step"].to_numpy()[chosen]
    heavy = len(agents) * len(chosen) * len(names) > MOST_POINTS
    figure, axes = trace_axes(len(names))
    for column, (axis, name) in enumerate(zip(axes, names, strict=True)):
        for i, agent in enumerate(agents):
            line = draws[0, i, chosen, column]
            label, colour = f"agent {numbers[agent]}", COLOURS[i % len(COLOURS)]
            width = 0.7 + _WIDER * (len(agents) - 1 - i)  # agents that agree lie over each other: the first shine out
            axis.plot(steps, line, color=colour, linewidth=width, label=label, rasterized=heavy)
        axis.set_title(pretty(name), loc="left", fontsize=8.5)
    finish_traces(figure, axes, "step")
    return figure


def marginals(run: RunDirectory) -> Figure:
    """The marginal density of parameters, one line an agent."""
    agents = evenly(run.draws.sizes["agent"], 8)
    draws, names = flat_draws(run, agents, MOST_PANELS, for_people=True, latest=True)
    weights = run.draw_weights[run.draws.sizes["draw"] - draws.shape[2] :]
    figure, axes = small_axes(len(names), min(4, len(names)), (2.6, 2.0))
    for column, (axis, name) in enumerate(zip(axes, names, strict=False)):
        values = draws[..., column]
        edges = edges_of(values, values[:, 0].size)
        for i in range(len(agents)):
            flat, each = values[:, i].ravel(), np.tile(weights, len(values))
            there = ~np.isnan(flat)
            if not there.any():
                continue
            height, _ = np.histogram(flat[there], edges, weights=each[there], density=True)
            axis.stairs(height, edges, color=COLOURS[i % len(COLOURS)], linewidth=1.1, alpha=0.8)
        axis.set_title(pretty(name))
        axis.set_yticks([])
    return figure


def edges_of(values: np.ndarray, count: int) -> np.ndarray:
    """Edges of histograms of so many draws each, where most of some values are; few draws in narrow bins are a comb.

    >>> edges_of(np.linspace(0, 1, 300), 300).shape, edges_of(np.ones(8), 8).round(2).tolist()[::4]
    ((15,), [0.5, 1.0, 1.5])
    """
    low, high = np.nanquantile(values, (0.001, 0.999))  # agents may have fewer private parameters than others
    if not high > low:
        low, high = low - 0.5, low + 0.5
    return np.linspace(low, high, 1 + min(60, max(8, math.ceil(2 * count ** (1 / 3)))))


def network(run: RunDirectory) -> Figure:
    """The graph of agents, the size of a dot by its number of neighbours."""
    import networkx

    graph = run.plan.graph
    drawn = networkx.Graph()
    drawn.add_nodes_from(range(graph.num_agents))
    drawn.add_edges_from(graph.edges.tolist())
    ring_like = graph.name in ("ring", "complete", "watts_strogatz", "erdos_renyi") or graph.num_agents > 300
    place = networkx.circular_layout(drawn) if ring_like else networkx.kamada_kawai_layout(drawn)
    side = 2.4 if graph.num_agents <= 12 else 3.6
    with styled((side, side), layout=None) as figure:
        axis = figure.subplots()
        axis.set_axis_off()
        axis.set_aspect("equal")
        for i, j in graph.edges[:20_000]:
            axis.plot(*zip(place[i], place[j], strict=True), color=MUTED, linewidth=1, zorder=1)
        points = np.array([place[i] for i in range(graph.num_agents)])
        size = 260 if graph.num_agents <= 12 else 3000 / graph.num_agents + 3
        axis.scatter(points[:, 0], points[:, 1], s=size, color=COLOURS[0], zorder=2)
        if graph.num_agents <= 12:
            for i, (px, py) in enumerate(points):
                axis.text(px, py, str(i), color="white", ha="center", va="center", weight="bold", zorder=3)
        axis.margins(0.17)
        figure.set_layout_engine("tight")
    return figure


def small_axes(count: int, columns: int, size: tuple[float, float]) -> tuple[Figure, list[Any]]:
    """A figure with so many panels, the unused places left empty."""
    lines = -(-count // columns)
    with styled((size[0] * columns, size[1] * lines)) as figure:
        axes = figure.subplots(lines, columns, squeeze=False).ravel().tolist()
    for axis in axes[count:]:
        axis.set_axis_off()
    return figure, axes[:count]


def _smoothed(axis: Any, draws: np.ndarray, shown: tuple[tuple[float, float], tuple[float, float]]) -> None:
    from scipy.ndimage import gaussian_filter

    counts, x, y = np.histogram2d(draws[:, 0], draws[:, 1], bins=90, range=shown)
    axis.pcolormesh(x, y, gaussian_filter(counts, 2.0).T, cmap="magma", shading="auto", rasterized=True)


def _mass_levels(density: np.ndarray, masses: Sequence[float]) -> list[float]:
    """The density levels whose super-level sets hold the given probabilities."""
    ordered = np.sort(density.ravel())[::-1]
    held = np.cumsum(ordered) / ordered.sum()
    return sorted({float(ordered[np.searchsorted(held, mass)]) for mass in masses})


def _binned(steps: np.ndarray, values: np.ndarray, bins: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Means over bins that are even on the log scale."""
    edges = np.geomspace(steps[0], steps[-1] + 1, bins + 1)
    which = np.clip(np.digitize(steps, edges) - 1, 0, bins - 1)
    used = np.unique(which)
    centres = np.array([np.exp(np.log(steps[which == b]).mean()) for b in used])
    return centres, np.array([values[which == b].mean() for b in used])


def pretty(name: str) -> str:
    """`theta_1` as θ with its index.

    >>> pretty("theta_12"), pretty("w[0]")
    ('θ₁₂', 'w[0]')
    """
    head, _, index = name.rpartition("_")
    greek = {"theta": "θ", "alpha": "α", "beta": "β", "mu": "μ", "sigma": "σ"}
    if head in greek and index.isdigit():
        return greek[head] + index.translate(_LOWERED)
    return name
