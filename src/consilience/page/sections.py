"""The upper parts of the page: each part is laid out once and then told of every snapshot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nicegui import ui

from consilience.page import charts, graphs
from consilience.page.agents import Agent
from consilience.page.elements import Card, Chart, Legend, Rows, Words, heading, key
from consilience.page.reader import MOST_SHOWN
from consilience.page.snapshot import Snapshot, headline
from consilience.reports.tables import beside_spread, ess_cell, rhat_cell, shown
from consilience.runs.convergence import ESS_GOAL, RHAT_GOAL

_SIGN = """
<span class="state" :class="'state-' + props.row.css">
  <span class="sign" aria-hidden="true">{{ props.row.sign }}</span>{{ props.row.state }}
</span> <span class="muted">{{ props.row.detail }}</span>
"""
_GOAL = """
{{ props.value }} <span aria-hidden="true">{{ props.row.NAME_met ? '✓' : '' }}</span>
<span class="goal" :class="{met: props.row.NAME_met}">
  <span :style="{width: props.row.NAME_share + '%'}"></span>
</span>
"""
_MOST_LINES = 10
_NO_DRAWS = "No draws yet."
_PRIOR = " The dotted grey line is the prior."
_NO_PRIOR = " Without the prior: that of a problem of one's own is in its program, which this page does not run."


class Head:
    """The verdict in words, how far the run is, and its reports."""

    def __init__(self, reports: str) -> None:
        self._place, self._reports = reports, list[str]()
        with ui.element("section").classes("card wide verdict") as self.box:
            self.mark = Words("mark", "div")
            self.mark.box.props("aria-live=polite")
            self.verdict = Words()
            with ui.element("div").classes("progress"):
                self.words, self.rate, self.left = Words("", "strong"), Words("", "span"), Words("muted", "span")
            with (
                ui.element("div").classes("bar").props('role=progressbar aria-label="how far the run is"') as self.bar
            ):
                self.filled = ui.element("div")
            self.notes = Words("words muted")
            self.links = ui.element("div").classes("links")
        self._kind = ""

    def update(self, one: Snapshot, dark: bool) -> None:
        """Show a snapshot."""
        told = headline(one)
        self.mark.set(told.mark)
        self.verdict.set(told.words)
        if told.kind != self._kind:
            self.box.classes(remove=self._kind, add=told.kind)
            self._kind = told.kind
        state = {"complete": "Done. ", "interrupted": "Stopped. ", "failed": "Failed. "}.get(one.state, "")
        self.words.set(state + one.progress.words)
        self.rate.set(one.progress.rate)
        self.left.set(one.progress.left)
        percent = round(100 * min(1.0, max(0.0, one.progress.share)), 1)
        self.filled.style(f"width: {percent}%")
        self.bar.props(f"aria-valuenow={percent:.0f}")
        self.notes.set(" ".join(one.notes) if one.state != "failed" else "")
        self._link([name for name, _ in one.reports])

    def _link(self, names: list[str]) -> None:
        if names == self._reports:
            return
        self._reports = names
        self.links.clear()
        with self.links:
            for number, name in enumerate(names):
                with ui.element("a").classes("report").props(f'target=_blank href="{self._place}/{number}"'):
                    ui.label(name)


class Agents:
    """The graph and a table of what each agent is doing."""

    def __init__(self) -> None:
        self.drawn = Card("Who talks to whom", "narrow")
        with self.drawn.box:
            self.chart = Chart("chart tall", "the graph of agents, each with its state; the table says the same")
        self.listed = Card("Agents", "broad")
        with self.listed.box, ui.element("div").classes("long"):
            self.rows = Rows(
                [
                    ("agent", "agent", True),
                    ("state", "state", True),
                    ("round", "round", False),
                    ("rate", "a second", False),
                    ("durable", "checkpoint at", False),
                ],
                "agents",
            )
            self.rows.cell("state", _SIGN)

    def update(self, one: Snapshot, dark: bool) -> None:
        """Show a snapshot."""
        self.drawn.show(len(one.network.places) > 1)
        self.chart.chart.style(f"aspect-ratio: {1 / graphs.tallness(one.network):.2f}")
        self.chart.set(graphs.graph(one.network, one.agents, dark))
        self.rows.set([_agent_row(agent) for agent in one.agents])


def _agent_row(one: Agent) -> dict[str, Any]:
    rate = None if one.rate is None else f"{one.rate:,.0f}" if one.rate >= 10 else f"{one.rate:.2g}"
    return {
        "key": one.number,
        "agent": str(one.number),
        "state": one.state,
        "css": one.state.split()[0],
        "sign": graphs.STATES.get(one.state, ("○", "", 0))[0],
        "detail": one.detail,
        "round": shown(one.round),
        "rate": rate or "–",
        "durable": shown(one.durable),
    }


class Convergence:
    """R-hat and effective draws of each parameter beside their goals."""

    def __init__(self) -> None:
        self.card = Card("Progress towards convergence", "wide")
        with self.card.box:
            self.words = Words("words muted")
            with ui.element("div").classes("long"):
                self.rows = Rows(
                    [
                        ("label", "parameter", True),
                        ("rhat", f"R-hat, goal {RHAT_GOAL:g}", False),
                        ("ess", f"effective draws, goal {ESS_GOAL:.0f}", False),
                        ("mean", "mean", False),
                        ("sd", "sd", False),
                        ("interval", "95 %", False),
                        ("worst", "worst at", True),
                    ],
                    "parameters",
                )
                self.rows.cell("rhat", _GOAL.replace("NAME", "rhat"))
                self.rows.cell("ess", _GOAL.replace("NAME", "ess"))

    def update(self, one: Snapshot, dark: bool) -> None:
        """Show a snapshot."""
        rows = [_parameter_row(number, row) for number, row in enumerate(one.rows)]
        followed = (
            f"{len(rows)} of {one.num_parameters:,} parameters: some that are evenly chosen, and those chosen below. "
            if 0 < len(rows) < one.num_parameters
            else ""
        )
        self.words.set(
            f"{followed}R-hat and effective draws are those of the worst agent. A bar is full at its goal."
            if rows
            else _NO_DRAWS
        )
        self.rows.table.set_visibility(bool(rows))
        self.rows.set(rows)


def _parameter_row(number: int, row: Any) -> dict[str, Any]:
    rhat, ess, worst = row["rhat"], row["ess"], row.get("agent")
    spread = row.get("standard_deviation")
    low, high = (beside_spread(row.get(name), spread) for name in ("low", "high"))
    return {
        "key": number,
        "label": row["label"],
        "mean": beside_spread(row.get("mean"), spread),
        "sd": beside_spread(spread, spread),
        "interval": "–" if row.get("low") is None else f"{low} … {high}",
        "rhat": rhat_cell(rhat),
        "ess": ess_cell(ess),
        "rhat_met": rhat is not None and rhat <= RHAT_GOAL,
        "ess_met": ess is not None and ess >= ESS_GOAL,
        "rhat_share": 0 if rhat is None else round(100 * min(1.0, (RHAT_GOAL - 1) / max(rhat - 1, 1e-9))),
        "ess_share": 0 if ess is None else round(100 * min(1.0, ess / ESS_GOAL)),
        "worst": "" if worst is None else f"agent {worst}",
    }


class Parameters:
    """Marginals as they form, agents on top of each other, and traces; of any parameter."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self.card = Card("Marginals and traces", "wide")
        self._pairs: dict[str, tuple[ui.element, Chart, Chart]] = {}
        self._chosen_by_hand = False
        with self.card.box:
            self.words = Words("words muted")
            self.select = (
                ui.select([], multiple=True, label="Parameters", on_change=self._chose)
                .props("use-chips use-input dense outlined clearable input-debounce=150 options-dense")
                .classes("w-full")
            )
            self.legend = Legend(lambda _: changed())
            self.place = ui.element("div")
        self._changed = changed

    def _chose(self) -> None:
        self._chosen_by_hand = True
        self._changed()

    @property
    def chosen(self) -> list[str]:
        """The parameters that are looked at."""
        return list(self.select.value or [])

    def update(self, one: Snapshot, dark: bool) -> None:
        """Show a snapshot."""
        if list(self.select.options) != list(one.labels):
            self.select.set_options(list(one.labels))
        if not self._chosen_by_hand and not self.chosen:
            self.select.set_value(list(one.curves)[:MOST_SHOWN])
            self._chosen_by_hand = False
        there = {name: one.curves[name] for name in self.chosen if name in one.curves and one.curves[name].density}
        self.legend.set(key([line for some in there.values() for line in (*some.density, *some.trace)]), _MOST_LINES)
        has_prior = any(some.prior for some in there.values())
        self.words.set(
            f"On the left the draws so far as densities, on the right as paths."
            f"{_PRIOR if has_prior else _NO_PRIOR} {one.left_out}"
            if there
            else _NO_DRAWS
            if self.chosen or not one.labels
            else "Choose a parameter to look at."
        )
        self.select.set_visibility(bool(one.labels))
        for label in [known for known in self._pairs if known not in there]:
            self._pairs.pop(label)[0].delete()
        for label, some in there.items():
            _, left, right = self._pairs.get(label) or self._pair(label)
            left.set(charts.density(some, self.legend.shown, dark))
            right.set(charts.trace(some, self.legend.shown, dark, one.unit))

    def _pair(self, label: str) -> tuple[ui.element, Chart, Chart]:
        with self.place, ui.element("div") as box:
            heading(3, label)
            with ui.element("div").classes("pair"):
                self._pairs[label] = (box, Chart("chart", "marginal density"), Chart("chart", "trace"))
        return self._pairs[label]
