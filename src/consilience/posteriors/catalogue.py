"""The posteriors by name."""

from __future__ import annotations

import difflib

from consilience.errors import DataError
from consilience.posteriors import (
    autoregression,
    counts_and_choices,
    diamonds,
    differential_equations,
    files,
    hierarchical,
    linear,
    mixture,
)
from consilience.posteriors.posterior import Posterior

_FAMILIES = (
    linear,
    diamonds,
    counts_and_choices,
    autoregression,
    hierarchical,
    mixture,
    differential_equations,
)
_RECIPES = dict(sorted((name, one) for family in _FAMILIES for name, one in family.RECIPES.items()))


def names() -> list[str]:
    """The names of all posteriors, in the order of the alphabet.

    >>> names()[:2]
    ['GLM_Poisson_Data-GLM_Poisson_model', 'arK-arK']
    """
    return list(_RECIPES)


def available() -> list[str]:
    """The names of those whose files are here: inside the package, or below `$CONSILIENCE_DATA`."""
    return [name for name in _RECIPES if files.is_here(name)]


def load(name: str) -> Posterior:
    """The posterior of that name.

    >>> load("arK-arK").reference.names
    ('alpha', 'beta[1]', 'beta[2]', 'beta[3]', 'beta[4]', 'beta[5]', 'sigma')
    """
    if name not in _RECIPES:
        near = difflib.get_close_matches(name, _RECIPES, n=3, cutoff=0.3)
        raise DataError(f"unknown posterior {name!r}: " + (
            f"did you mean {' or '.join(near)}?" if near else f"choose one of {', '.join(_RECIPES)}"
        ))  # fmt: skip
    return Posterior(name, files.read(name), _RECIPES[name])
