"""A run that several processes sample together: one directory, one store, one set of checkpoints."""

from consilience.engines.mesh.joining import is_alone, is_first, part
from consilience.engines.mesh.team import together
from consilience.teamwork.data import largest_curvature, own_problem, require_same_data
from consilience.teamwork.directory import create, held
from consilience.teamwork.sampling import TeamSampling, restore

__all__ = [
    "TeamSampling",
    "create",
    "held",
    "is_alone",
    "is_first",
    "largest_curvature",
    "own_problem",
    "part",
    "require_same_data",
    "restore",
    "together",
]
