"""A verdict as pages show it: a mark that says whether a run has converged, and beside it the rest of the words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
