"""Show the examples in docstrings as code: a run of `>>>` lines becomes a fenced block."""

from typing import Any

import griffe


def fenced(text: str) -> str:
    """The text with every doctest in a fence of its own.

    >>> fenced("Words.\\n\\n>>> 1 + 1\\n2\\n\\nMore.").splitlines()[2:6]
    ['```pycon', '>>> 1 + 1', '2', '```']
    """
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        if line.startswith(">>>") and not inside:
            lines.append("```pycon")
            inside = True
        elif inside and not line.strip():
            lines.append("```")
            inside = False
        lines.append(line)
    return "\n".join([*lines, "```"] if inside else lines)


class Doctests(griffe.Extension):
    """Rewrites every docstring before it is parsed."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for every module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
