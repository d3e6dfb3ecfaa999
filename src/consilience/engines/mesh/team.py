"""The processes of a mesh: who is the first, and how they agree before and between segments.

JAX's runtime connects them; all that is exchanged here is a few numbers at a time, by `process_allgather`. A mistake
that one process finds (a bad shard, a full disk) is told to all, so that all stop with the same words.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import jax
import numpy as np

from consilience import errors
from consilience.engines.mesh.joining import place
from consilience.engines.mesh.rendezvous import HEARTBEAT_SECONDS
from consilience.errors import MeshError, ProcessLostError

_LETTERS = 600
T = TypeVar("T")


class ProcessTeam:
    """All processes of this JAX runtime; one alone agrees with itself without any exchange."""

    def __init__(self) -> None:
        self.index, self.size = place()

    @property
    def is_first(self) -> bool:
        """Whether this process lays out the run, writes its small files and shows progress."""
        return self.index == 0

    def gather(self, values: np.ndarray) -> np.ndarray:
        """`(processes, …)` everybody's values, which must have the same shape everywhere."""
        values = np.atleast_1d(values)
        if self.size == 1:
            return values[None]
        from jax.experimental import multihost_utils

        words = np.ascontiguousarray(values).view(np.uint8)  # bytes travel unchanged, whatever precision JAX allows
        return np.asarray(multihost_utils.process_allgather(words)).view(values.dtype).reshape(-1, *values.shape)

    def stop_together(self, error: BaseException | None = None) -> None:
        """Raise if any process has an error: its own there, elsewhere one that names the process and its words."""
        if self.size == 1:
            if error is not None:
                raise error
            return
        text = "" if error is None else f"{type(error).__name__}: {error}"
        told = np.zeros(_LETTERS, np.uint8)
        encoded = np.frombuffer(text.encode()[:_LETTERS], np.uint8)
        told[: len(encoded)] = encoded
        everybody = self.gather(told)
        if error is not None:
            raise error
        for process, letters in enumerate(everybody):
            if letters.any():
                words = bytes(letters).rstrip(b"\0").decode(errors="replace")
                name, _, said = words.partition(": ")
                kind = getattr(errors, name, None)
                raise (
                    kind(f"process {process} stopped: {said}")
                    if kind
                    else MeshError(f"process {process} stopped: {words}")
                )

    def require_same(self, what: str, digest: bytes, remedy: str) -> None:
        """Check that every process has the same digest of something."""
        everybody = self.gather(np.frombuffer(digest, np.uint8))
        others = [process for process, own in enumerate(everybody) if (own != everybody[0]).any()]
        if others:
            names = ", ".join(map(str, others))
            raise MeshError(f"process {names} has {what} than process 0: {remedy}")

    @contextlib.contextmanager
    def watched(self, resume_command: str) -> Iterator[None]:
        """While it lasts, an error that came from talking to other processes is told as the loss of one."""
        try:
            yield
        except Exception as error:
            if self.size == 1 or not is_of_connection(error):
                raise
            time.sleep(2 * HEARTBEAT_SECONDS)  # the runtime finds out who was lost, and ends this process by itself
            raise ProcessLostError(
                f"the connection to another process was lost; start all again with: {resume_command}"
            ) from error

    def attempt(self, action: Callable[[], T]) -> T:
        """What a function returns that may fail in one process alone; all stop if it does."""
        try:
            made = action()
        except Exception as error:  # also what is no mistake of the user's: the others must not wait for ever
            self.stop_together(error)
            raise
        self.stop_together()
        return made


def together(action: Callable[[], T]) -> T:
    """`ProcessTeam.attempt` for whoever has no team yet."""
    return ProcessTeam().attempt(action)


def is_of_connection(error: BaseException | None) -> bool:
    """Whether an error, or any that led to it, came from talking to other processes.

    JAX raises some of these as its own kind and some as plain ones; those name the library that talks.
    """
    while error is not None:
        if isinstance(error, jax.errors.JaxRuntimeError) or "Gloo" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False
