"""How well a model predicts rows that it has not seen: leave-one-out cross-validation without fitting again.

For row `i`, with the log-likelihood `l_is` at draw `s`, importance weights `1/p(y_i | w_s)`, smoothed by a Pareto
distribution (PSIS; Vehtari, Gelman and Gabry, 2017), turn draws given all rows into draws given all but this one:

    elpd_i = log Σ_s weight_is exp(l_is),        lppd_i = log (1/S) Σ_s exp(l_is)

A site computes this for its own rows and keeps it. What a network needs are sums over rows of `elpd_i`, its square
and `lppd_i`, and how often the Pareto shape `k` is so large that the estimate is not to be trusted.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from consilience.diagnostics.mixing import effective_mean
from consilience.errors import DivergedError
from consilience.predictive.blocks import blocks
from consilience.predictive.draws import over_draws
from consilience.predictive.outcomes import Pieces
from consilience.problems import Problem

if TYPE_CHECKING:
    import xarray

MOST_DRAWS = 4000
_BLOCK_BYTES = 2**26


class RowScores(NamedTuple):
    """What is known of each row, `(rows,)`; it stays where the rows are."""

    elpd: np.ndarray
    lppd: np.ndarray
    pareto_k: np.ndarray


def likelihood_program(problem: Problem) -> Callable[..., Any]:
    """The log-likelihood of each row at each draw, `(draws, rows)`; one program for all sites."""
    return over_draws(lambda one, rows: problem.log_likelihood(one.parameters, rows))


def rows_at_once(num_rows: int, num_draws: int) -> int:
    """So many rows that their log-likelihoods at all draws fit in a bounded memory.

    >>> rows_at_once(100, 4000), rows_at_once(10**6, 4000)
    (100, 2097)
    """
    return min(num_rows, max(1, _BLOCK_BYTES // (8 * num_draws)))


def leave_one_out(program: Callable[..., Any], pieces: Pieces, rows: Any, block: int, efficiency: float) -> RowScores:
    """The scores of a site's rows.

    Args:
        program: of `likelihood_program`.
        pieces: draws of the parameters that hold at the site.
        rows: the site's.
        block: how many rows to take at once.
        efficiency: effective draws over draws, the same at all sites.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # ArviZ announces its next major version on import
        import arviz

    parts = []
    for some in blocks(rows, block):
        values = [np.asarray(program(piece, some.rows), float)[:, : some.num_rows] for piece in pieces]
        log_likelihood = np.concatenate(values).T
        if not np.isfinite(log_likelihood).all():
            row = some.start + int(np.flatnonzero(~np.isfinite(log_likelihood).all(1))[0])
            raise DivergedError(f"the log-likelihood of row {row} is not finite at some draw")
        weights, shapes = arviz.psislw(-log_likelihood, efficiency)
        elpd = logsumexp(np.asarray(weights) + log_likelihood, axis=1)
        lppd = logsumexp(log_likelihood, axis=1) - np.log(log_likelihood.shape[1])
        parts.append(RowScores(elpd, lppd, np.atleast_1d(np.asarray(shapes))))
    return RowScores(*(np.concatenate(some) for some in zip(*parts, strict=True)))


def relative_efficiency(draws: xarray.Dataset) -> float:
    """Effective draws over draws, the mean over shared parameters, as ArviZ takes it; 1 for a single chain."""
    private = draws.attrs.get("private", [])
    shared = [name for name in draws.attrs["parameters"] if name not in private]
    if draws.sizes["chain"] == 1 or draws.sizes["draw"] < 4:
        return 1.0
    columns = [column for name in shared for column in np.moveaxis(_last(draws[name]), -1, 0)]
    found = np.mean([effective_mean(column) for column in columns])
    efficiency = float(found) / (draws.sizes["chain"] * draws.sizes["draw"])
    return efficiency if np.isfinite(efficiency) else 1.0


def trusted_shape(num_draws: int) -> float:
    """The largest Pareto shape `k` at which an estimate from so many draws is to be trusted, at most 0.7.

    >>> trusted_shape(4000), round(trusted_shape(100), 2)
    (0.7, 0.5)
    """
    return min(1 - 1 / math.log10(num_draws), 0.7)


def _last(variable: Any) -> np.ndarray:
    """A variable's draws `(chains, draws, size)`."""
    values = variable.to_numpy()
    return values.reshape(*values.shape[:2], -1)
