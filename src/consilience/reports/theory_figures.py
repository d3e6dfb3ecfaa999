"""The figures about the theory: bounds, tight bounds and true values over time; what graphs and agents change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.reports.figures import ACCENT, COLOURS, INK, MUTED, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LINES: dict[str, dict[str, Any]] = {
    "closed": {"label": "theorem, closed form", "color": ACCENT, "linewidth": 2},
    "tight": {"label": "theorem, tight recursion", "color": COLOURS[4], "linewidth": 2},
    "approximate": {"label": "normal approximation", "color": COLOURS[0], "linewidth": 1.6, "linestyle": "--"},
    "exact": {"label": "exact", "color": COLOURS[0], "linewidth": 2.2},
    "measured": {"label": "measured", "color": COLOURS[2], "marker": "o", "markersize": 3, "linewidth": 0.8},
}
_TITLES = {"consensus": "E‖w̃‖², how far agents are apart", "divergence": "KL(p ‖ p*) of the average, nats"}
_MOST_DECADES = 100
_HEADROOM = 6  # decades above the true values; what is higher is a hopeless bound


def bounds(plans: Sequence[Mapping[str, Any]], quantity: str, tolerance: float | None = None) -> Figure:
    """One panel a plan: the bounds and the true values of `consensus` or `divergence`, log–log."""
    with styled((5.0 * len(plans) + (1.6 if len(plans) == 1 else 0), 3.7)) as figure:
        axes = figure.subplots(1, len(plans), squeeze=False, sharey=True)[0]
        low, high = _range(plans, quantity)
        last = max(max(curve["step"], default=1) for plan in plans for curve in plan[quantity].values())
        for axis, plan in zip(axes, plans, strict=True):
            for name, style in _LINES.items():
                curve = plan[quantity].get(name)
                if curve is not None and curve["step"]:
                    axis.plot(curve["step"], 10.0 ** np.clip(curve["log10"], low - 5, high + 5), **style)
            if quantity == "divergence" and tolerance is not None:
                axis.axhline(tolerance, color=INK, linewidth=0.8, linestyle=":")
                axis.text(1, tolerance, f" ε = {tolerance:g}", color=INK, fontsize=8, va="bottom")
            if quantity == "consensus":
                _guide(axis, plan)
            axis.axvline(plan["num_steps"], color=MUTED, linewidth=0.8)
            axis.text(plan["num_steps"], 10**low, "the plan ends ", color=MUTED, fontsize=8, ha="right", va="bottom")
            axis.set(xscale="log", yscale="log", ylim=(10**low, 10**high))
            axis.set(xlim=(0.8, 1.3 * max(last, plan["num_steps"])), xlabel="step k", title=plan["title"])
            _say_hopeless(axis, plan[quantity], high)
        axes[0].set_ylabel(_TITLES[quantity])
        handles: dict[str, Any] = {}
        for axis in axes:
            handles |= dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
        figure.legend(
            handles.values(),
            handles.keys(),
            loc="outside lower center",
            ncols=5 if len(plans) > 1 else 3,
            fontsize=8.5,
        )
    return figure


def comparisons(rows: Sequence[Mapping[str, Any]], tolerance: float) -> Figure:
    """Disagreement, true number of steps and Corollary 1's, over the number of agents, one line a graph."""
    panels = (
        ("an agent's disagreement E‖w̃‖²/n at the end", lambda row: _share(row)),
        (f"steps until KL ≤ {tolerance:g}", lambda row: row["steps"]),
        (f"k* of Corollary 1 for KL ≤ {tolerance:g}", lambda row: float(row["proven_steps"])),
    )
    families = list(dict.fromkeys(row["graph"] for row in rows))
    with styled((10.2, 3.3)) as figure:
        axes = figure.subplots(1, len(panels))
        for axis, (title, value) in zip(axes, panels, strict=True):
            for colour, family in zip(COLOURS, families, strict=False):
                own = [(row["num_agents"], value(row)) for row in rows if row["graph"] == family]
                known = [(n, y) for n, y in own if y is not None and np.isfinite(y)]
                if known:
                    axis.plot(*zip(*known, strict=True), "o-", color=colour, label=family, linewidth=1.8)
            agents = sorted({row["num_agents"] for row in rows})
            axis.set(xscale="log", yscale="log", xlabel="agents", title=title)
            axis.set_xticks(agents, [str(n) for n in agents])
            axis.minorticks_off()
        axes[0].legend(fontsize=8.5)
    return figure


def _range(plans: Sequence[Mapping[str, Any]], quantity: str) -> tuple[float, float]:
    """The decades that hold the true values, and bounds that are not hopeless."""
    curves = [plan[quantity] for plan in plans]
    true = [one[name]["log10"] for one in curves for name in ("exact", "approximate", "measured") if name in one]
    values = np.concatenate([np.asarray(log10, float) for log10 in true if log10] or [np.zeros(1)])
    tops = [max(one[name]["log10"], default=0.0) for one in curves for name in ("closed", "tight") if name in one]
    high = min(values.max() + _HEADROOM, max(tops, default=values.max()))
    low, high = np.floor(values.min() - 0.3), np.ceil(max(high, values.max()) + 0.3)
    return float(max(low, -_MOST_DECADES)), float(min(high, _MOST_DECADES))


def _guide(axis: Any, plan: Mapping[str, Any]) -> None:
    """The slope that Theorem 1 promises, through the end of the true values."""
    name = next((name for name in ("exact", "measured", "approximate") if plan["consensus"].get(name)), None)
    rate = plan["slope"]["theorem"]
    if name is None or rate <= 0 or not plan["consensus"][name]["step"]:
        return
    steps, log10 = (np.asarray(plan["consensus"][name][key], float) for key in ("step", "log10"))
    late = steps >= steps[-1] / 30
    line = log10[-1] + 0.25 - rate * (np.log10(steps[late]) - np.log10(steps[-1]))
    axis.plot(
        steps[late], 10**line, color=INK, linewidth=1.1, linestyle="--", label=f"slope −(δ₂ − 2δ₁) = −{rate:.2f}"
    )


def _say_hopeless(axis: Any, curves: Mapping[str, Any], high: float) -> None:
    for place, name in enumerate(name for name in ("closed", "tight") if name in curves):
        top, style = max(curves[name]["log10"], default=0.0), _LINES[name]
        if top > high + 1:
            words, where = f"{style['label']}: up to 10^{top:.0f}, beyond the figure", (0.98, 0.97 - 0.07 * place)
            axis.text(*where, words, transform=axis.transAxes, ha="right", va="top", fontsize=8, color=style["color"])


def _share(row: Mapping[str, Any]) -> float | None:
    error, agents = row["consensus_error"], row["num_agents"]
    return None if error is None or agents == 1 else error / agents
