"""Decentralized samplers, one algorithm per file, behind one contract (`base.py`)."""

from consilience.samplers.base import Finding, Leaf, Option, Sampler, SpeaksFirst, SpeaksLast, Suggestion
from consilience.samplers.dula import DULA, dula
from consilience.samplers.landscape import Landscape

SAMPLERS: dict[str, type[Sampler]] = {"dula": DULA}
"""Every sampler by its `kind`; plans, the command line and the contract's tests know those that stand here."""

__all__ = [
    "DULA",
    "SAMPLERS",
    "Finding",
    "Landscape",
    "Leaf",
    "Option",
    "Sampler",
    "SpeaksFirst",
    "SpeaksLast",
    "Suggestion",
    "dula",
]
