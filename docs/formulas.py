"""Formulas of the built pages: set as MathML, which browsers draw by themselves: pages fetch and run nothing.

Why not MathJax or KaTeX: all browsers have drawn MathML since the beginning of 2023, so a page needs no script and no
fonts for it, works from disk and offline as it is, can be read aloud, and one small converter, which comes in a wheel
(docutils), makes it when the pages are built.

Two notations lead to it. A block that is fenced as `math` holds TeX. Inline code that holds nothing but mathematics
is a formula in plain text, as in `α_k ∇U_i(w_i)`: in a terminal it is read as it stands, and on a page it is set.
"""

import html
import re
from typing import Any

_INLINE = re.compile(r"(?<!<pre>)<code>([^<]+)</code>")
_BLOCK = re.compile(r'<div class="arithmatex">\\\[(.*?)\\\]</div>', re.DOTALL)
_SIGNS = set("∇Σ∏‖√∂≤≥≈∝⊗∈∞½ᵀ⁺⁻²³←→·−×ℓ⌈⌉")
_KNOWN = (
    "arccosh",
    "chol",
    "cosh",
    "cov",
    "diag",
    "exp",
    "log",
    "max",
    "min",
    "sign",
    "sqrt",
    "tr",
    "var",
    "KL",
    "erf",
)
_FRACTION_OF_WORDS = re.compile("n/a|N/A")
_TOKEN = re.compile(
    rf"\s+|(?:{'|'.join(_KNOWN)})(?![A-Za-z0-9_])|[A-Za-zΑ-ωℓ∇Σ∏∂][\u0304\u0303]?(?![A-Za-z0-9])|[Α-ω](?=[A-Za-z](?![A-Za-z]))|\d+(?:[.,]\d+)*(?![A-Za-z_])"
    r"|_(?:\{[^}]*\}|[A-Za-z0-9]{1,3}\*?|\*)|\^(?:[−-]?\([^()]*\)|\{[^}]*\}|[−-]?[A-Za-z0-9]+)|[-−+*/=<>|,;:()\[\]{}'!~…]"
    rf"|[{''.join(_SIGNS)}]|[₀-₉⁰⁴-⁹½¼]"
)
_LOWERED = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-")
_NAMED = {
    "←": r"\leftarrow ", "→": r"\to ", "·": r"\cdot ", "×": r"\times ", "≤": r"\leq ", "≥": r"\geq ", "−": "-",
    "≈": r"\approx ", "∝": r"\propto ", "⊗": r"\otimes ", "∈": r"\in ", "∞": r"\infty ", "½": r"\tfrac{1}{2} ",
    "∇": r"\nabla ", "Σ_": r"\sum_", "∏_": r"\prod_", "‖": r"\Vert ", "√": r"\sqrt ", "∂": r"\partial ",
    "~": r"\sim ", "…": r"\ldots ", "ℓ": r"\ell ", "⌈": r"\lceil ", "⌉": r"\rceil ",
}  # fmt: skip


def on_page_content(content: str, *, page: Any, **_: Any) -> str:
    """Called by MkDocs for every page; on those that explain, single letters and `m/B` are formulas too."""
    letters = page.file.src_uri.startswith("explanation/")
    content = _BLOCK.sub(lambda found: _mathml(html.unescape(found[1]), block=True), content)

    def inline(found: re.Match[str]) -> str:
        text = html.unescape(found[1])
        is_math = (is_formula(text) and (letters or not text.isascii())) or (
            letters and len(text) == 1 and text.isalpha()
        )
        return _mathml(tex(text), block=False) if is_math else found[0]

    return _INLINE.sub(inline, content)


def is_formula(text: str) -> bool:
    """Whether plain text is mathematics and nothing else: signs, numbers, single letters, known functions.

    >>> [is_formula(text) for text in ("α_k n", "m_i/B", "w̄", "run.draws", "a9a", "--steps", "10", "x")]
    [True, True, True, False, False, False, False, False]
    """
    if text.startswith(("_", "/", "=", "+", "|")) or _FRACTION_OF_WORDS.fullmatch(text):
        return False
    place = 0
    while place < len(text):
        found = _TOKEN.match(text, place)
        if found is None:
            return False
        place = found.end()
    return any(one in _SIGNS or "Α" <= one <= "ω" or one in "\u0304\u0303_^=/|+" for one in text)


def tex(text: str) -> str:
    r"""A formula in plain text as TeX.

    >>> tex("w̄ − β_k Σ_j a_ij")
    '{\\overline{w}} - β_{k} \\sum_{j} a_{ij}'
    >>> tex("sqrt(2 α_k)/n²")
    '\\sqrt{2 α_{k}}/n^{2}'
    """
    text = re.sub(r"(\w)\u0304", r"{\\overline{\1}}", text)
    text = re.sub(r"(\w)\u0303", r"{\\tilde{\1}}", text)
    text = re.sub(r"_([A-Za-z0-9]{1,3}\*?|\*)", r"_{\1}", text).replace("_{max}", r"_{\mathrm{max}}")
    text = re.sub(r"([₀-₉]+)", lambda found: f"_{{{found[1].translate(_LOWERED)}}}", text)
    text = re.sub(r"\^\(([^()]*)\)", r"^{\1}", text)
    text = re.sub(r"\^([−-]\([^()]*\))", r"^{\1}", text)
    text = re.sub(r"\^([−-]?[A-Za-z0-9]+(?:_\{\w+\})?)", r"^{\1}", text)
    text = re.sub("[⁰¹²³⁴-⁹⁺⁻]+", lambda found: f"^{{{found[0].translate(_RAISED)}}}", text).replace("ᵀ", r"^{\top}")
    text = _roots(text)
    for sign, named in _NAMED.items():
        text = text.replace(sign, named)
    names = "|".join(_KNOWN)
    return re.sub(rf"(?<![\\A-Za-z{{])(?:{names})(?![A-Za-z])", r"\\,\\mathrm{\g<0>}\\,", text).removeprefix(r"\,")


def _roots(text: str) -> str:
    """`sqrt(…)` with its balanced bracket as a root."""
    while (start := text.find("sqrt(")) >= 0:
        depth, end = 1, start + 5
        while depth and end < len(text):
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        text = text[:start] + r"\SQRT{" + text[start + 5 : end - 1] + "}" + text[end:]
    return text.replace("SQRT", "sqrt")


def _mathml(formula: str, *, block: bool) -> str:
    from docutils.utils.math.latex2mathml import tex2mathml

    return tex2mathml(formula.strip(), as_block=block)
