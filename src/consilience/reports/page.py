"""One self-contained HTML page: figures are drawn in it and can be zoomed, nothing is fetched; PNGs beside it."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consilience.reports.tables import Table
from consilience.reports.theme import drawn, palette
from consilience.runs.files import disk_errors, write_text

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.figure import Figure

_RESOLUTION = 144


@dataclass(frozen=True)
class Section:
    """A part of a page: words, figures by file name, and maybe a table.

    Attributes:
        title: its heading.
        text: words below it; what stands `between such marks` is shown as code.
        figures: by file name.
        table: below the figures.
        verdict: of a part that is one, its kind, by which it is marked.
    """

    title: str
    text: str
    figures: Mapping[str, Figure] = field(default_factory=dict)
    table: Table | None = None
    verdict: str = ""


def render_page(
    directory: Path,
    title: str,
    subtitle: str,
    facts: Mapping[str, str],
    sections: Sequence[Section],
    details: Mapping[str, str],
) -> Path:
    """Write `figures/*.png` and `report.html` into the directory.

    Args:
        directory: where to write.
        title: the page's heading.
        subtitle: a line below it.
        facts: a few key figures, by name.
        sections: what the page shows.
        details: longer texts, folded away at the end.
    """
    import jinja2  # which takes as long to load as to draw a figure
    from markupsafe import Markup

    from consilience.reports.letters import label_powers

    with disk_errors(directory):
        (directory / "figures").mkdir(exist_ok=True)
        embedded = {}
        for section in sections:
            for name, figure in section.figures.items():
                label_powers(figure)
                _lay_out(figure)
                (directory / "figures" / f"{name}.png").write_bytes(_png(figure))
                embedded[name] = Markup(drawn(figure, name))
        environment = jinja2.Environment(
            loader=jinja2.PackageLoader("consilience.reports", ""),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
        )
        environment.filters["with_code"] = with_code
        page: Any = environment.get_template("page.html").render(
            title=title, subtitle=subtitle, facts=facts, sections=sections, figures=embedded, details=details,
            light=palette(dark=False), dark=palette(dark=True),
        )  # fmt: skip
        write_text(directory / "report.html", page)
    return directory / "report.html"


def with_code(text: str) -> Markup:
    """Words as HTML: everything is text, and what stands between backticks is code.

    >>> str(with_code("`consilience check` says more of <b>"))
    '<code>consilience check</code> says more of &lt;b&gt;'
    """
    from markupsafe import Markup, escape

    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _lay_out(figure: Figure) -> None:
    """Settle the layout for picture and drawing: Matplotlib would draw each of them twice to find it."""
    figure.set_dpi(_RESOLUTION)
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
        figure.set_layout_engine(None)


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=_RESOLUTION, metadata={"Software": "consilience"})
    return buffer.getvalue()
