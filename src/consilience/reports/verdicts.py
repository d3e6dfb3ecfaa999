"""A verdict as pages show it: a mark that says whether a run has converged, and beside it the rest of the words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from consilience.reports.page import Section

MARKS = {
    "converged": "✓ Converged",
    "not": "✕ Not converged",
    "other": "Not a sample",
    "unknown": "Too early to tell",
}
"""By the kind of a verdict."""
_SAID = (
    "Not converged yet: ", "Not converged: ", "So far: Converged: ", "Converged: ", "Not a sample of the posterior: ",
)  # fmt: skip
"""What a mark says, and need not be said again."""


def kind_of(summary: Mapping[str, Any]) -> str:
    """The kind of a finished run's verdict; `unknown` of an older version, which gave none.

    >>> kind_of({"verdict": "Not converged: too short.", "converged": False}), kind_of({})
    ('not', 'unknown')
    """
    kinds = {True: "converged", False: "not", None: "other"}
    return kinds[summary["converged"]] if "verdict" in summary else "unknown"


def beside_mark(words: str) -> str:
    """What a verdict says that its mark does not.

    >>> beside_mark("Not converged: R-hat of w is 1.2, 1.01 at most is wanted.")
    'R-hat of w is 1.2, 1.01 at most is wanted.'
    """
    return words.removeprefix(next((said for said in _SAID if words.startswith(said)), ""))


def verdict_section(summary: Mapping[str, Any], more: Sequence[str] = ()) -> list[Section]:
    """Whether a run, or a series of them, has converged; if not why and what to do; then what more there is to say.

    >>> found = {"verdict": "Not converged: too short.", "converged": False, "remedy": "sample longer"}
    >>> [(one.title, one.text) for one in verdict_section(found)]
    [('✕ Not converged', 'too short. What to do: sample longer.')]
    """
    kind = kind_of(summary)
    if kind == "unknown":
        return []
    advice = [f"What to do: {summary['remedy']}."] if summary.get("remedy") else []
    return [Section(MARKS[kind], " ".join([beside_mark(summary["verdict"]), *advice, *more]), verdict=kind)]
