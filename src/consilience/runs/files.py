"""Small files that are either old or new, never half written; and disk errors in plain words."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from consilience.errors import RunError, StorageError


def write_text(path: Path, text: str) -> None:
    """Replace a file as a whole."""
    temporary = path.with_name(path.name + ".partial")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


def write_bytes(path: Path, content: bytes) -> None:
    """Replace a file of bytes as a whole."""
    temporary = path.with_name(path.name + ".partial")
    temporary.write_bytes(content)
    os.replace(temporary, path)


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


@contextlib.contextmanager
def disk_errors(path: Path, kept: str = "") -> Iterator[None]:
    """Turn the operating system's refusal to write below `path` into a `StorageError`."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise StorageError(
            f"cannot write to {path}: {reason}; free some space or choose another directory.{kept}"
        ) from error
