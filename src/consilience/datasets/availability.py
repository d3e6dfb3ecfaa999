"""Which data sets are here, and how to get those that are not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from consilience.datasets.files import find, obtain
from consilience.datasets.registry import DATASETS, find_dataset
from consilience.errors import DataError


def availability() -> list[dict[str, Any]]:
    """A row for each data set: name, title, terms, size, and whether its files are here (or what is wrong)."""
    rows = []
    for one in DATASETS.values():
        size = sum(versions[0].size for versions in one.files.values())
        rows.append(
            {"name": one.name, "title": one.title, "terms": one.terms, "bytes": size, "here": _here(one.name)}
        )
    return rows


def fetch(names: Sequence[str], show: Callable[[str], None] = lambda _: None) -> list[str]:
    """Find or download the files of some data sets (`all` for every one), and return where they are."""
    wanted = list(DATASETS) if list(names) == ["all"] else list(names)
    sets = [find_dataset(name) for name in wanted]
    return [str(obtain(versions, show)[0]) for one in sets for versions in one.files.values()]


def _here(name: str) -> str:
    files = DATASETS[name].files
    try:
        found = [find(versions) for versions in files.values()]
    except DataError:
        return "damaged"
    if all(place is not None for place in found):
        return "yes"
    return "in part" if any(place is not None for place in found) else "no"
