"""The draws of a run so far, read once each: of long runs every second one, every fourth one, and so on.

A page looks every second at draws that grow. What was read is kept, only what is new is read, and never more than a
few thousand draws of a chain are held: when there are more, every other one is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray

from consilience.runs.directory import RunDirectory
from consilience.runs.names import Names
from consilience.runs.posterior import evenly

MOST_DRAWS = 4000
"""Of each chain, how many are held at most."""
MOST_AGENTS = 32
_MOST_BYTES = 2**28
Entry = tuple[str, tuple[int, ...]]
"""A variable and a place in it."""


class Line(NamedTuple):
    """The draws of one number at one agent."""

    agent: int | None
    """`None`: all agents have the same."""
    values: np.ndarray
    """`(chains, draws)`."""
    weights: np.ndarray
    steps: np.ndarray


class History:
    """The draws of one run, of the entries that are looked at.

    Args:
        path: the run's directory.
        in_unison: whether draws count only since agents were last lost or came back.
    """

    def __init__(self, path: Path, in_unison: bool = False) -> None:
        self.path, self.in_unison = path, in_unison
        self.length = 0
        """How many draws the run has."""
        self.names: Names | None = None
        self.entries: list[Entry] = []
        """All numbers of the model, in its order."""
        self.agents: list[int] = []
        """Those whose draws are read."""
        self.num_agents = 0
        """How many have draws of their own in this run."""
        self.every = 1
        self._kept: dict[str, np.ndarray] = {}
        self._places: dict[str, list[tuple[int, ...]]] = {}
        self._read = 0  # up to here, in the run's draws
        self._coordinates: dict[str, np.ndarray] = {}
        self._stamp: tuple[int, int] | None = None
        self._where = np.zeros(0, int)
        self._with_agents: dict[str, bool] = {}

    def refresh(self, wanted: Sequence[Entry] = ()) -> None:
        """Read what is new, of the entries that were wanted before and of those that are wanted now."""
        file = (self.path / "draws.zarr" / "zarr.json").stat()
        stamp = (file.st_mtime_ns, file.st_ino)
        if stamp == self._stamp and not self._unknown(wanted):
            return
        draws = xarray.open_zarr(self.path / "draws.zarr", group="posterior", consolidated=True, chunks=None)
        if self.names is None:
            self._learn(draws)
        new = self._unknown(wanted)
        if new or draws.sizes["draw"] < self._read:  # a resumed run is cut back to its checkpoint
            for name, place in new:
                self._places.setdefault(name, []).append(place)
            self._kept, self._coordinates, self._read, self.every = {}, {}, 0, 1
        self.length = draws.sizes["draw"]
        self._take(draws)
        self._stamp = stamp

    def _unknown(self, wanted: Sequence[Entry]) -> list[Entry]:
        """Those of some entries that the model has and that are not read yet."""
        known = set(self.entries)
        return [one for one in wanted if one in known and one[1] not in self._places.get(one[0], ())]

    def _learn(self, draws: xarray.Dataset) -> None:
        self.names = Names.of(draws)
        numbers = draws["agent"].to_numpy() if "agent" in draws.dims else np.zeros(0, int)
        order, self.num_agents = np.argsort(numbers), len(numbers)
        self._where = order[evenly(len(order), MOST_AGENTS)] if len(order) else order
        self.agents = [int(one) for one in numbers[self._where]]
        for name in draws.attrs["parameters"]:
            variable = draws[name]
            self._with_agents[name] = "agent" in variable.dims
            shape = variable.shape[3:] if self._with_agents[name] else variable.shape[2:]
            self.entries += [(name, place) for place in np.ndindex(*shape)]

    def _take(self, draws: xarray.Dataset) -> None:
        """Append what is new, thinned, and thin further if it has become too much."""
        used = {name: places for name, places in self._places.items() if places}
        each = sum(draws[name].nbytes for name in used) / max(1, self.length)
        while (self.length - self._read) / self.every * each > _MOST_BYTES or self.length / self.every > MOST_DRAWS:
            self._thin()
        first = -(-self._read // self.every) * self.every
        part = draws.isel(draw=slice(first, None, self.every))
        for name, places in used.items():
            values: Any = part[name].to_numpy()
            if self._with_agents[name]:
                values = values[:, self._where]
            found = np.stack([np.asarray(values[(..., *place)], float) for place in places])
            self._kept[name] = np.concatenate([self._kept[name], found], -1) if name in self._kept else found
        for name in ("step", "weight", "step_size", "participation"):
            if name in draws.coords:
                new = part[name].to_numpy()
                new = new[0] if new.ndim == 3 else new
                old = self._coordinates.get(name)
                self._coordinates[name] = new if old is None else np.concatenate([old, new])
        self._read = self.length

    def _thin(self) -> None:
        self.every *= 2
        self._kept = {name: values[..., ::2] for name, values in self._kept.items()}
        self._coordinates = {name: values[::2] for name, values in self._coordinates.items()}

    def lines(self, entry: Entry) -> list[Line]:
        """The draws of an entry, at each agent that has its own."""
        name, place = entry
        if name not in self._kept or place not in self._places[name]:
            return []
        since = self._since()
        values = self._kept[name][self._places[name].index(place)][..., since:]
        steps, weights = self.steps[since:], self._weights()[since:]
        if not self._with_agents[name]:
            return [Line(None, values, weights, steps)]
        own = [Line(agent, values[:, i], weights, steps) for i, agent in enumerate(self.agents)]
        return [one for one in own if np.isfinite(one.values).all()]  # agents may have fewer private ones than others

    def _since(self) -> int:
        """The first draw of the posterior that is sampled now."""
        members = self.participation
        if members is None or not self.in_unison or not len(members):
            return 0
        others = np.flatnonzero((members != members[-1:]).any(1))
        return int(others[-1]) + 1 if len(others) else 0

    @property
    def steps(self) -> np.ndarray:
        """After how many steps each draw that is held was taken."""
        return self._coordinates.get("step", np.zeros(0, int))

    @property
    def participation(self) -> np.ndarray | None:
        """`(draws, members)` whose data counted, if that is known; of several merged nodes, at the first."""
        return self._coordinates.get("participation")

    def _weights(self) -> np.ndarray:
        return self._coordinates.get("weight", self._coordinates.get("step_size", np.ones(len(self.steps))))


def metrics_of(run: RunDirectory) -> xarray.Dataset | None:
    """What was measured over time, if anything was."""
    if not (run.path / "metrics.zarr" / "zarr.json").is_file():
        return None
    found = run.metrics
    return found if found.sizes.get("time") else None
