"""What `consilience theory` leaves on disk: `theory.json`, figures and a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from consilience.assessments import Assessment
from consilience.reports.theory_report import write_theory_page
from consilience.reports.theory_tables import described
from consilience.runs.directory import require_free
from consilience.runs.files import disk_errors, write_json


def write_theory(
    assessment: Assessment, tolerance: float, comparisons: Sequence[Any], directory: Path
) -> tuple[dict[str, Any], Path]:
    """Write the page about an assessment into a new directory, and return its plain values and the page's path."""
    require_free(directory)
    values = described(assessment, tolerance, comparisons)
    with disk_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
        write_json(directory / "theory.json", values)
    plans = {"plan.toml": assessment.plan.to_toml()}
    if assessment.proven is not None:
        plans["nearest plan inside the theorems"] = assessment.proven.plan.to_toml()
    return values, write_theory_page(values, directory, plans)
