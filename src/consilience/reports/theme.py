"""Figures as drawings inside a page whose colours follow its theme, light or dark; all eyes can tell them apart.

A figure is drawn with the colours of the light theme. In the drawing each of them becomes the name of one of the
page's colours, which the page has for both themes.
"""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, MUTED, ACCENT = "#1f2933", "#66717e", "#c8102e"
COLOURS = ("#00477a", "#ea731f", "#039e73", "#8f3051", "#985f00", "#349dd7", "#835a9f", "#5f7672")
"""Of lines. Any two differ by ΔE 10 or more (CIEDE2000), also as people see them who lack red or green cones."""
_DARK_INK, _DARK_MUTED, _DARK_ACCENT = "#e6e9ee", "#8b95a3", "#ff6b7f"
DARK = ("#45bcfc", "#e37c3b", "#31c598", "#b97192", "#f9c042", "#abe4ff", "#b58ec0", "#a0b4b6")
"""The same on dark ground."""
_INCH = 100  # pixels of the page for an inch of a figure
_SHARPNESS = 200  # dots an inch of what is too much to be drawn as lines


def drawn(figure: Figure, name: str) -> str:
    """A figure as an SVG element whose colours are the page's; `name` keeps its parts apart from other figures'."""
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name, "svg.fonttype": "path"}):
        figure.savefig(buffer, format="svg", dpi=_SHARPNESS, facecolor="none", metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    for number, colour in enumerate(COLOURS):
        text = text.replace(colour, f"var(--line-{number})")
    for word, colour in (("ink", INK), ("muted", MUTED), ("alarm", ACCENT)):
        text = text.replace(colour, f"var(--{word})")
    width, height = figure.get_size_inches() * _INCH
    size = f'width="{width:.0f}" height="{height:.0f}"'
    return re.sub(r'width="[\d.]+pt"', size, re.sub(r'height="[\d.]+pt"', "", text, count=1), count=1)


def palette(dark: bool) -> str:
    """The colours of figures as entries of a style sheet.

    >>> palette(dark=False)[:38]
    '--line-0: #00477a; --line-1: #ea731f; '
    """
    lines = DARK if dark else COLOURS
    named = {f"line-{number}": colour for number, colour in enumerate(lines)}
    named |= dict(
        zip(("ink", "muted", "alarm"), (_DARK_INK, _DARK_MUTED, _DARK_ACCENT) if dark else (INK, MUTED, ACCENT),
            strict=True)
    )  # fmt: skip
    return " ".join(f"--{name}: {colour};" for name, colour in named.items())
