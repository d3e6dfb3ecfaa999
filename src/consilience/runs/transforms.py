"""Functions of draws that a user wants to see instead of them: a ratio for a logarithm, a variance for a scale."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from consilience.errors import InputError

Function = Callable[[np.ndarray], Any]
Transform = Function | Mapping[str, Function] | None


class Entry(NamedTuple):
    """The draws of one scalar parameter."""

    parameter: str
    label: str
    ratio: str | None
    """What its exponential is called, if people want to see that."""
    derived: bool
    values: np.ndarray
    """`(chains, draws)`, or `(chains, agents, draws)` where each agent has its own and they are alike."""
    agent: int | None
    """Whose it is, if it is one agent's."""


class Functions:
    """What is done to draws before they are described, and whether every function found its parameter."""

    def __init__(self, transform: Transform) -> None:
        if not (transform is None or callable(transform) or isinstance(transform, Mapping)):
            raise InputError(
                f"transform is a {type(transform).__name__}: give a function of draws, such as np.exp, or a "
                'dictionary of functions by parameter, {"coefficients": np.exp}'
            )
        self.transform = transform
        self.used: set[str] = set()
        self.known: dict[str, None] = {}

    def applied(self, entry: Entry) -> Entry:
        """An entry after its function, if it has one."""
        function = self._of(entry)
        if function is None:
            return entry
        found = np.asarray(function(entry.values), float)
        if found.shape != entry.values.shape:
            raise InputError(
                f"the function for {entry.label} returns the shape {found.shape} for draws {entry.values.shape}: it "
                "must give one number for each"
            )
        return entry._replace(values=found, ratio=None)

    def _of(self, entry: Entry) -> Function | None:
        if not isinstance(self.transform, Mapping):
            return self.transform
        for name in (entry.label, entry.parameter, entry.parameter.partition("[")[0]):
            self.known[name] = None
        for name in (entry.label, entry.parameter, entry.parameter.partition("[")[0]):
            if name in self.transform:
                self.used.add(name)
                return self.transform[name]
        return None

    def require_used(self) -> None:
        """Check that no function was for a parameter that is not there."""
        if isinstance(self.transform, Mapping) and (unknown := set(self.transform) - self.used):
            raise InputError(
                f"transform names {sorted(unknown)[0]!r}, which is no parameter: there are {', '.join(self.known)}"
            )
