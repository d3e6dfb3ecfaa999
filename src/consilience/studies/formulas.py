"""Formulas from elsewhere, parsed by a grammar of our own before a library sees anything of them.

    died ~ age + stage * treatment + `blood pressure` - 1 + (1 + age | site)

Names of columns (in backticks if they are no words), `+ - : *`, the numbers 0 and 1, parentheses, and effects of the
site. Nothing else: no function, no `{…}`, no attribute. Columns and levels are renamed `c0`, `c1`, … before the terms
go to formulaic, with an empty context, so no text of a user reaches it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from consilience.errors import DataError

SITE = "site"
_TOKEN = re.compile(r"\s*(?:(?P<quoted>`[^`]*`)|(?P<name>[^\W\d]\w*)|(?P<number>\d[\w.]*)|(?P<mark>\S))")
_MOST_CHARACTERS = 2000
_DEEPEST, _MOST_TERMS = 20, 500
_KNOWN_MARKS = "+-:*()|"
_REMEDY = "a formula has columns, + - : *, 0, 1, parentheses and (… | site)"
_INSTEAD = {
    "scale": "the codebook's centre and scale do that",
    "center": "the codebook's centre does that",
    "standardize": "the codebook's centre and scale do that",
    "c": "the codebook says which columns are categories, and their reference",
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
    shared, _ = reader.sum(top=True)
    if reader.place < len(reader.tokens):
        raise DataError(f"the formula has a {reader.tokens[reader.place][1]!r} too many: {_REMEDY}")
    if outcomes[0][1] in reader.names:
        raise DataError(f"{outcomes[0][1]!r} stands on both sides of ~: remove it from the terms")
    return Formula(text, outcomes[0][1], tuple(reader.names), _with_intercept(shared), reader.site_terms)


def _with_intercept(terms: str) -> str:
    """Terms that begin with the intercept, which a later 0 or -1 takes away."""
    if terms.split(" ")[0] == "1":
        return terms
    return f"1 {terms}" if terms.startswith("-") else f"1 + {terms}" if terms else "1"


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """Kind and text of each token: `name` (without backticks), `number` or `mark`."""
    place = 0
    while text[place:].strip():
        match = _TOKEN.match(text, place)
        assert match is not None  # a mark is any character
        place = match.end()
        kind = str(match.lastgroup)
        word = match[kind]
        if kind in ("name", "quoted") and text[place:].lstrip().startswith("("):
            instead = _INSTEAD.get(word.lower(), "make a column of it in the files, at all sites")
            raise DataError(f"the formula has the function {word}(…), and none is allowed: {instead}")
        if kind == "quoted":
            if not word.strip("`").strip():
                raise DataError("the formula has empty backticks: write the column's name between them")
            yield "name", word[1:-1]
        elif kind == "mark" and word not in _KNOWN_MARKS:
            raise DataError(f"the formula has a {word!r}: {_REMEDY}")
        else:
            yield kind, word


class _Reader:
    """Reads terms token by token:

        sum      [+ | -] product {(+ | -) product}
        product  crossing {* crossing}
        crossing atom {: atom}
        atom     column | 0 | 1 | ( sum ) | ( sum | site )
    """  # fmt: skip

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self.tokens, self.place, self._depth = tokens, 0, 0
        self.names: list[str] = []
        self.site_terms: str | None = None

    def sum(self, top: bool = False) -> tuple[str, int]:
        """Terms that are added and taken away, and how many at most; effects of the site only at the top."""
        found, count = "", 0
        sign = self._take("+-") or "+"
        while True:
            term, more = self._product(top, sign)
            if term:
                found = f"{found} {sign} {term}" if found else term if sign == "+" else f"- {term}"
            count += more
            next_sign = self._take("+-")
            if next_sign is None:
                return found, count
            sign = next_sign

    def _product(self, top: bool, sign: str) -> tuple[str, int]:
        """Factors with `:` and `*` between them, as they stand: both have formulaic's precedence, `:` first."""
        first, count = self._atom(top, sign)
        parts, crossed, product = [first], count, 1
        while mark := self._take("*:"):
            part, more = self._atom(False, sign)
            parts += [mark, part]
            product, crossed = (product, crossed * more) if mark == ":" else (product * (crossed + 1), more)
        count = product * (crossed + 1) - 1
        if len(parts) > 1 and any(part in ("0", "1", "") for part in parts):
            raise DataError(f"the formula multiplies by a number or by an effect of the site: {_REMEDY}")
        if sign == "-" and first == "0":
            raise DataError("the formula takes 0 away: write + 0 or - 1 for no intercept")
        if count > _MOST_TERMS:
            raise DataError(
                f"the formula has more than {_MOST_TERMS} terms when its * are written out: name those you mean"
            )
        return " ".join(parts), count

    def _atom(self, top: bool, sign: str) -> tuple[str, int]:
        kind, word = self._next()
        if kind == "name":
            if word not in self.names:
                self.names.append(word)
            return f"c{self.names.index(word)}", 1
        if kind == "number":
            if word not in ("0", "1"):
                raise DataError(f"the formula has the number {word}: {_REMEDY}")
            return word, 1
        if word == "(":
            return self._group(top, sign)
        raise DataError(f"the formula has a {word!r} where a column belongs: {_REMEDY}")

    def _group(self, top: bool, sign: str) -> tuple[str, int]:
        """What stands in parentheses; of effects of the site nothing is left, they are kept apart."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise DataError(f"the formula has parentheses within parentheses, {_DEEPEST} deep: write it out")
        inside, count = self.sum()
        self._depth -= 1
        if self._take("|") is None:
            self._close()
            if {"0", "1"} & set(inside.replace("(", " ").replace(")", " ").split()):
                raise DataError(f"the formula has 0 or 1 inside parentheses: say it outside of them; {_REMEDY}")
            return f"({inside})", count
        kind, word = self._next()
        if (kind, word) != ("name", SITE):
            raise DataError(f"the formula has effects of {word!r}: only the site has its own, write (… | {SITE})")
        self._close()
        if not top or sign == "-":
            raise DataError(f"effects of the site are a term of their own: write … + (1 + x | {SITE})")
        if self.site_terms is not None:
            raise DataError(f"the formula has effects of the site twice: put them together, (1 + x | {SITE})")
        self.site_terms = _with_intercept(inside)
        return "", 0

    def _close(self) -> None:
        if self._take(")") is None:
            found = repr(self._peek()) if self._peek() else "nothing more"
            raise DataError(f"the formula lacks a ')' where it has {found}: {_REMEDY}")

    def _peek(self) -> str | None:
        return self.tokens[self.place][1] if self.place < len(self.tokens) else None

    def _next(self) -> tuple[str, str]:
        if self.place >= len(self.tokens):
            raise DataError(f"the formula ends where a column belongs: {_REMEDY}")
        self.place += 1
        return self.tokens[self.place - 1]

    def _take(self, marks: str) -> str | None:
        """The next token, if it is one of these marks."""
        if self.place < len(self.tokens):
            kind, word = self.tokens[self.place]
            if kind == "mark" and word in marks:
                self.place += 1
                return word
        return None
