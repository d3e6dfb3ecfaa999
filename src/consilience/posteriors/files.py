"""The files of posteriors: inside the package, or below `$CONSILIENCE_DATA` if they are large."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from consilience.datasets.files import DataFile, find, obtain

LARGE = {
    "diamonds-diamonds": DataFile(
        "posteriordb/diamonds-diamonds.json",
        "sha256:88c734ba79e4fb87b707485718606ec771e64de650c79fca93e63710ac25932d",
        None,
        398_507,
    )
}
"""Posteriors whose files are not inside the package."""


def is_here(name: str) -> bool:
    """Whether a posterior's file can be read."""
    return name not in LARGE or find([LARGE[name]]) is not None


def read(name: str) -> Mapping[str, Any]:
    """The content of a posterior's file."""
    if name in LARGE:
        place, _ = obtain([LARGE[name]])
        return json.loads(place.read_text("utf-8"))
    return json.loads((files("consilience.posteriors") / "data" / f"{name}.json").read_text("utf-8"))
