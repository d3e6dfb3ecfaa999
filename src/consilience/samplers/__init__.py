"""Decentralized samplers, one algorithm per file, behind one contract (`base.py`)."""

from consilience.samplers.base import Finding, Gossip, Leaf, Option, Sampler, SpeaksFirst, SpeaksLast, Suggestion
from consilience.samplers.coordinates import Coordinates
from consilience.samplers.corrected import Corrected
from consilience.samplers.dula import DULA, dula
from consilience.samplers.hmc import HMC, hmc
from consilience.samplers.kinetic import Kinetic, kinetic
from consilience.samplers.landscape import Landscape
from consilience.samplers.langevin import CorrectedLangevin, langevin
from consilience.samplers.mixing import Mixing
from consilience.samplers.nuts import NUTS, nuts
from consilience.samplers.sghmc import SGHMC, sghmc
from consilience.samplers.unison import Unison

_REGISTRY = (
    (DULA, dula),
    (SGHMC, sghmc),
    (NUTS, nuts),
    (HMC, hmc),
    (Kinetic, kinetic),
    (CorrectedLangevin, langevin),
)  # fmt: skip
"""Every sampler and the function that makes one: a new sampler is one more line."""

SAMPLERS: dict[str, type[Sampler]] = {kind.model_fields["kind"].default: kind for kind, _ in _REGISTRY}
"""Every sampler by its `kind`; plans, the command line and the contract's tests know those that stand here."""
DEFAULT_SAMPLER = next(iter(SAMPLERS))
"""Where nobody names one."""
CONSTRUCTORS = {make.__name__: make for _, make in _REGISTRY}
"""The functions that make samplers, as users call them: `consilience.dula(…)`."""

__all__ = [
    "CONSTRUCTORS",
    "DEFAULT_SAMPLER",
    "DULA",
    "HMC",
    "NUTS",
    "SAMPLERS",
    "SGHMC",
    "Coordinates",
    "Corrected",
    "CorrectedLangevin",
    "Finding",
    "Gossip",
    "Kinetic",
    "Landscape",
    "Leaf",
    "Mixing",
    "Option",
    "Sampler",
    "SpeaksFirst",
    "SpeaksLast",
    "Suggestion",
    "Unison",
    *CONSTRUCTORS,
]
