"""Curves and graphs as options of ECharts: plain values, made without a browser.

Whatever is a name stands in them as a value and is drawn as text on a canvas, tooltips too (`richText`): nothing that
comes from a run's directory or from a node is ever taken for HTML or for a program.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

from consilience.page.curves import Curve, Curves, Points
from consilience.reports.theme import COLOURS, DARK

Options = dict[str, Any]

DASHES = ("solid", "dashed", "dotted")
"""Of the ninth line on, colours come again with another dash."""

_MARGIN = 11
"""Percent of a figure's width for the numbers on its left."""
_LOGARITHMIC, _LONG = 10, 100
"""How many times the smallest number the largest is, from where on heights and steps have a log scale."""


def ink(dark: bool) -> tuple[str, str, str]:
    """The colours of words, of axes, and of grounds."""
    return ("#e6e9ee", "#8b95a3", "#1b212a") if dark else ("#1f2933", "#66717e", "#ffffff")


def style_of(name: str, place: int = 0) -> tuple[int, str]:
    """Colour and dash of a line, by the number in its name; of one without a number, by its place among others.

    >>> style_of("agent 0"), style_of("chain 9"), style_of("all agents", 1)
    ((0, 'solid'), (1, 'dashed'), (1, 'solid'))
    """
    last = name.rpartition(" ")[2]
    number = int(last) if last.isascii() and last.isdigit() else place
    return number % len(COLOURS), DASHES[number // len(COLOURS) % len(DASHES)]


def density(curves: Curves, shown: Collection[str], dark: bool) -> Options:
    """Densities on top of each other, and the prior behind them."""
    series = _series(curves.density, shown, dark, width=1.8)
    if curves.prior:
        grey = ink(dark)[1]
        series.insert(
            0,
            {
                "name": "prior",
                "type": "line",
                "data": curves.prior,
                "showSymbol": False,
                "silent": True,
                "lineStyle": {"width": 1.5, "type": [2, 3], "color": grey},
                "itemStyle": {"color": grey},
                "areaStyle": {"color": grey, "opacity": 0.1},
            },
        )
    return _plane(series, dark, "draws as a density", y={"show": False, "min": 0})


def trace(curves: Curves, shown: Collection[str], dark: bool, unit: str) -> Options:
    """The path of each agent; chains, which all walk in one place, stand side by side."""
    series = _series(curves.trace, shown, dark, width=0.9)
    drawn = [place for place, one in enumerate(series) if one["data"]]
    plane = _plane(series, dark, "traces", x={"name": unit}, y={"scale": True})
    if len(drawn) < 2 or not all(one.name.startswith("chain ") for one in curves.trace):
        return plane
    heights = [y for place in drawn for _, y in series[place]["data"]]
    ends = {"min": min(heights), "max": max(heights)}
    for place, one in enumerate(series):
        number = drawn.index(place) if place in drawn else 0
        one |= {"xAxisIndex": number, "yAxisIndex": number}
    numbers, width = range(len(drawn)), (100 - _MARGIN) / len(drawn)
    blank = {"axisLabel": {"show": False}, "axisTick": {"show": False}}
    places = [{"left": f"{_MARGIN + n * width:.2f}%", "width": f"{width - 1:.2f}%"} for n in numbers]
    return plane | {
        "grid": [{"top": 10, "bottom": 24, **place} for place in places],
        "xAxis": [
            {**plane["xAxis"], **blank, "gridIndex": n, "name": series[drawn[n]]["name"], "nameGap": 8}
            for n in numbers
        ],
        "yAxis": [{**plane["yAxis"], **(blank if n else {}), **ends, "gridIndex": n} for n in numbers],
    }


def agreement(curves: Sequence[Curve], dark: bool) -> Options:
    """A measure of disagreement over time, both on a log scale if they span powers of ten."""
    series = _series(curves, {one.name for one in curves}, dark, width=1.6)
    steps = [x for one in curves for x, _ in one.points]
    along = {"type": "log"} if steps and max(steps) >= _LONG * min(steps) else {}
    return _plane(series, dark, "agreement over time", x={**along, "name": "step"}, y=_heights(curves))


def over_steps(points: Points, name: str, dark: bool) -> Options:
    """One number over steps."""
    curves = [Curve(name, points)]
    series = _series(curves, {name}, dark, width=1.4)
    return _plane(series, dark, name, x={"name": "move"}, y=_heights(curves))


def _heights(curves: Sequence[Curve]) -> Options:
    """A log scale from one power of ten to another, or a plain one where a log scale would have no number on it.

    >>> _heights([Curve("w", [(1.0, 0.02), (2.0, 3.0)])])["max"], _heights([Curve("w", [(1.0, 3.0), (2.0, 4.0)])])
    (10.0, {'scale': True})
    """
    heights = [y for one in curves for _, y in one.points]
    low, high = min(heights, default=1.0), max(heights, default=1.0)
    if low <= 0 or high < _LOGARITHMIC * low:
        return {"scale": True}
    ends = {"min": 10.0 ** math.floor(math.log10(low)), "max": 10.0 ** math.ceil(math.log10(high))}
    return {"type": "log", **ends, "axisLabel": {"showMinLabel": True, "showMaxLabel": True}}


def percent(curves: Sequence[Curve], dark: bool) -> Options:
    """Accuracy over steps."""
    series = _series(curves, {one.name for one in curves}, dark, width=1.4)
    return _plane(
        series, dark, "accuracy", x={"name": "step"}, y={"scale": True, "axisLabel": {"formatter": "{value} %"}}
    )


def calibration(curves: Sequence[Curve], dark: bool) -> Options:
    """The share that is right over the predicted probability; the diagonal is calibrated.

    A point is as large as the rows that it stands for are many: a bin of two rows is at 0, a half or 1 by luck.
    """
    series = _series(curves, {one.name for one in curves}, dark, width=0.8)
    for one, curve in zip(series, curves, strict=True):
        one |= {"showSymbol": True, "symbolSize": 5}
        if curve.shares:
            sizes = [round(2 + 16 * math.sqrt(share), 1) for share in curve.shares]
            one["data"] = [{"value": p, "symbolSize": s} for p, s in zip(curve.points, sizes, strict=True)]
    grey = ink(dark)[1]
    series.insert(
        0,
        {
            "name": "calibrated",
            "type": "line",
            "data": [[0, 0], [1, 1]],
            "showSymbol": False,
            "silent": True,
            "lineStyle": {"width": 1, "type": "dashed", "color": grey},
            "itemStyle": {"color": grey},
        },
    )
    unit = {"min": 0, "max": 1}
    return _plane(series, dark, "calibration", x={**unit, "name": "predicted"}, y=unit)


def _series(curves: Sequence[Curve], shown: Collection[str], dark: bool, width: float) -> list[dict[str, Any]]:
    """A line for each curve; one that is not shown keeps its place, so that colours stay."""
    found = []
    for place, one in enumerate(curves):
        colour, dash = style_of(one.name, place)
        hue = (DARK if dark else COLOURS)[colour]
        found.append(
            {
                "name": one.name,
                "type": "line",
                "data": one.points if one.name in shown else [],
                "showSymbol": False,
                "lineStyle": {"width": width, "type": dash, "color": hue},
                "itemStyle": {"color": hue},
                "emphasis": {"disabled": True},
            }
        )
    return found


def _plane(
    series: list[dict[str, Any]], dark: bool, words: str, x: Options | None = None, y: Options | None = None
) -> Options:
    text, axis, ground = ink(dark)
    faint = {"show": True, "lineStyle": {"color": axis, "opacity": 0.18}}
    common: dict[str, Any] = {
        "type": "value",
        "axisLine": {"onZero": False, "lineStyle": {"color": axis}},
        "axisLabel": {
            "color": axis,
            "fontSize": 11,
            "hideOverlap": True,
            "showMinLabel": False,
            "showMaxLabel": False,
        },
        "nameTextStyle": {"color": axis},
        "splitLine": {"show": False},
    }
    inner = {**common["axisLabel"], "showMinLabel": False, "showMaxLabel": False}  # the ends are no round numbers
    ends = {"min": "dataMin", "max": "dataMax", "axisLabel": inner}
    across = {**common, **ends, "nameLocation": "middle", "nameGap": 24, **(x or {})}
    along = {**common, "splitLine": faint, "splitNumber": 3, **(y or {})}
    if "axisLabel" in (y or {}):
        along["axisLabel"] = {**common["axisLabel"], **(y or {})["axisLabel"]}
    return {
        "animation": False,
        "aria": {"enabled": True, "label": {"description": words}},
        "textStyle": {"color": text},
        "grid": {"left": 6, "right": 24, "top": 10, "bottom": 24 if "name" in across else 6, "containLabel": True},
        "tooltip": {
            "trigger": "axis",
            "renderMode": "richText",
            "confine": True,
            "backgroundColor": ground,
            "borderColor": axis,
            "textStyle": {"color": text, "fontSize": 12},
        },
        "xAxis": across,
        "yAxis": along,
        "series": series,
    }
