"""Entries of plans, samplers and settings are checked here; a mistake comes back as one line."""

from consilience.validation.records import Record

__all__ = ["Record"]
