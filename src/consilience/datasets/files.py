"""Files of data sets: where they are looked for, how they are checked, and where they come from.

A file is looked for in `$CONSILIENCE_DATA`, then in the user's cache, and then downloaded into the cache from the
data set's public home. Whatever is found is checked against its checksum before it is read.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from consilience.errors import DataError

DIRECTORY_VARIABLE = "CONSILIENCE_DATA"


class DataFile(NamedTuple):
    """One file of a data set."""

    path: str
    """Where it stands below a data directory, such as `mnist/train-images-idx3-ubyte.gz`."""
    checksum: str
    """`sha256:…` or `md5:…`."""
    url: str | None
    """Where it can be downloaded; `None` if nowhere."""
    size: int
    """Bytes, for people."""


def cache_directory() -> Path:
    """The user's cache for data sets."""
    import pooch

    return Path(pooch.os_cache("consilience"))


def directories() -> list[Path]:
    """Where files are looked for, in order."""
    given = os.environ.get(DIRECTORY_VARIABLE)
    return [*([Path(given)] if given else []), cache_directory()]


def find(versions: Sequence[DataFile]) -> tuple[Path, DataFile] | None:
    """The first version of a file that is there, checked; `None` if none is."""
    for directory in directories():
        for file in versions:
            place = directory / file.path
            if place.is_file():
                _require_checksum(place, file)
                return place, file
    return None


def obtain(versions: Sequence[DataFile], show: Callable[[str], None] = lambda _: None) -> tuple[Path, DataFile]:
    """A file, found or downloaded.

    Args:
        versions: the same file with different checksums, the preferred first; only that one is downloaded.
        show: called with words before a download.
    """
    found = find(versions)
    if found is not None:
        return found
    file = versions[0]
    if file.url is None:
        raise DataError(f"{file.path} is not there: {_remedy(file)}")
    show(f"downloading {file.path} ({file.size / 1e6:.1f} MB)")
    return _download(file), file


def _download(file: DataFile) -> Path:
    import pooch

    place = cache_directory() / file.path
    try:
        pooch.retrieve(file.url, known_hash=file.checksum, fname=place.name, path=place.parent, progressbar=False)
    except ValueError as error:  # what arrived has another checksum; nothing is kept
        raise DataError(f"{file.url} sent another file than expected ({error}): {_remedy(file)}") from None
    except Exception as error:
        raise DataError(
            f"{file.path} is not there and cannot be downloaded ({_reason(error)}): {_remedy(file)}"
        ) from None
    return place


def _reason(error: Exception) -> str:
    return type(error).__name__ if len(str(error)) > 200 else f"{type(error).__name__}: {error}"


def _remedy(file: DataFile) -> str:
    where = os.environ.get(DIRECTORY_VARIABLE)
    source = f" from {file.url}" if file.url else ""
    if where:
        return f"put it{source} at {Path(where) / file.path}"
    return f"get it{source}, put it at DIRECTORY/{file.path}, and set {DIRECTORY_VARIABLE}=DIRECTORY"


def _require_checksum(place: Path, file: DataFile) -> None:
    kind, _, expected = file.checksum.partition(":")
    digest = hashlib.new(kind)
    try:
        with place.open("rb") as stream:
            while block := stream.read(2**20):
                digest.update(block)
    except OSError as error:
        raise DataError(f"{place} cannot be read: {error}") from None
    if digest.hexdigest() != expected:
        raise DataError(
            f"{place} is not the file it should be ({kind} {digest.hexdigest()[:12]}…, expected {expected[:12]}…; "
            f"{place.stat().st_size:,} bytes, expected {file.size:,}): remove it and get it again"
            + (f" from {file.url}" if file.url else "")
        )
