"""Regression from files: a codebook that all sites agree on, a formula, a family, priors; together a `Study`."""

from consilience.studies.codebook import Category, Codebook, Number, Outcome
from consilience.studies.study import Study

__all__ = ["Category", "Codebook", "Number", "Outcome", "Study", "require_packages"]


def require_packages() -> None:
    """Check that what studies need is installed."""
    import importlib.util

    from consilience.errors import DataError

    missing = [name for name in ("formulaic", "pandas", "pyarrow") if importlib.util.find_spec(name) is None]
    if missing:
        raise DataError(f"studies need {', '.join(missing)}: install them with `pip install 'consilience[glm]'`")
