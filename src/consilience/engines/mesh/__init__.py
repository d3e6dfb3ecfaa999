"""The engine `mesh`: agents spread over the devices of one host or many, by JAX's own distributed runtime."""

from consilience.engines.mesh.devices import MeshSettings
from consilience.engines.mesh.engine import Mesh, own_agents

__all__ = ["Mesh", "MeshSettings", "own_agents"]
