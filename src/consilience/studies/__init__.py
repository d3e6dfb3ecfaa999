"""Regression from files: a codebook that all sites agree on, a formula, a family, priors; together a `Study`."""

from consilience.studies.codebook import FROM_SITES, Category, Codebook, Number, Outcome
from consilience.studies.files import require_packages
from consilience.studies.study import Study, fill_from_files, is_study, of_run

__all__ = [
    "FROM_SITES",
    "Category",
    "Codebook",
    "Number",
    "Outcome",
    "Study",
    "fill_from_files",
    "is_study",
    "of_run",
    "require_packages",
]
