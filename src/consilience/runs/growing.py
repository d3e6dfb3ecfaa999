"""Arrays that grow along one dimension while sampling, and are never seen half written.

A Zarr store on disk, with the arrays in its root or in one group. Every array is created with its final shape; what
readers see is decided by the store's consolidated metadata, one small file that is replaced as a whole after new
entries have been written to all arrays. So `xarray.open_zarr` and `xarray.open_datatree` find arrays of equal length
that hold only finished entries, at any moment and after any crash.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.errors import RunError
from consilience.runs.files import write_text

if TYPE_CHECKING:
    import zarr

_CHUNK_BYTES = 2**18  # appending rewrites the last chunk, so chunks are small beside a segment


@dataclass(frozen=True)
class Variable:
    """An array of the group: its dimensions and the size of each; the growing one has its final size."""

    dimensions: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: Any
    chunked: Mapping[str, int] = field(default_factory=dict)
    """Dimensions that are cut into chunks too, and how many entries stand in each: writers of different ones need not
    wait for each other."""


class GrowingGroup:
    """Arrays in a Zarr store, or in a group of it, that grow along `dimension` by `append`."""

    def __init__(self, path: Path, dimension: str, group: str = "") -> None:
        import zarr

        self.path, self.dimension, self.group = path, dimension, group
        self._group = zarr.open_group(path / group, mode="r+", use_consolidated=False)
        self._arrays: dict[str, zarr.Array] = dict(sorted(self._group.arrays()))
        document = _read_document(path)
        described = document.get("consolidated_metadata") or {}
        self._document = {key: value for key, value in document.items() if key != "consolidated_metadata"}
        self._described = {name: _read_document(path / group / name) for name in self._arrays}
        self.length = next(
            (
                entry["shape"][entry["dimension_names"].index(dimension)]
                for entry in described.get("metadata", {}).values()
                if dimension in entry.get("dimension_names", ())
            ),
            0,
        )
        self.written = self.length

    @classmethod
    def create(
        cls,
        path: Path,
        dimension: str,
        variables: Mapping[str, Variable],
        fixed: Mapping[str, tuple[tuple[str, ...], np.ndarray]],
        attributes: Mapping[str, Any],
        group: str = "",
    ) -> GrowingGroup:
        """A new store with the given growing variables, fixed arrays and attributes in its root or a group."""
        import zarr

        root = zarr.create_group(path, attributes={} if group else dict(attributes))
        place = root.create_group(group, attributes=dict(attributes)) if group else root
        for name, variable in variables.items():
            axis = variable.dimensions.index(dimension)
            chunks = [
                variable.chunked.get(name, size)
                for name, size in zip(variable.dimensions, variable.shape, strict=True)
            ]
            entry_bytes = np.dtype(variable.dtype).itemsize * int(
                np.prod([size for i, size in enumerate(chunks) if i != axis])
            )
            chunks[axis] = max(1, min(chunks[axis], _CHUNK_BYTES // entry_bytes))
            place.create_array(
                name,
                shape=variable.shape,
                chunks=tuple(chunks),
                dtype=variable.dtype,
                fill_value=np.nan if np.issubdtype(variable.dtype, np.floating) else 0,
                dimension_names=variable.dimensions,
                compressors=None,  # noise does not compress; reading and writing stay fast
            )
        for name, (dimensions, values) in fixed.items():
            array = place.create_array(
                name, shape=values.shape, dtype=values.dtype, dimension_names=dimensions, compressors=None
            )
            array[...] = values
        made = cls(path, dimension, group)
        made.commit(0)
        return made

    def append(self, values: Mapping[str, np.ndarray]) -> None:
        """Add entries to all growing arrays, then show them to readers."""
        self.write(values)
        if self.written > self.length:
            self.commit(self.written)

    def write(
        self, values: Mapping[str, np.ndarray], within: Mapping[str, slice] | None = None, added: int = 0
    ) -> None:
        """Add entries that readers do not see before `commit`.

        `within` says which part of other dimensions the values are for, if they are not for all of it; `added` how
        many entries there are, where there may be no values because somebody else writes them.
        """
        for name, new in values.items():
            dimensions = self._described[name]["dimension_names"]
            place = [(within or {}).get(dimension, slice(None)) for dimension in dimensions]
            added = new.shape[self._axis(name)]
            place[self._axis(name)] = slice(self.written, self.written + added)
            if added:
                self._arrays[name][tuple(place)] = new
        self.written += added

    def commit(self, length: int) -> None:
        """Make the first `length` entries what readers see; a shorter length forgets the rest."""
        metadata = {}
        for name, entry in self._described.items():
            shown = dict(entry)
            if self.dimension in shown["dimension_names"]:
                shape = list(shown["shape"])
                shape[self._axis(name)] = length
                shown["shape"] = shape
            metadata[f"{self.group}/{name}" if self.group else name] = shown
        if self.group:
            metadata[self.group] = _read_document(self.path / self.group)
        consolidated = {"kind": "inline", "must_understand": False, "metadata": metadata}
        write_text(self.path / "zarr.json", json.dumps({**self._document, "consolidated_metadata": consolidated}))
        if length < self.length:
            self.written = length
        self.length = length

    def require_whole(self) -> None:
        """Check that no file with entries that readers see has vanished; Zarr would read them as missing values.

        Chunks of zeros are not stored, so only arrays whose missing values are not a number can be checked.
        """
        for name, entry in self._described.items():
            if entry["fill_value"] != "NaN" or self.dimension not in entry["dimension_names"]:
                continue
            sizes = entry["chunk_grid"]["configuration"]["chunk_shape"]
            shape = [*entry["shape"]]
            shape[self._axis(name)] = self.length
            for place in np.ndindex(*(-(-size // chunk) for size, chunk in zip(shape, sizes, strict=True))):
                file = self.path.joinpath(self.group, name, "c", *map(str, place))
                if not file.is_file():
                    gone = ", ".join(
                        f"{dimension} {number * chunk} to {min((number + 1) * chunk, size) - 1}"
                        for dimension, number, chunk, size in zip(
                            entry["dimension_names"], place, sizes, shape, strict=True
                        )
                    )
                    raise RunError(
                        f"the file {file} is missing, and with it {name} of {gone}: restore it from a copy, or start "
                        "a new run"
                    )

    def _axis(self, name: str) -> int:
        return list(self._described[name]["dimension_names"]).index(self.dimension)


def _read_document(path: Path) -> dict[str, Any]:
    try:
        return json.loads((path / "zarr.json").read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        raise RunError(f"{path} is not a readable Zarr group") from None
