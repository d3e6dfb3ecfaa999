"""The density of a study: shared coefficients, the family's own parameters, and effects of the site.

    eta = x · coefficients + z · (site_sd * site_effect) + offset,     site_effect ~ normal(0, 1) at each site

Effects of the site are private and in units of their spread (non-centred). What is known about them comes from few
sites, and then the spread may be near zero, where effects on their own scale have a funnel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy import stats

from consilience.problems import Outcomes, Problem
from consilience.studies import priors

if TYPE_CHECKING:
    from consilience.studies.study import Study


def problem_of(study: Study, sites: Sequence[Mapping[str, np.ndarray]]) -> Problem:
    """The problem of a study, for the rows of some sites."""
    family, known = study.family_of, study.all_priors
    shared = [known[label] for label in study.coefficients]
    effects = study.site_design.labels if study.site_design is not None else ()
    spreads = [known[priors.site_sd(label)] for label in effects]

    def predictor(p: Any, rows: Any) -> jax.Array:
        eta = rows["x"] @ p["coefficients"]
        if effects:
            eta = eta + rows["z"] @ (p["site_sd"] * p["site_effect"])
        return eta + rows["offset"] if study.exposure is not None else eta

    def log_likelihood(p: Any, rows: Any) -> jax.Array:
        return family.log_likelihood(predictor(p, rows), p, rows)

    def log_prior(p: Any) -> jax.Array:
        total = priors.log_density(shared, p["coefficients"])
        if effects:
            total = total + priors.log_density(spreads, p["site_sd"])
        return total + sum((known[name].log_density(p[name]) for name in family.extra), jnp.zeros(()))

    def log_private(p: Any) -> jax.Array:
        return stats.norm.logpdf(p["site_effect"]).sum()

    def init(key: jax.Array) -> dict[str, jax.Array]:
        start = {"coefficients": jnp.array([prior.start for prior in shared])}
        if effects:
            start["site_sd"] = jnp.array([0.2 * prior.start for prior in spreads])
            start["site_effect"] = jnp.zeros(len(effects))
        return {**start, **{name: jnp.asarray(known[name].start) for name in family.extra}}

    labels: dict[str, Sequence[str]] = {"coefficients": study.coefficients}
    if effects:
        labels |= {"site_sd": effects, "site_effect": effects, "site_difference": effects}
    positive = [*family.extra, *(["site_sd"] if effects else [])]
    return Problem(
        log_likelihood,
        log_prior,
        init=init,
        shards=[dict(site) for site in sites],
        name=study.name,
        private=("site_effect",) if effects else (),
        log_private=log_private if effects else None,
        constraints=dict.fromkeys(positive, "positive"),
        derived=(lambda p: {"site_difference": p["site_sd"] * p["site_effect"]}) if effects else None,
        outcomes=_outcomes(study, predictor),
        labels=labels,
        ratios={"coefficients": family.ratio} if family.ratio else {},
    )


def _outcomes(study: Study, predictor: Callable[[Any, Any], jax.Array]) -> Outcomes:
    """What a study says about the outcomes of rows, which may lack them."""
    family, name = study.family_of, study.parsed.outcome

    def expected(p: Any, rows: Any) -> dict[str, jax.Array]:
        return {name: family.mean(predictor(p, rows)) * rows.get("trials", 1.0)}

    def simulate(key: jax.Array, p: Any, rows: Any) -> dict[str, jax.Array]:
        return {name: family.simulate(key, predictor(p, rows), p, rows)}

    def draw_private(key: jax.Array, p: Any) -> Any:
        return {**p, "site_effect": jax.random.normal(key, p["site_effect"].shape, p["site_effect"].dtype)}

    return Outcomes(
        kinds={name: family.outcome},
        expected=expected,
        simulate=simulate,
        observed=lambda rows: {name: rows["y"]},
        draw_private=draw_private if study.site_design is not None else None,
    )
