"""What a report says about a study: its formula, the columns that all sites agreed on, and all priors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from consilience.reports.page import Section
from consilience.reports.tables import Table
from consilience.runs import RunDirectory
from consilience.studies.priors import Prior


def study_sections(run: RunDirectory) -> list[Section]:
    """Of a run that samples a study; nothing of others."""
    study = run.plan.study
    if study is None:
        return []
    priors = tuple((name, str(Prior(**entries))) for name, entries in study.get("priors", {}).items())
    columns = tuple(
        (name, str(kind["kind"]), _described(kind)) for name, kind in study["codebook"]["columns"].items()
    )
    return [
        Section(
            "The model",
            f"{study['formula']}, {study['family']}. These priors held at all sites; those that the study does not "
            "name come from the codebook's scales, never from anybody's rows.",
            table=Table(("parameter", "prior"), priors),
        ),
        Section(
            "The codebook",
            "What the columns are at every site. A number enters the formula as its difference from the centre, in "
            "units of the scale, so its coefficient is for a difference of one scale.",
            table=Table(("column", "kind", "what it says"), columns),
        ),
    ]


def _described(kind: Mapping[str, Any]) -> str:
    """A column of a codebook in words.

    >>> _described({"kind": "number", "unit": "years", "low": 18.0, "centre": 64.0, "scale": 10.0})
    'centre 64 years, scale 10 years, at least 18 years'
    """
    if kind["kind"] == "outcome":
        return f"{kind['one']} counts as 1, {kind['zero']} as 0"
    if kind["kind"] == "category":
        reference = kind.get("reference") or kind["levels"][0]
        return f"{', '.join(kind['levels'])}; compared with {reference}"
    unit = f" {kind['unit']}" if kind.get("unit") else ""
    words = {"centre": "centre", "scale": "scale", "low": "at least", "high": "at most"}
    return ", ".join(f"{word} {kind[name]:g}{unit}" for name, word in words.items() if kind.get(name) is not None)
