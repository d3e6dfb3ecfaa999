"""What the theory leaves on disk: a page of its own with `theory.json`, or `theory.json` in a run's directory."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from consilience.assessments import Assessment, assess_run
from consilience.errors import ProblemError
from consilience.problems import Problem
from consilience.reports.theory_report import write_theory_page
from consilience.reports.theory_tables import TOLERANCE, described
from consilience.runs import RunDirectory
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


def write_run_theory(run: RunDirectory, problem: Problem) -> None:
    """Hold a finished run against the theory; the run is complete whether or not there is an answer for it."""
    try:
        values = described(assess_run(run, problem), TOLERANCE)
    except ProblemError as error:  # it is too large, or not known well enough
        logging.getLogger("consilience").info("no theory for this run: %s", error)
        return
    except Exception as error:  # a run must not fail for it
        logging.getLogger("consilience").warning("the theory failed for this run: %r", error)
        return
    with disk_errors(run.path):
        write_json(run.path / "theory.json", values)
