"""The lower parts of the page: agreement, warm-up, messages, participation, accuracy and calibration, the log."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from consilience.page import charts
from consilience.page.elements import Card, Chart, Facts, Rows, Words
from consilience.page.snapshot import Snapshot
from consilience.reports.tables import shown


class Agreement:
    """How far agents are from each other over time."""

    def __init__(self) -> None:
        self.card = Card("Agreement between agents", "")
        with self.card.box:
            self.words = Words("words muted")
            self.chart = Chart("chart mid", "disagreement over time")

    def update(self, one: Snapshot, dark: bool) -> None:
        """Show a snapshot."""
        self.card.show(len(one.network.places) > 1 and bool(one.agreement_words))
        self.words.set(one.agreement_words)
        self.chart.chart.set_visibility(bool(one.agreement))
        if one.agreement:
            self.chart.set(charts.agreement(one.agreement, dark))


class WarmUp:
    """What the warm-up has found, and how far it is."""

    def __init__(self) -> None:
        self.card = Card("Warm-up", "")
        with self.card.box:
            self.words, self.facts = Words(), Facts()
            self.chart = Chart("chart", "step size over moves")
            self.rows = Rows(
                [
                    ("steps", "steps of the window", False),
                    ("step_size", "step size", False),
                    ("curvature", "Λ", False),
                    ("excess", "ℓ", False),
                    ("spread", "spread, wanted 1", False),
                    ("moved", "mean moved by", False),
                ],
                "windows of the warm-up",
            )

    def update(self, one: Snapshot, dark: bool) -> None:
        """Show a snapshot."""
        self.card.show(one.warmup is not None)
        if one.warmup is None:
            return
        self.words.set(one.warmup.stage)
        self.facts.set(one.warmup.facts)
        self.chart.chart.set_visibility(bool(one.warmup.step_sizes))
        if one.warmup.step_sizes:
            self.chart.set(charts.over_steps(one.warmup.step_sizes, "step size", dark))
        self.rows.table.set_visibility(bool(one.warmup.windows))
        self.rows.set(
            [
                {
                    "key": number,
                    "steps": shown(int(row["steps"])),
                    "step_size": shown(row["step_size"]),
                    "curvature": shown(row["curvature"]),
                    "excess": shown(row["excess"]),
                    "moved": shown(row["moved"]),
                    "spread": f"{shown(row['least'])} … {shown(row['largest'])}",
                }
                for number, row in enumerate(one.warmup.windows)
            ]
        )


class Messages:
    """What nodes sent, and what was rejected and why."""

    def __init__(self) -> None:
        self.card = Card("Messages", "")
        with self.card.box:
            self.words = Words("words muted")
            self.rows = Rows(
                [
                    ("agent", "agent", True),
                    ("sent", "sent", False),
                    ("received", "received", False),
                    ("volume", "MB out, in", False),
                    ("asked", "asked for", False),
                    ("rejected", "rejected", False),
                    ("why", "why", True),
                ],
                "messages",
            )

    def update(self, one: Snapshot, dark: bool) -> None:
        """Show a snapshot."""
        self.card.show(bool(one.messages_words or one.messages))
        self.words.set(one.messages_words)
        self.rows.table.set_visibility(bool(one.messages))
        self.rows.set(
            [
                {
                    "key": row["agent"],
                    "agent": str(row["agent"]),
                    "sent": shown(row["sent"]),
                    "received": shown(row["received"]),
                    "volume": _megabytes(row),
                    "asked": shown(row.get("asked_for")),
                    "rejected": shown(row["rejected"]),
                    "why": row["why"],
                }
                for row in one.messages
            ]
        )


def _megabytes(row: Any) -> str:
    if "bytes_sent" not in row:
        return "–"
    return f"{row['bytes_sent'] / 1e6:.1f}, {row['bytes_received'] / 1e6:.1f}"


class Participation:
    """Whose data counts."""

    def __init__(self) -> None:
        self.card = Card("Whose data counts", "")
        with self.card.box:
            self.rows = Rows(
                [("agent", "agent", True), ("share", "share of the draws", False), ("now", "now", True)],
                "participation",
            )

    def update(self, one: Snapshot, dark: bool) -> None:
        """Show a snapshot."""
        self.card.show(bool(one.participation))
        self.rows.set(
            [
                {
                    "key": row["agent"],
                    "agent": str(row["agent"]),
                    "share": f"{100 * row['share']:.1f} %",
                    "now": shown(row["now"]),
                }
                for row in one.participation
            ]
        )


class Classifier:
    """Accuracy and calibration, of classifiers."""

    def __init__(self) -> None:
        self.card = Card("Accuracy and calibration", "")
        with self.card.box:
            self.words = Words()
            with ui.element("div"):
                self.accuracy, self.calibration = Chart("chart mid", "accuracy"), Chart("chart mid", "calibration")

    def update(self, one: Snapshot, dark: bool) -> None:
        """Show a snapshot."""
        found = one.classified
        self.card.show(found is not None)
        if found is None:
            return
        self.words.set(found.words)
        self.accuracy.chart.set_visibility(bool(found.accuracy))
        self.calibration.chart.set_visibility(bool(found.calibration))
        if found.accuracy:
            self.accuracy.set(charts.percent(found.accuracy, dark))
        if found.calibration:
            self.calibration.set(charts.calibration(found.calibration, dark))


COLUMNS = ((Agreement, WarmUp), (Classifier, Messages, Participation))
"""Those that stand beside each other, from top to bottom."""


class Log:
    """The last lines that nodes said."""

    def __init__(self) -> None:
        self.card = Card("Log", "wide")
        with self.card.box:
            self.lines = (
                ui.label("").classes("log").props('tabindex=0 role=log aria-label="the last lines of the log"')
            )

    def update(self, one: Snapshot, dark: bool) -> None:
        """Show a snapshot, newest lines first."""
        self.card.show(bool(one.log))
        text = "\n".join(f"{line.who}: {line.words}" for line in reversed(one.log))
        if self.lines.text != text:
            self.lines.set_text(text)
