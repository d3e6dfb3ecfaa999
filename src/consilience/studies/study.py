"""A study: formula, family, codebook and priors in a file, and how it becomes a problem for given data files.

    formula = "died ~ age + stage + (1 | site)"
    family = "bernoulli"
    codebook = "codebook.toml"      # beside this file

    [priors.age]                    # optional; others have defaults
    distribution = "normal"
    mean = 0
    sd = 1

A site is where a file is kept: each data file is one site.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from consilience.errors import DataError, InputError, ProblemError
from consilience.problems import Problem
from consilience.studies import models, priors
from consilience.studies.checking import Columns, read_columns
from consilience.studies.codebook import Codebook, Number, Outcome, read_text, read_toml
from consilience.studies.designs import INTERCEPT, Design
from consilience.studies.families import Family, family_named, require_counts
from consilience.studies.formulas import Formula, parse
from consilience.studies.priors import Prior
from consilience.validation import Record

log = logging.getLogger("consilience")


class Study(Record):
    """What all sites of a regression agree on.

    Attributes:
        name: for people.
        formula: outcome, terms, and effects of the site.
        family: gaussian, student-t, bernoulli, binomial, poisson or negative-binomial.
        codebook: what the columns are.
        trials: of binomial, the column with the number of trials.
        exposure: of poisson and negative-binomial, the column by which rates are to be multiplied.
        priors: those that differ from the defaults, by the parameters' names.

    >>> book = Codebook(columns={"y": {"kind": "number"}, "age": {"kind": "number", "centre": 60, "scale": 10}})
    >>> study = Study(formula="y ~ age", family="gaussian", codebook=book)
    >>> study.coefficients, study.priors_table()[1]
    (('Intercept', 'age'), {'parameter': 'age', 'prior': 'normal(mean 0, sd 2.5)'})
    """

    mistake: ClassVar[type[InputError]] = DataError

    name: str = "study"
    formula: str
    family: str
    codebook: Codebook
    trials: str | None = None
    exposure: str | None = None
    priors: dict[str, Prior] = {}

    def __init__(self, **entries: Any) -> None:
        super().__init__(**entries)
        self._require_outcome()
        for column in (self.trials, self.exposure):
            if column is not None and not isinstance(self.codebook.column(column), Number):
                raise DataError(f"{column!r} is no column of numbers in the codebook")
        _ = self.all_priors  # which also looks at the terms

    @classmethod
    def load(cls, path: str | Path) -> Study:
        """The study in a TOML file; `codebook` may be the name of a file beside it, or a table."""
        path = Path(path)
        try:
            entries = read_toml(read_text(path, "study"))
            if isinstance(entries.get("codebook"), str):
                entries["codebook"] = Codebook.load(path.parent / entries["codebook"])
            return cls(**{"name": path.stem, **entries})
        except InputError as error:
            raise DataError(str(error) if str(path) in str(error) else f"{path}: {error}") from None

    @cached_property
    def parsed(self) -> Formula:
        """The parts of the formula."""
        return parse(self.formula)

    @cached_property
    def family_of(self) -> Family:
        """The family, with its link and the name of its ratios (`odds ratio`)."""
        return family_named(self.family)

    @cached_property
    def design(self) -> Design:
        """Of what is shared."""
        return Design(self.parsed.terms, self.parsed.names, self.codebook)

    @cached_property
    def site_design(self) -> Design | None:
        """Of the site's own effects, if there are any."""
        terms = self.parsed.site_terms
        return None if terms is None else Design(terms, self.parsed.names, self.codebook)

    @property
    def coefficients(self) -> tuple[str, ...]:
        """The names of the shared coefficients."""
        return self.design.labels

    @cached_property
    def all_priors(self) -> dict[str, Prior]:
        """The prior of every parameter, by its name."""
        defaults = priors.default_priors(
            self.family_of, self.design, self.site_design, self.codebook, self.parsed.outcome, self.exposure
        )
        return priors.with_changes(defaults, self.priors)

    def priors_table(self) -> list[dict[str, str]]:
        """A row for each parameter and its prior."""
        return priors.table(self.all_priors)

    def entries(self) -> dict[str, Any]:
        """All that decides the study, every prior included: what a plan holds, and what its digest covers."""
        whole = self.model_copy(update={"priors": self.all_priors})
        return whole.model_dump(mode="json", exclude_none=True)

    def problem(self, files: Sequence[str | Path]) -> Problem:
        """The problem with one site for each file."""
        if isinstance(files, str | Path) or not files:
            raise DataError("give a list of data files, one for each site")
        sites = [self._rows(path) for path in files]
        self._require_varying(sites)
        return models.problem_of(self, sites)

    def site_problem(self, path: str | Path, num_sites: int) -> Problem:
        """What one site of so many knows: its own file and nothing else."""
        return replace(models.problem_of(self, [self._rows(path)]), network_size=num_sites)

    def _rows(self, path: str | Path) -> dict[str, np.ndarray]:
        """The arrays of one site's rows."""
        extra = [column for column in (self.trials, self.exposure) if column is not None]
        names = list(dict.fromkeys([self.parsed.outcome, *self.parsed.names, *extra]))
        found = read_columns(path, self.codebook, names)
        if found.num_dropped:
            log.warning("%s: %d rows with missing values are left out", path, found.num_dropped)
        try:
            return self._arrays(found)
        except DataError as error:
            raise DataError(f"{path}: {error}") from None

    def _arrays(self, found: Columns) -> dict[str, np.ndarray]:
        values, outcome = found.values, self.parsed.outcome
        rows = {"x": self.design.matrix(values, found.num_rows), "y": values[outcome].astype(np.float64)}
        if self.site_design is not None:
            rows["z"] = self.site_design.matrix(values, found.num_rows)
        if self.family_of.outcome == "count":
            require_counts(outcome, rows["y"])
        if self.trials is not None:
            rows["trials"] = values[self.trials]
            require_counts(self.trials, rows["trials"])
            if more := int((rows["y"] > rows["trials"]).sum()):
                raise DataError(f"{outcome} is above {self.trials} in {more:,} rows: are they exchanged?")
        if self.exposure is not None:
            if wrong := int((values[self.exposure] <= 0).sum()):
                raise DataError(f"{self.exposure} is 0 or less in {wrong:,} rows: an exposure is positive")
            rows["offset"] = np.log(values[self.exposure])
        return rows

    def _require_outcome(self) -> None:
        """Check that the outcome, trials and exposure are those of the family."""
        family, outcome = self.family_of, self.parsed.outcome
        column = self.codebook.column(outcome)
        if family.outcome == "binary" and not isinstance(column, Outcome):
            raise DataError(
                f"{self.family} needs an outcome of two values: in the codebook give {outcome!r} "
                'kind = "outcome", and say which counts as `one` and as `zero`'
            )
        if family.outcome != "binary" and not isinstance(column, Number):
            raise DataError(f"{self.family} needs an outcome of numbers, and {outcome!r} is a {column.kind}")
        if (self.family == "binomial") != (self.trials is not None):
            raise DataError('binomial, and no other family, needs the column of trials: trials = "COLUMN"')
        if self.exposure is not None and family.link != "log":
            raise DataError(f"exposure is for poisson and negative-binomial, and the family is {self.family}")

    def _require_varying(self, sites: Sequence[dict[str, np.ndarray]]) -> None:
        """Refuse a column of the design that is the same in all rows of all sites."""
        low = np.min([site["x"].min(0) for site in sites], 0)
        high = np.max([site["x"].max(0) for site in sites], 0)
        for label, least, most in zip(self.coefficients, low, high, strict=True):
            if label != INTERCEPT and least == most and sum(len(site["y"]) for site in sites) > 1:
                raise ProblemError(
                    f"{label!r} is the same in all rows of all files: nothing can be learnt about its coefficient; "
                    "remove it from the formula, or a level that nobody has from the codebook"
                )


def is_study(path: str | Path) -> bool:
    """Whether a file is a study: a TOML document with a formula."""
    try:
        return "formula" in read_toml(read_text(path, "study"))
    except DataError:
        return False
