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

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from consilience.errors import DataError, InputError, PlanError
from consilience.plans import Plan
from consilience.problems import Problem
from consilience.studies import filling, models, priors, rows
from consilience.studies.codebook import Codebook, Number, Outcome, read_text, read_toml
from consilience.studies.designs import Design
from consilience.studies.families import Family, family_named
from consilience.studies.files import require_packages
from consilience.studies.formulas import Formula, parse
from consilience.studies.priors import Prior
from consilience.validation import Record


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

    >>> y, age = {"kind": "number", "centre": 5, "scale": 1}, {"kind": "number", "centre": 60, "scale": 10}
    >>> book = Codebook(columns={"y": y, "age": age})
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
    priors: dict[str, Prior] = Field(default_factory=dict)

    def __init__(self, **entries: Any) -> None:
        super().__init__(**entries)
        require_packages()
        self._require_outcome()
        for column in (self.trials, self.exposure):
            if column is not None and not isinstance(self.codebook.column(column), Number):
                raise DataError(f"{column!r} is no column of numbers in the codebook")
        for column in self.used_columns:
            self.codebook.column(column)
        if not self.unfilled:
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

    @cached_property
    def used_columns(self) -> tuple[str, ...]:
        """The columns that the study reads; others in a file are not looked at."""
        extra = [column for column in (self.trials, self.exposure) if column is not None]
        return tuple(dict.fromkeys([self.parsed.outcome, *self.parsed.names, *extra]))

    @cached_property
    def used_codebook(self) -> Codebook:
        """The codebook of the columns that the study reads."""
        columns = {name: self.codebook.column(name) for name in self.used_columns}
        return Codebook(missing=self.codebook.missing, columns=columns)

    @property
    def unfilled(self) -> tuple[str, ...]:
        """Entries of its columns that the sites have to find together first."""
        return self.used_codebook.unfilled

    def with_filled(self, found: Codebook) -> Study:
        """The study with a codebook of its columns that has no open entries."""
        columns = {**self.codebook.columns, **found.columns}
        codebook = Codebook(missing=self.codebook.missing, columns=columns)
        entries = {name: getattr(self, name) for name in type(self).model_fields}
        return Study(**{**entries, "codebook": codebook})

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
        whole = self if self.unfilled else self.model_copy(update={"priors": self.all_priors})
        return whole.model_dump(mode="json", exclude_none=True)

    def problem(self, files: Sequence[str | Path]) -> Problem:
        """The problem with one site for each file."""
        if isinstance(files, str | Path) or not files:
            raise DataError("give a list of data files, one for each site")
        sites = [rows.site_rows(self, path) for path in files]
        rows.require_varying(self.coefficients, sites)
        return models.problem_of(self, sites)

    def site_problem(self, path: str | Path, num_sites: int) -> Problem:
        """What one site of so many knows: its own file and nothing else."""
        return replace(models.problem_of(self, [rows.site_rows(self, path)]), network_size=num_sites)

    def sites_problem(self, files: Sequence[str | Path], num_sites: int) -> Problem:
        """What some sites of so many know."""
        return replace(
            models.problem_of(self, [rows.site_rows(self, path) for path in files]), network_size=num_sites
        )

    def model(self, num_sites: int = 1) -> Problem:
        """The model with a made-up row at every site: its parameters, priors and names, before anybody has data."""
        made_up = {name: np.zeros(1) for name in ("y", "trials", "offset")}
        wanted = ["y", *(["trials"] if self.trials else []), *(["offset"] if self.exposure else [])]
        row = {"x": np.zeros((1, len(self.coefficients))), **{name: made_up[name] for name in wanted}}
        if self.site_design is not None:
            row["z"] = np.zeros((1, len(self.site_design.labels)))
        return models.problem_of(self, [row] * num_sites)

    def new_rows(self, path: str | Path) -> dict[str, np.ndarray]:
        """The arrays of rows to predict, in the file's order; without `y` where the outcome is not known."""
        return rows.new_rows(self, path)

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
        if family.link == "identity" and not {"centre", "scale"} <= column.model_fields_set:
            raise DataError(
                f"the priors need to know how large {outcome!r} is: give its centre and scale in the codebook, as "
                'numbers or "from sites"'
            )
        if (self.family == "binomial") != (self.trials is not None):
            raise DataError('binomial, and no other family, needs the column of trials: trials = "COLUMN"')
        if self.exposure is not None and family.link != "log":
            raise DataError(f"exposure is for poisson and negative-binomial, and the family is {self.family}")


def is_study(path: str | Path) -> bool:
    """Whether a file is a study: a TOML document with a formula."""
    try:
        return "formula" in read_toml(read_text(path, "study"))
    except DataError:
        return False


def of_run(source: Plan | str | Path) -> Study | None:
    """The study of a plan, or of a run's directory; `None` if it is of another kind."""
    plan = source if isinstance(source, Plan) else Plan.load(Path(source) / "plan.toml")
    if plan.study is None:
        return None
    try:
        return Study(**plan.study)
    except InputError as error:
        raise PlanError(f"the plan's study cannot be used: {error}") from None


def fill_from_files(study: Study, files: Sequence[str | Path]) -> tuple[Study, tuple[str, ...]]:
    """The study with open entries of its codebook filled in from files that are all here, and what was found."""
    found = filling.fill_here(study.used_codebook, files)
    return (study.with_filled(found.codebook), found.found) if found.found else (study, ())
