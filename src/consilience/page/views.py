"""The page as one browser sees it: parts, each told of every new snapshot, and a choice of runs and of colours."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any
from urllib.parse import quote

from nicegui import ui
from nicegui.events import GenericEventArguments

from consilience.page import details, sections
from consilience.page.elements import Words, heading
from consilience.page.snapshot import Snapshot
from consilience.page.watching import Watched, Watcher
from consilience.reports.theme import palette

STYLE = f":root {{ {palette(dark=False)} }} body.body--dark {{ {palette(dark=True)} }}\n" + (
    Path(__file__).parent / "style.css"
).read_text(encoding="utf-8")
_TICK_SECONDS, _SLOWEST_SECONDS = 1.0, 60.0
_TELL_COLOURS = """
const tell = () => {
  const dark = document.body.classList.contains('body--dark');
  if (dark !== window.toldDark) emitEvent('colours', {dark});
  window.toldDark = dark;
};
if (window.toldDark === undefined)
  new MutationObserver(tell).observe(document.body, {attributes: true, attributeFilter: ['class']});
tell();
"""
"""In the browser: say whether colours are dark, now and whenever that changes."""
_MODES: dict[bool | None, tuple[str, bool | None]] = {
    None: ("as the system", False),
    False: ("light", True),
    True: ("dark", None),
}
"""What a mode is called, and which comes next."""


class PageView:
    """One browser's page."""

    def __init__(self, watcher: Watcher) -> None:
        self.watcher, self.name = watcher, ""
        self._version, self._dark, self._is_fresh = -1, False, False
        self._parts: list[Any] = []
        self._parameters: sections.Parameters | None = None
        ui.add_css(STYLE)
        ui.colors(primary="#0072b2")
        self._mode = ui.dark_mode(None)
        with ui.element("div").classes("page"):
            with ui.element("header").classes("top"):
                with ui.element("div").classes("grow"):
                    self.title = heading(1, "Consilience")
                    self.subtitle = Words("muted", "div")
                self.choice = (
                    ui.select([], label="Run", on_change=self._choose)
                    .props("dense outlined")
                    .style("min-width: 10rem")
                )
                self.choice.set_visibility(False)
                self.light = ui.button("", on_click=self._next_mode).props("outline dense no-caps padding='xs sm'")
            self.trouble = Words("words muted")
            self.main = ui.element("main").classes("grid")
        ui.skip_link("Skip to the content", target=self.main)
        self._say_mode()
        ui.on("colours", self._take_colours)
        ui.context.client.on_connect(lambda: ui.run_javascript(_TELL_COLOURS))
        ui.timer(_TICK_SECONDS, self._tick)

    def _next_mode(self) -> None:
        self._mode.set_value(_MODES[self._mode.value][1])
        self._say_mode()

    def _say_mode(self) -> None:
        self.light.set_text(f"Colours: {_MODES[self._mode.value][0]}")

    def _take_colours(self, told: GenericEventArguments) -> None:
        dark = bool(told.args["dark"])
        if dark != self._dark:
            self._dark, self._version = dark, -1

    def _choose(self) -> None:
        if self.choice.value:
            self._begin(str(self.choice.value))

    def _begin(self, name: str) -> None:
        """Lay out the page for a run; what is in it comes with the first snapshot."""
        if name == self.name:
            return
        self.name, self._version, self._parts = name, -1, []
        self.main.clear()

    async def _tick(self) -> None:
        """Show what is new; then wait until the browser has taken it in, so that a slow one gets less."""
        names = self.watcher.names()
        if names and self.name not in names:
            self._begin(self.watcher.newest() or names[0])
        if len(names) > 1 and list(self.choice.options) != names:
            self.choice.set_options(names, value=self.name)
            self.choice.set_visibility(True)
        if not self.name:
            self.trouble.set(f"Waiting for {self.watcher.path} to appear …")
        elif self._show(self.watcher.see(self.name, self._parameters.chosen if self._parameters else [])):
            with contextlib.suppress(TimeoutError):
                await ui.run_javascript("return true", timeout=_SLOWEST_SECONDS)

    def _show(self, watched: Watched, again: bool = False) -> bool:
        """Show what is new; whether there was something."""
        self.trouble.set(f"Cannot be read just now: {watched.trouble}" if watched.trouble else "")
        snapshot = watched.snapshot
        if snapshot is None or (watched.version == self._version and not again):
            return False
        self._version = watched.version
        if not self._parts:
            self._lay_out(snapshot)
        self.title.set_text(snapshot.title)
        self.subtitle.set(snapshot.subtitle)
        for part in self._parts:
            part.update(snapshot, self._dark)
        return True

    def _lay_out(self, snapshot: Snapshot) -> None:
        def changed() -> None:
            self._show(self.watcher.see(self.name, self._parameters.chosen if self._parameters else []), again=True)

        self.main.clear()
        with self.main:
            head, agents, convergence = (
                sections.Head(f"report/{quote(self.name, safe='')}"),
                sections.Agents(),
                sections.Convergence(),
            )
            self._parameters = sections.Parameters(changed)
            rest: list[Any] = []
            for kinds in details.COLUMNS:
                with ui.element("div").classes("half"):
                    rest += [kind() for kind in kinds]
            log = details.Log()
        self._parts = [head, agents, convergence, self._parameters, *rest, log]
