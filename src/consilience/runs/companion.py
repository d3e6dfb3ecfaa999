"""What goes along with the life of a run, beside making steps: nothing, or a node's part in its network."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from consilience.runs.directory import RunDirectory


class Companion(Protocol):
    """Called at the turns of a run's life."""

    resume_command: str
    """What to say to the shell to resume the run."""

    def taking_part(self, run: RunDirectory, state: Any, step: int) -> AbstractContextManager[None]:
        """Around sampling and finishing, from the state and step at which the run stands."""

    def before_checkpoint(self, step: int) -> None:
        """Called before a checkpoint is written, and at the end of the run."""

    def after_checkpoint(self, step: int) -> None:
        """Called when a checkpoint is safe."""


class NoCompanion:
    """A run that goes alone."""

    def __init__(self, resume_command: str) -> None:
        self.resume_command = resume_command

    def taking_part(self, run: RunDirectory, state: Any, step: int) -> AbstractContextManager[None]:
        """Nothing surrounds it."""
        return contextlib.nullcontext()

    def before_checkpoint(self, step: int) -> None:
        """There is nothing to keep."""

    def after_checkpoint(self, step: int) -> None:
        """There is nobody to tell."""
