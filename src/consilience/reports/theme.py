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
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#b0568f", "#b57d00", "#3a9fd8", "#7a5195", "#5f7470")
_DARK_INK, _DARK_MUTED, _DARK_ACCENT = "#e6e9ee", "#8b95a3", "#ff6b7f"
_DARK = ("#56b4e9", "#ff8f4d", "#2cc69a", "#e39ac4", "#f0b93c", "#9fd6f7", "#c3a3e0", "#9fb3ae")
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
    '--line-0: #0072b2; --line-1: #d55e00; '
    """
    lines = _DARK if dark else COLOURS
    named = {f"line-{number}": colour for number, colour in enumerate(lines)}
    named |= dict(
        zip(("ink", "muted", "alarm"), (_DARK_INK, _DARK_MUTED, _DARK_ACCENT) if dark else (INK, MUTED, ACCENT),
            strict=True)
    )  # fmt: skip
    return " ".join(f"--{name}: {colour};" for name, colour in named.items())
