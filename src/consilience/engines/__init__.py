"""Where sampling happens: engines differ only in how the neighbours' values arrive."""

from consilience.engines.base import Engine, Segment
from consilience.engines.simulate import Simulation

ENGINES: dict[str, type[Engine]] = {"simulate": Simulation}

__all__ = ["ENGINES", "Engine", "Segment", "Simulation"]
