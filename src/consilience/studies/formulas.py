"""Formulas from elsewhere, parsed by a grammar of our own before a library sees anything of them.

    died ~ age + stage * treatment + `blood pressure` - 1 + (1 + age | site)

Names of columns (in backticks if they are no words), `+ - : *`, the numbers 0 and 1, parentheses, and effects of the
site. Nothing else: no function, no `{…}`, no attribute. Columns and levels are renamed `c0`, `c1`, … before the terms
go to formulaic, with an empty context, so no text of a user reaches it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from consilience.errors import DataError

SITE = "site"
_TOKEN = re.compile(r"\s*(?:(?P<quoted>`[^`]*`)|(?P<name>[^\W\d]\w*)|(?P<number>\d[\w.]*)|(?P<mark>\S))")
_MOST_CHARACTERS = 2000
_KNOWN_MARKS = "+-:*()|"
_REMEDY = "a formula has columns, + - : *, 0, 1, parentheses and (… | site)"
_INSTEAD = {
    "scale": "the codebook's centre and scale do that",
    "center": "the codebook's centre does that",
    "standardize": "the codebook's centre and scale do that",
}


@dataclass(frozen=True)
class Formula:
    """A formula in its parts; columns are written `c0`, `c1`, … in the terms.

    Attributes:
        text: as it was given.
        outcome: the column on the left.
        names: the columns on the right; `c0` is the first.
        terms: of what is shared, for formulaic.
        site_terms: of the site's own effects, for formulaic; `None` if there are none.

    >>> formula = parse("died ~ age * stage + (1 | site)")
    >>> formula.outcome, formula.names, formula.terms, formula.site_terms
    ('died', ('age', 'stage'), '1 + c0 * c1', '1')
    """

    text: str
    outcome: str
    names: tuple[str, ...]
    terms: str
    site_terms: str | None


def parse(text: str) -> Formula:
    """The parts of a formula; what the grammar does not know is refused by name."""
    if len(text) > _MOST_CHARACTERS:
        raise DataError(f"the formula has {len(text):,} characters: at most {_MOST_CHARACTERS:,} are read")
    left, tilde, right = text.partition("~")
    if not tilde or "~" in right:
        raise DataError(f"the formula {text!r} needs one ~ between the outcome and the terms: outcome ~ a + b")
    outcomes = list(_tokens(left))
    if len(outcomes) != 1 or outcomes[0][0] != "name":
        raise DataError(
            f"left of ~ stands {left.strip()!r}: write the outcome's column alone, in backticks if needed"
        )
    reader = _Reader(list(_tokens(right)))
    shared = reader.sum(top=True)
    if reader.place < len(reader.tokens):
        raise DataError(f"the formula has a {reader.tokens[reader.place][1]!r} too many: {_REMEDY}")
    if outcomes[0][1] in reader.names:
        raise DataError(f"{outcomes[0][1]!r} stands on both sides of ~: remove it from the terms")
    return Formula(text, outcomes[0][1], tuple(reader.names), _with_intercept(shared), reader.site_terms)


def _with_intercept(terms: str) -> str:
    """Terms that begin with the intercept, which a later 0 or -1 takes away."""
    return f"1 {terms}" if terms.startswith("-") else f"1 + {terms}" if terms else "1"
