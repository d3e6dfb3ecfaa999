"""Weakly informative priors, as Bambi's, from the codebook's scales alone: so all sites have the same ones.

With `s_y` the codebook's scale of the outcome (1 unless the link is the identity), `s_x` the spread of a column of
the design and `m_x` its mean (`Design.spreads`, `Design.means`):

    coefficient   normal(0, 2.5 s_y / s_x)
    intercept     normal(centre of the outcome, sqrt((2.5 s_y)² + Σ_x (2.5 s_y m_x / s_x)²))
    site_sd       half-normal(2.5 s_y / s_x)
    sigma         half-Student-t(4, s_y)
    alpha         half-Cauchy(1)
    freedom       gamma(2, 0.1)

Bambi takes spreads and means from the rows; here no site has them all, so they are the codebook's. With a log link
the intercept's mean is the logarithm of the outcome's centre (over the exposure's), where the codebook has one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy import stats
from pydantic import Field

from consilience.errors import DataError, InputError
from consilience.studies.codebook import Codebook, Number
from consilience.studies.designs import INTERCEPT, Design
from consilience.studies.families import Family
from consilience.validation import Record

_TAKES = {
    "normal": ("mean", "sd"),
    "student_t": ("df", "mean", "sd"),
    "half_normal": ("sd",),
    "half_student_t": ("df", "sd"),
    "half_cauchy": ("sd",),
    "gamma": ("shape", "rate"),
    "exponential": ("rate",),
}
_REAL = ("normal", "student_t")
_WIDTH = 2.5
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Prior(Record):
    """The prior of one number; `sd` is the scale of distributions that have no standard deviation.

    >>> str(Prior(distribution="normal", mean=0, sd=2.5))
    'normal(mean 0, sd 2.5)'
    """

    mistake: ClassVar[type[InputError]] = DataError

    distribution: Literal[
        "normal", "student_t", "half_normal", "half_student_t", "half_cauchy", "gamma", "exponential"
    ]
    mean: Annotated[float, Field(allow_inf_nan=False)] | None = None
    sd: Positive | None = None
    df: Positive | None = None
    shape: Positive | None = None
    rate: Positive | None = None

    def __init__(self, **entries: Any) -> None:
        super().__init__(**entries)
        takes = _TAKES[self.distribution]
        given = [name for name in ("mean", "sd", "df", "shape", "rate") if getattr(self, name) is not None]
        if set(given) != set(takes):
            has = " and ".join(given) or "none of them"
            raise DataError(f"a prior that is {self.distribution} takes {' and '.join(takes)}, and has {has}")

    def __str__(self) -> str:
        return f"{self.distribution}({', '.join(f'{k} {getattr(self, k):g}' for k in _TAKES[self.distribution])})"

    def log_density(self, x: jax.Array) -> jax.Array:
        """Up to a constant; the halves are taken at positive `x` only."""
        mean, sd, rate = self.mean or 0.0, self.sd or 1.0, self.rate or 1.0  # those that it takes are there
        if self.distribution in ("normal", "half_normal"):
            return stats.norm.logpdf(x, mean, sd)
        if self.distribution in ("student_t", "half_student_t"):
            return stats.t.logpdf(x, self.df or 1.0, mean, sd)
        if self.distribution == "half_cauchy":
            return stats.cauchy.logpdf(x, 0.0, sd)
        if self.distribution == "gamma":
            return stats.gamma.logpdf(x, self.shape or 1.0, scale=1 / rate)
        return -rate * x

    @property
    def start(self) -> float:
        """A value in its middle."""
        if self.distribution in _REAL:
            return float(self.mean or 0.0)
        if self.distribution == "gamma":
            return float((self.shape or 1.0) / (self.rate or 1.0))
        return float(1 / self.rate if self.rate else self.sd or 1.0)


def default_priors(
    family: Family, design: Design, site: Design | None, codebook: Codebook, outcome: str, exposure: str | None
) -> dict[str, Prior]:
    """The prior of each parameter, by the name that tables show."""
    spread = _outcome_scale(family, codebook, outcome)
    found = {}
    slopes = zip(design.labels, design.spreads, design.means, strict=True)
    others = sum((mean / own) ** 2 for label, own, mean in slopes if label != INTERCEPT)
    of_intercept = _shown(_WIDTH * spread * math.sqrt(1 + others))
    for label, own in zip(design.labels, design.spreads, strict=True):
        if label == INTERCEPT:
            centre = _outcome_centre(family, codebook, outcome, exposure)
            found[label] = Prior(distribution="normal", mean=centre, sd=of_intercept)
        else:
            found[label] = Prior(distribution="normal", mean=0.0, sd=_shown(_WIDTH * spread / own))
    for label, own in zip(site.labels, site.spreads, strict=True) if site else ():
        width = of_intercept if label == INTERCEPT else _shown(_WIDTH * spread / own)
        found[site_sd(label)] = Prior(distribution="half_normal", sd=width)
    own_priors = {
        "sigma": Prior(distribution="half_student_t", df=4, sd=spread),
        "alpha": Prior(distribution="half_cauchy", sd=1),
        "freedom": Prior(distribution="gamma", shape=2, rate=0.1),
    }
    return {**found, **{name: own_priors[name] for name in family.extra}}


def with_changes(defaults: Mapping[str, Prior], changes: Mapping[str, Prior]) -> dict[str, Prior]:
    """The default priors with some replaced; `coefficients` stands for all but the intercept."""
    found = dict(defaults)
    slopes = [name for name, prior in defaults.items() if prior.distribution == "normal" and name != INTERCEPT]
    known = [*defaults, *(["coefficients"] if slopes else [])]
    for name, prior in sorted(changes.items(), key=lambda entry: entry[0] != "coefficients"):
        if name not in known:
            raise DataError(
                f"there is a prior for {name!r}, which the model does not have: it has {', '.join(known)}"
            )
        for own in slopes if name == "coefficients" and name not in defaults else [name]:
            wants_real = defaults[own].distribution in _REAL
            if wants_real != (prior.distribution in _REAL):
                fitting = [one for one in _TAKES if (one in _REAL) == wants_real]
                raise DataError(f"the prior of {own!r} is {prior.distribution}: take one of {', '.join(fitting)}")
            found[own] = prior
    return found


def table(priors: Mapping[str, Prior]) -> list[dict[str, str]]:
    """A row for each parameter, to be shown.

    >>> table({"age": Prior(distribution="normal", mean=0, sd=2.5)})
    [{'parameter': 'age', 'prior': 'normal(mean 0, sd 2.5)'}]
    """
    return [{"parameter": name, "prior": str(prior)} for name, prior in priors.items()]


def log_density(priors: Sequence[Prior], values: jax.Array) -> jax.Array:
    """Of a vector whose entries have these priors, one after the other."""
    if all(prior.distribution == "normal" for prior in priors):
        means = np.array([prior.mean for prior in priors])
        return stats.norm.logpdf(values, means, np.array([prior.sd for prior in priors])).sum()
    return sum((prior.log_density(values[place]) for place, prior in enumerate(priors)), jnp.zeros(()))


def site_sd(label: str) -> str:
    """What the spread of a site's effect among sites is called."""
    return f"site_sd[{label}]"


def _outcome_scale(family: Family, codebook: Codebook, outcome: str) -> float:
    column = codebook.column(outcome)
    return column.centre_and_scale[1] if family.link == "identity" and isinstance(column, Number) else 1.0


def _outcome_centre(family: Family, codebook: Codebook, outcome: str, exposure: str | None) -> float:
    """The outcome's centre on the scale of the link; of probabilities a half."""
    column = codebook.column(outcome)
    if family.link == "logit" or not isinstance(column, Number):
        return 0.0
    centre, _ = column.centre_and_scale
    if family.link == "identity":
        return centre
    of_exposure = codebook.column(exposure) if exposure else None
    per = of_exposure.centre_and_scale[0] if isinstance(of_exposure, Number) else 1.0
    return _shown(math.log(centre / per)) if centre > 0 and per > 0 else 0.0


def _shown(value: float) -> float:
    """With four digits, so that what is shown is what is used, the same on every machine."""
    return float(f"{value:.4g}")
