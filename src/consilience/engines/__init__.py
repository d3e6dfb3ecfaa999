"""Where sampling happens: engines differ only in how the neighbours' values arrive."""

from consilience.engines.base import Engine, Segment
from consilience.engines.mesh import Mesh, MeshSettings
from consilience.engines.simulate import Simulation

ENGINES: dict[str, type[Engine]] = {"simulate": Simulation, "mesh": Mesh}

__all__ = ["ENGINES", "Engine", "Mesh", "MeshSettings", "Segment", "Simulation"]
