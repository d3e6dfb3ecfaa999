"""What a run leaves on disk: draws, metrics, checkpoints, provenance, summary."""

from consilience.runs.checkpoints import Checkpoints
from consilience.runs.directory import RunDirectory
from consilience.runs.growing import GrowingGroup

__all__ = ["Checkpoints", "GrowingGroup", "RunDirectory"]
