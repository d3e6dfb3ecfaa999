"""Formulas from elsewhere: what the grammar takes, and all that it refuses before a library sees it."""

import pytest

from consilience.errors import DataError
from consilience.studies.formulas import parse


@pytest.mark.parametrize(
    ("text", "names", "terms", "site_terms"),
    [
        ("y ~ age", ("age",), "1 + c0", None),
        ("y ~ 0 + age", ("age",), "1 + 0 + c0", None),
        ("y ~ -1 + age:stage", ("age", "stage"), "1 - 1 + c0 : c1", None),
        ("y ~ (a + b) * c - a:c", ("a", "b", "c"), "1 + (c0 + c1) * c2 - c0 : c2", None),
        ("y ~ `blood pressure` + größe", ("blood pressure", "größe"), "1 + c0 + c1", None),
        ("y ~ a + (1 | site)", ("a",), "1 + c0", "1"),
        ("y ~ (a | site)", ("a",), "1", "1 + c0"),
        ("y ~ (0 + a | site) + b", ("a", "b"), "1 + c1", "1 + 0 + c0"),
    ],
)
def test_a_formula_becomes_terms_without_a_word_of_the_user(text, names, terms, site_terms):
    found = parse(text)
    assert (found.outcome, found.names, found.terms, found.site_terms) == ("y", names, terms, site_terms)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("y ~ {__import__('os').system('true')}", "has a '{'"),
        ("y ~ __import__('os')", "the function __import__.*and none is allowed"),
        ("y ~ a.__class__", "has a '.'"),
        ("y ~ a[0]", r"has a '\['"),
        ("y ~ a + scale(b)", "the codebook's centre and scale do that"),
        ("y ~ C(a, Treatment('x'))", "which columns are categories"),
        ("y ~ log(a)", "make a column of it in the files"),
        ("log(y) ~ a", "the function log"),
        ("x + y ~ a", "write the outcome's column alone"),
        ("y ~ a ** 2", "where a column belongs"),
        ("y ~ a @ b", "has a '@'"),
        ("y ~ 'a'", "has a"),
        ("y ~ `a`.b", "has a '.'"),
        ("y ~ `a", "has a '`'"),
        ("y ~ ``", "empty backticks"),
        ("y ~ a b", "has a 'b' too many"),
        ("y ~ a +", "ends where a column belongs"),
        ("y ~", "ends where a column belongs"),
        ("y ~ (a", r"lacks a '\)'"),
        ("y ~ a)", r"has a '\)' too many"),
        ("y ~ 3 * a", "the number 3"),
        ("y ~ 1e9", "the number 1e9"),
        ("y ~ 1:a", "multiplies by a number"),
        ("y ~ (0 + a):b", "0 or 1 inside parentheses"),
        ("y ~ a - 0", "takes 0 away"),
        ("y ~ a ~ b", "needs one ~"),
        ("y", "needs one ~"),
        ("y ~ a + y", "stands on both sides"),
        ("y ~ (1 | ward)", "effects of 'ward'"),
        ("y ~ (1 | site) + (a | site)", "twice"),
        ("y ~ a * (1 | site)", "effects of the site are a term of their own"),
        ("y ~ ((1 | site))", "a term of their own"),
        ("y ~ a - (1 | site)", "a term of their own"),
        ("y ~ a | site", r"has a '\|' too many"),
        ("y ~ " + "(" * 40 + "a" + ")" * 40, "deep"),
        ("y ~ " + "*".join("abcdefghijklmnop"), "more than 500 terms"),
        ("y ~ a" + " + a" * 600, "characters"),
    ],
)
def test_anything_else_is_refused_with_a_remedy(text, words):
    with pytest.raises(DataError, match=words):
        parse(text)


def test_no_code_runs_while_a_formula_is_refused(tmp_path):
    target = tmp_path / "made"
    with pytest.raises(DataError):
        parse(f"y ~ {{open({str(target)!r}, 'w')}}")
    assert not target.exists()
