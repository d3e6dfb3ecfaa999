"""Powers of ten in letters that fonts have: to set the labels as formulas took a sixth of a report's time.

It is imported where figures are drawn, since it loads Matplotlib.
"""

from __future__ import annotations

import re
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatterSciNotation

_RAISED = str.maketrans("0123456789-−", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁻")
_POWER = re.compile(r"\$\\mathdefault\{(.*?)10\^\{(.*?)\}\}\$")


class Powers(LogFormatterSciNotation):
    """The labels of a logarithmic axis.

    >>> Powers()(1e-3), Powers()(2e6)
    ('10⁻³', '2×10⁶')
    """

    def __call__(self, x: float, pos: Any = None) -> str:
        """The label of a value."""
        formula = super().__call__(x, pos)
        found = _POWER.fullmatch(formula)
        return formula if found is None else found[1].replace(r"\times", "×") + "10" + found[2].translate(_RAISED)


def label_powers(figure: Figure) -> None:
    """Label the logarithmic axes of a figure that have Matplotlib's own labels."""
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            major, minor = axis.get_major_formatter(), axis.get_minor_formatter()
            if type(major) is LogFormatterSciNotation:
                axis.set_major_formatter(Powers(labelOnlyBase=major.labelOnlyBase))
            if type(minor) is LogFormatterSciNotation:
                axis.set_minor_formatter(Powers(labelOnlyBase=minor.labelOnlyBase))
