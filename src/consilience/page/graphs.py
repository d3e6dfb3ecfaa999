"""Who talks to whom, as options of ECharts: each agent's mark has the shape and the colour of its state."""

from __future__ import annotations

from collections.abc import Sequence

from consilience.page.agents import Agent
from consilience.page.charts import Options, ink
from consilience.page.snapshot import Network
from consilience.reports.theme import COLOURS, DARK

STATES: dict[str, tuple[str, str, int]] = {
    "sampling": ("●", "circle", 0),
    "warming up": ("◐", "circle", 5),
    "waiting": ("◆", "diamond", 4),
    "behind": ("▲", "triangle", 4),
    "lost": ("✕", "rect", 1),
    "failed": ("✕", "rect", 1),
    "silent": ("◌", "rect", 1),
    "stopped": ("■", "rect", 3),
    "done": ("✔", "roundRect", 2),
    "here": ("●", "circle", 0),
}
"""For each state a sign, a shape and the number of a colour: none is told by colour alone."""
_OTHER = ("○", "circle", -1)
_GONE = ("lost", "failed", "stopped")
_HOLLOW = ("lost", "failed", "silent", "not here yet", "unknown")


def graph(network: Network, agents: Sequence[Agent], dark: bool) -> Options:
    """Who talks to whom, each agent with the shape and the colour of its state."""
    words, axis, _ = ink(dark)
    known = {one.number: one for one in agents}
    gone = {number for number, one in known.items() if one.state in _GONE}
    edges = [
        {"coords": [network.places[i], network.places[j]], "lineStyle": _edge_style(bool({i, j} & gone), axis)}
        for i, j in network.edges
    ]
    nodes = [
        _node(known.get(number, Agent(number, "not here yet")), place, len(network.places), dark)
        for number, place in enumerate(network.places)
    ]
    across, along = (
        {"show": False, "type": "value", "min": -1.2 * far, "max": 1.2 * far} for far in (1.0, tallness(network))
    )
    return {
        "animation": False,
        "aria": {"enabled": True, "label": {"description": "the graph of agents, each with its state"}},
        "tooltip": {"renderMode": "richText", "confine": True, "formatter": "{b}"},
        "textStyle": {"color": words},
        "grid": {"left": 0, "right": 0, "top": 0, "bottom": 0},
        "xAxis": across,
        "yAxis": along,
        "series": [
            {"type": "lines", "coordinateSystem": "cartesian2d", "data": edges, "silent": True, "z": 1},
            {"type": "scatter", "data": nodes, "emphasis": {"disabled": True}, "z": 2},
        ],
    }


def tallness(network: Network) -> float:
    """The height of a drawn graph in widths; a path needs little."""
    return max(0.45, max((abs(y) for _, y in network.places), default=1.0))


def _edge_style(is_gone: bool, axis: str) -> Options:
    style = ("dashed", 0.4) if is_gone else ("solid", 0.85)
    return {"color": axis, "width": 1.6, "type": style[0], "opacity": style[1]}


def _node(one: Agent, place: tuple[float, float], count: int, dark: bool) -> Options:
    """An agent's mark; one that is not there is hollow and dashed."""
    _, axis, ground = ink(dark)
    _, shape, colour = STATES.get(one.state, _OTHER)
    hue = (DARK if dark else COLOURS)[colour] if colour >= 0 else axis
    hollow = one.state in _HOLLOW
    size = 32 if count <= 14 else max(7, 420 // count)
    border = {
        "borderColor": hue,
        "borderWidth": 2.5 if size > 12 else 1,
        "borderType": "dashed" if hollow else "solid",
    }
    return {
        "name": f"agent {one.number}: {one.state} {one.detail}".rstrip(),
        "value": place,
        "symbol": shape,
        "symbolSize": size,
        "itemStyle": {"color": ground if hollow else hue, "opacity": 1, **border},
        "label": {
            "show": size >= 14,
            "formatter": str(one.number),
            "color": hue if hollow else ground,
            "fontWeight": "bold",
            "fontSize": min(13, size // 2 + 1),
        },
    }
