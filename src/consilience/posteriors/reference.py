"""What is known about a posterior: moments and quantiles of its parameters, and how exactly they are known.

Moments of `N` effective draws have the Monte Carlo standard errors

    mean: sd/√N        sd: sd·√((κ − 1)/4N),   κ = E(x − mean)⁴/sd⁴;

the kurtosis `κ` is not in the files and is taken as 5, that of a Student t with 7 degrees of freedom: sd/√N again.
Chains may know a mean better than as many independent draws would, but hardly a square: for the sd, `N` is at most
the number of draws.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from consilience.errors import InputError

LOW, HIGH = 0.05, 0.95
"""The probabilities of the quantiles."""


@dataclass(frozen=True, eq=False)
class Reference:
    """Moments and quantiles, one entry for each scalar parameter, on the constrained scale.

    Attributes:
        names: `beta[1]`, counted from 1.
        mean, sd: exact where a closed form is known.
        low, high: the 5 % and 95 % quantiles, of draws.
        mean_error, sd_error: Monte Carlo standard errors of mean and sd; 0 where they are exact.
        effective_draws: from how many the other figures are.
        exact: whether mean and sd are exact.
        has_sd: entries whose sd is finite. The others have the draws' value, which says nothing, and their mean says
            little: compare quantiles.
        source: where the draws are from.
    """

    names: tuple[str, ...]
    mean: np.ndarray
    sd: np.ndarray
    low: np.ndarray
    high: np.ndarray
    mean_error: np.ndarray
    sd_error: np.ndarray
    effective_draws: np.ndarray
    exact: bool
    has_sd: np.ndarray
    source: str

    def at(self, places: Sequence[int] | np.ndarray) -> Reference:
        """Some of the entries."""
        chosen = np.asarray(places, int)
        arrays: Any = {name: value[chosen] for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        return replace(self, names=tuple(self.names[place] for place in chosen), **arrays)


def reference_of(content: Mapping[str, Any], without_sd: Sequence[str] = (), *, drawn: bool = False) -> Reference:
    """The reference of a file.

    Args:
        content: of the file.
        without_sd: names of parameters whose variance is infinite.
        drawn: take the moments of draws also where exact ones are known.
    """
    entries, exact = content["reference"], content.get("exact")
    names = tuple(entries)
    wanted = tuple(name for one in content["parameters"] for name in entry_names(one["name"], one["dims"]))
    if names != wanted:
        raise InputError(f"{content['name']} has reference moments of {names}, expected those of {wanted}")

    def column(name: str) -> np.ndarray:
        return np.array([entries[one][name] for one in names], float)

    effective = np.array([entries[one].get("ess", content["num_reference_draws"]) for one in names], float)
    mean, sd = column("mean"), column("sd")
    errors = [sd / np.sqrt(count) for count in (effective, np.minimum(effective, content["num_reference_draws"]))]
    if drawn:
        exact = None
    if exact is not None:
        mean, sd = (np.array([exact[moment][one] for one in names]) for moment in ("mean", "sd"))
        errors = [np.zeros(len(names))] * 2
    has_sd = np.array([name not in without_sd for name in names])
    return Reference(
        names, mean, sd, column("q05"), column("q95"), errors[0], np.where(has_sd, errors[1], np.inf), effective,
        exact is not None, has_sd, content["reference_source"],
    )  # fmt: skip


def entry_names(name: str, dims: Sequence[int]) -> list[str]:
    """The names of a variable's entries, counted from 1.

    >>> entry_names("sigma", []), entry_names("beta", [2])
    (['sigma'], ['beta[1]', 'beta[2]'])
    """
    if not dims:
        return [name]
    return [f"{name}[{','.join(str(one + 1) for one in place)}]" for place in np.ndindex(*dims)]
