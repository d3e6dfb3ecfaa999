"""Small files that are either old or new, never half written; and disk errors in plain words."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from consilience.errors import RunError, StorageError

_CANNOT_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EBADF)


def write_text(path: Path, text: str) -> None:
    """Replace a file as a whole."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Replace a file of bytes as a whole; it is on the disk, not only in memory, when this returns."""
    temporary = path.with_name(path.name + ".partial")
    with temporary.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(temporary, path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Have a file, or the names in a directory, on the disk, so that a power cut does not undo them."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if not path.is_dir() or error.errno not in _CANNOT_SYNC:  # not every file system can sync a directory
            raise
    finally:
        os.close(descriptor)


def sync_since(directory: Path, moment: float) -> None:
    """Have all files of a directory on the disk that were changed since a moment, and their names.

    Another process may be replacing files meanwhile: those it syncs itself.
    """
    for folder, _, files in os.walk(directory):
        changed = 0
        for name in files:
            path = Path(folder, name)
            with contextlib.suppress(FileNotFoundError):
                if path.suffix != ".partial" and path.stat().st_mtime >= moment:
                    sync(path)
                    changed += 1
        if changed:
            sync(Path(folder))


def write_json(path: Path, value: Any) -> None:
    """Replace a JSON file as a whole."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """The content of a JSON file of a run."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunError(f"{path.parent} has no {path.name}: it does not hold a (complete) run") from None
    except json.JSONDecodeError as error:
        raise RunError(f"{path} is damaged: {error}") from None


def _remedy(error: OSError) -> str:
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "let this user write there, or choose another directory"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "free some space or choose another directory"
    return "choose another directory"


@contextlib.contextmanager
def disk_errors(path: Path, kept: str = "") -> Iterator[None]:
    """Turn the operating system's refusal to write below `path` into a `StorageError`."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise StorageError(f"cannot write to {path}: {reason}; {_remedy(error)}.{kept}") from error
