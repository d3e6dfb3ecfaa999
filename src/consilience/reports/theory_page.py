"""What the theory leaves on disk: a directory of its own with `theory.json` and a page, from plain values alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from consilience.reports.theory_report import write_theory_page
from consilience.runs.directory import require_free
from consilience.runs.files import disk_errors, write_json


def write_theory(values: Mapping[str, Any], plans: Mapping[str, str], directory: Path) -> Path:
    """Write what was found about a plan into a new directory, and return the page's path.

    Args:
        values: an assessment in plain values.
        plans: the plans it is about, as TOML documents by title.
        directory: the new directory.
    """
    require_free(directory)
    with disk_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
        write_json(directory / "theory.json", values)
    return write_theory_page(values, directory, plans)
