"""The few elements that the page is made of; each sends to the browser what has changed, and only that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nicegui import ui

from consilience.page.charts import style_of
from consilience.page.curves import Curve


class Card:
    """A part of the page with a heading; it can be hidden."""

    def __init__(self, title: str, width: str) -> None:
        self.box = ui.element("section").classes(f"card {width}")
        with self.box:
            heading(2, title)

    def show(self, wanted: bool) -> None:
        """Show it, or not."""
        if self.box.visible != wanted:
            self.box.set_visibility(wanted)


class Words:
    """A paragraph, or a line; its text is text, whatever it contains."""

    def __init__(self, classes: str = "words", tag: str = "p") -> None:
        with ui.element(tag).classes(classes) as self.box:
            self.label = ui.label("").style("display: inline")

    def set(self, text: str) -> None:
        """Say something."""
        if self.label.text != text:
            self.label.set_text(text)
            self.box.set_visibility(bool(text))


class Chart:
    """A figure."""

    def __init__(self, classes: str, described: str) -> None:
        self.chart = ui.echart({}).classes(classes).props(f'role=img aria-label="{described}"')
        self._last: Mapping[str, Any] = {}

    def set(self, options: Mapping[str, Any]) -> None:
        """Draw something else."""
        if options != self._last:
            self._last = options
            self.chart.options.clear()
            self.chart.options.update(options)
            self.chart.update()


class Rows:
    """A table. Columns are (name, heading, whether it holds words)."""

    def __init__(self, columns: Sequence[tuple[str, str, bool]], described: str) -> None:
        shown = [
            {"name": name, "label": heading, "field": name, "align": "left" if words else "right",
             "classes": "why" if name == "why" else ""}
            for name, heading, words in columns
        ]  # fmt: skip
        self._columns = shown
        self.table = ui.table(rows=[], columns=list(shown), row_key="key", pagination=0)
        self.table.props(f'flat dense hide-pagination hide-bottom aria-label="{described}"').classes("scroll")

    def cell(self, column: str, template: str) -> None:
        """How a column's cells look; the template is the program's own, values are filled in as text."""
        self.table.add_slot(f"body-cell-{column}", f'<q-td :props="props">{template}</q-td>')

    def set(self, rows: list[dict[str, Any]]) -> None:
        """Show other rows; columns of which nothing is known are left out."""
        if rows == self.table.rows:
            return
        empty = {one["name"] for one in self._columns if all(row.get(one["name"]) in ("–", "") for row in rows)}
        self.table.columns = [one for one in self._columns if one["name"] not in empty]
        self.table.rows = rows
        self.table.update()


class Legend:
    """The names of lines with how they are drawn, to be shown or hidden."""

    def __init__(self, changed: Any) -> None:
        self.box = ui.element("div").classes("legend").props('role=group aria-label="Lines that are shown"')
        self._changed, self._boxes = changed, dict[str, ui.checkbox]()

    def set(self, names: Sequence[str], most: int) -> None:
        """The lines that there are; at first so many of them are shown."""
        if list(self._boxes) == list(names):
            return
        self.box.clear()
        chosen = {names[i * len(names) // most] for i in range(most)} if len(names) > most else set(names)
        with self.box:
            self._boxes = {name: self._entry(name, name in chosen) for name in names}

    def _entry(self, name: str, is_on: bool) -> ui.checkbox:
        colour, dash = style_of(name)
        with ui.element("span").classes("key"):
            ui.element("span").classes("swatch").style(
                f"border-top-style: {dash}; border-top-color: var(--line-{colour})"
            )
            return ui.checkbox(name, value=is_on, on_change=self._changed).props("dense")

    @property
    def shown(self) -> frozenset[str]:
        """The names of the lines to draw."""
        return frozenset(name for name, one in self._boxes.items() if one.value)


class Facts:
    """Names with values."""

    def __init__(self) -> None:
        self.box = ui.element("dl").classes("facts")
        self._last: dict[str, str] = {}

    def set(self, facts: Mapping[str, str]) -> None:
        """Say other values."""
        if self._last == facts:
            return
        self._last = dict(facts)
        self.box.clear()
        with self.box:
            for name, value in facts.items():
                with ui.element("div"):
                    with ui.element("dt"):
                        ui.label(name)
                    with ui.element("dd"):
                        ui.label(value)


def heading(level: int, text: str) -> ui.label:
    """A heading, whose text is text."""
    with ui.element(f"h{level}"):
        return ui.label(text)


def key(curves: Sequence[Curve]) -> list[str]:
    """The names of curves, each once."""
    return list(dict.fromkeys(one.name for one in curves))
