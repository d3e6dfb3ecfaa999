"""Decentralized samplers, one algorithm per file, behind one protocol."""

from consilience.samplers.base import Sampler
from consilience.samplers.dula import DULA, dula

SAMPLERS = {"dula": DULA}

__all__ = ["DULA", "SAMPLERS", "Sampler", "dula"]
