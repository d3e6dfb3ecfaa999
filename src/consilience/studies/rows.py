"""A site's file as the arrays of its rows: design, outcome, and what the family needs besides.

x        (rows, coefficients)   of what is shared
z        (rows, effects)        of the site's own effects, if there are any
y        (rows,)                the outcome; of two values, 1 or 0
trials, offset  (rows,)         of binomial; of families with an exposure, its logarithm
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from consilience.errors import DataError, ProblemError
from consilience.studies.checking import Columns, read_columns
from consilience.studies.codebook import Codebook
from consilience.studies.designs import INTERCEPT
from consilience.studies.families import require_counts
from consilience.studies.files import column_names, read_table

if TYPE_CHECKING:
    from consilience.studies.study import Study

log = logging.getLogger("consilience")
Rows = dict[str, np.ndarray]


def site_rows(study: Study, path: str | Path) -> Rows:
    """The arrays of one site's rows; refused if the file does not fit the codebook."""
    if study.unfilled:
        raise DataError(
            f"the codebook's {', '.join(study.unfilled)} are still to come from the sites: fill them first"
        )
    found = read_columns(path, study.codebook, study.used_columns)
    if found.num_dropped:
        log.warning("%s: %d rows with missing values are left out", path, found.num_dropped)
    try:
        return _with_outcome(study, found)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


def new_rows(study: Study, path: str | Path) -> Rows:
    """The arrays of rows to predict, in the file's order; without `y` where the outcome is not known.

    A value that is missing in another column is refused: there is nothing to predict from.
    """
    outcome = study.parsed.outcome
    names = [name for name in study.used_columns if name != outcome]
    codebook = Codebook(missing="refuse", columns=study.codebook.columns)
    found = read_columns(path, codebook, names) if names else Columns({}, len(read_table(path)), 0)
    try:
        rows = _predictors(study, found)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    if outcome in column_names(path) and not read_table(path, [outcome])[outcome].isna().any():
        rows["y"] = read_columns(path, codebook, [outcome]).values[outcome].astype(np.float64)
    return rows


def require_varying(labels: Sequence[str], sites: Sequence[Rows]) -> None:
    """Refuse a column of the design that is the same in all rows of all sites."""
    low = np.min([site["x"].min(0) for site in sites], 0)
    high = np.max([site["x"].max(0) for site in sites], 0)
    for label, least, most in zip(labels, low, high, strict=True):
        if label != INTERCEPT and least == most and sum(len(site["y"]) for site in sites) > 1:
            raise ProblemError(
                f"{label!r} is the same in all rows of all files: nothing can be learnt about its coefficient; "
                "remove it from the formula, or a level that nobody has from the codebook"
            )


def _with_outcome(study: Study, found: Columns) -> Rows:
    outcome = study.parsed.outcome
    rows = {**_predictors(study, found), "y": found.values[outcome].astype(np.float64)}
    if study.family_of.outcome == "count":
        require_counts(outcome, rows["y"])
    if study.trials is not None and (more := int((rows["y"] > rows["trials"]).sum())):
        raise DataError(f"{outcome} is above {study.trials} in {more:,} rows: are they exchanged?")
    return rows


def _predictors(study: Study, found: Columns) -> Rows:
    """All but the outcome."""
    values = found.values
    rows = {"x": study.design.matrix(values, found.num_rows)}
    if study.site_design is not None:
        rows["z"] = study.site_design.matrix(values, found.num_rows)
    if study.trials is not None:
        rows["trials"] = values[study.trials]
        require_counts(study.trials, rows["trials"])
    if study.exposure is not None:
        if wrong := int((values[study.exposure] <= 0).sum()):
            raise DataError(f"{study.exposure} is 0 or less in {wrong:,} rows: an exposure is positive")
        rows["offset"] = np.log(values[study.exposure])
    return rows
