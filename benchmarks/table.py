"""One line of the table for each comparison: what, ours, theirs, their ratio, the target, and whether it is met."""

from __future__ import annotations

from dataclasses import dataclass

_WIDTHS = (58, 10, 10, 7, 13, 9)


@dataclass(frozen=True)
class Line:
    """A comparison of two amounts of the same kind; smaller is better.

    Attributes:
        what: the comparison, in words.
        ours: our amount.
        theirs: the amount it is measured against.
        target: the ratio `ours / theirs` should be at most this.
        unit: of both amounts; seconds are shown in microseconds, or milliseconds from ten of them.
        shown_target: how to write the target, if not as a number.
    """

    what: str
    ours: float
    theirs: float
    target: float
    unit: str = "s"
    shown_target: str = ""

    @property
    def ratio(self) -> float:
        """Ours as a multiple of theirs."""
        return self.ours / self.theirs

    def __str__(self) -> str:
        target = self.shown_target or f"{self.target:g}"
        verdict = "met" if self.ratio <= self.target else "missed"
        amounts = (_shown(self.ours, self.unit), _shown(self.theirs, self.unit))
        return row(self.what, *amounts, f"{self.ratio:.3g}", f"at most {target}", verdict)


@dataclass(frozen=True)
class Skipped:
    """A comparison that cannot be made here."""

    what: str
    reason: str

    def __str__(self) -> str:
        return f"| {self.what:<{_WIDTHS[0]}} | skipped: {self.reason}"


@dataclass(frozen=True)
class Told:
    """An amount beside which nothing stands."""

    what: str
    amount: str

    def __str__(self) -> str:
        return f"| {self.what:<{_WIDTHS[0]}} | {self.amount}"


def row(*cells: str) -> str:
    """A row of the table, which is also one of a Markdown table."""
    first, *others = (f"{cell:<{width}}" for cell, width in zip(cells, _WIDTHS, strict=True))
    return f"| {first} | {' | '.join(others)} |"


def header() -> str:
    """The table's first two rows."""
    names = row("what is measured", "ours", "theirs", "ratio", "target", "target is")
    return names + "\n|" + "|".join("-" * (width + 2) for width in _WIDTHS) + "|"


def _shown(amount: float, unit: str) -> str:
    if unit != "s":
        return f"{amount:.3g} {unit}"
    return f"{amount * 1e6:.3g} µs" if amount < 0.01 else f"{amount * 1e3:.3g} ms"
