"""The life of a run, and what it leaves on disk: draws, metrics, checkpoints, provenance, summary."""

from consilience.runs.directory import RunDirectory

__all__ = ["RunDirectory"]
