"""Formulas of the documentation: every one can be set, and what is code stays code."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
_SPEC = importlib.util.spec_from_file_location("formulas", ROOT / "docs" / "formulas.py")
formulas = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(formulas)


def written(page):
    """The formulas of a page as TeX: those in fences, and those in plain text between words."""
    text = page.read_text()
    fenced = re.findall(r"^ *```math\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL)
    inline = re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text)
    return fenced + [formulas.tex(one) for one in inline if formulas.is_formula(one)]


def test_every_formula_can_be_set():
    converter = pytest.importorskip("docutils.utils.math.latex2mathml", reason="needs docutils, of the extra `docs`")
    found = [formula for page in PAGES for formula in written(page)]
    assert len(found) > 200
    for formula in found:
        assert converter.tex2mathml(formula.strip(), as_block=True).startswith("<math"), formula


@pytest.mark.parametrize(
    ("plain", "tex"),
    [
        ("α_k n", "α_{k} n"),
        ("w̃_i", r"{\tilde{w}}_{i}"),
        ("k^−(δ_2 − 2δ_1)", "k^{-(δ_{2} - 2δ_{1})}"),
        ("β_0 λ_max ≥ 2", r"β_{0} λ_{\mathrm{max}} \geq  2"),
        ("10⁻⁵", "10^{-5}"),
        ("sqrt(2 α n T)", r"\sqrt{2 α n T}"),
    ],
)
def test_plain_formulas_become_tex(plain, tex):
    assert formulas.is_formula(plain)
    assert formulas.tex(plain) == tex


@pytest.mark.parametrize("code", ["run.draws", "--steps", "a9a", "_NAME", "n/a", "summary.json", "x", "κ = cs.f()"])
def test_code_stays_code(code):
    assert not formulas.is_formula(code)


def test_no_formula_stands_in_a_block_of_code():
    """The arrows of a recursion are found in fences for formulas alone."""
    for page in (ROOT / "docs" / "explanation").glob("*.md"):
        blocks = [line for line in page.read_text().splitlines() if line.startswith("    ")]
        assert [line for line in blocks if "←" in line] == [], page


def test_pages_are_searched_without_a_network():
    """The theme's plugin would fetch a polyfill if the site brought none of that name."""
    settings = (ROOT / "mkdocs.yml").read_text()
    assert re.search(r"^  - offline\b", settings, re.MULTILINE)
    (polyfill,) = re.findall(r"polyfills:\n    - (\S*iframe-worker\S*)", settings)
    assert "http" not in polyfill
    assert (ROOT / "docs" / polyfill).is_file()
