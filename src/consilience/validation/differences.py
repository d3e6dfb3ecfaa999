"""In which entries two documents differ, by their full names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def differing(mine: Mapping[str, Any], theirs: Mapping[str, Any], within: str = "") -> list[str]:
    """The names of entries in which two nested mappings differ; what only the other has is counted, not named.

    >>> differing({"a": 1, "b": {"c": 2, "d": 3}}, {"a": 1, "b": {"c": 2, "d": 4}, "e": 5})
    ['b.d', '1 entry more']
    """
    found = []
    for name, value in mine.items():
        full, other = f"{within}{name}", theirs.get(name)
        if isinstance(value, Mapping) and isinstance(other, Mapping):
            found += differing(value, other, f"{full}.")
        elif value != other:
            found.append(full)
    more = sum(theirs[name] is not None for name in theirs if name not in mine)
    if more:
        counted = "1 entry more" if more == 1 else f"{more} entries more"
        found.append(f"{counted} in {within.removesuffix('.')}" if within else counted)
    return found
