"""Effective sample size and R-hat, kept apart for the three things they may be computed over.

- **Chains** are independent copies of the whole network: R-hat across chains of one agent says whether sampling
  has converged. A single chain is split in two halves.
- **Agents** of one chain are tied together by consensus: R-hat across agents (`agreement.py`) says whether they agree
  with each other, and nothing about convergence. Their draws must never be counted as independent ones.
- The **network average** `w̄` is what the theorems speak about.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np

from consilience.diagnostics.agreement import agreement
from consilience.diagnostics.mixing import effective_bulk, effective_mean, effective_tail, split_rhat

MOST_DRAWS = 20_000


class Convergence(NamedTuple):
    """Diagnostics of draws `(chains, agents, draws, size)`, each an array over what its name says."""

    rhat_chains: np.ndarray
    """`(agents, size)`: R-hat across chains, for each agent."""
    rhat_agents: np.ndarray
    """`(size,)`: R-hat across agents, compared draw by draw."""
    rhat_average: np.ndarray
    """`(size,)`: R-hat across chains of the network average."""
    ess_agents: np.ndarray
    """`(agents, size)`: bulk effective sample size of each agent, all chains together."""
    ess_average: np.ndarray
    """`(size,)`: bulk effective sample size of the network average."""


def convergence(draws: np.ndarray) -> Convergence:
    """Compute all diagnostics; chains of more than 20,000 draws are thinned to that evenly."""
    _, agents, length, size = draws.shape
    draws = np.asarray(draws[:, :, :: max(1, length // MOST_DRAWS)], float)
    average = draws.mean(1)
    return Convergence(
        rhat_chains=np.stack([rhat(draws[:, i]) for i in range(agents)]),
        rhat_agents=agreement(draws) if agents > 1 else np.ones(size),
        rhat_average=rhat(average),
        ess_agents=np.stack([effective_draws(draws[:, i]) for i in range(agents)]),
        ess_average=effective_draws(average),
    )


def rhat(draws: np.ndarray) -> np.ndarray:
    """R-hat across chains, `(size,)`, of draws `(chains, draws, size)`; a single chain is split in two halves."""
    if len(draws) == 1:
        half = draws.shape[1] // 2
        draws = np.stack([draws[0, :half], draws[0, half : 2 * half]])
    return _of_each(split_rhat, draws)


def effective_draws(draws: np.ndarray, where: Literal["bulk", "tail"] = "bulk") -> np.ndarray:
    """Effective sample size, `(size,)`, of draws `(chains, draws, size)`, all chains together."""
    return _of_each(effective_bulk if where == "bulk" else effective_tail, draws)


def mean_error(draws: np.ndarray) -> np.ndarray:
    """The Monte Carlo standard error of the mean, `(size,)`, of draws `(chains, draws, size)`."""
    return _of_each(lambda one: one.std(ddof=1) / np.sqrt(effective_mean(one)), draws)


def bfmi(energy: np.ndarray) -> np.ndarray:
    """The Bayesian fraction of missing information of each chain, from energies `(chains, draws)`.

    >>> bfmi(np.array([[0.0, 2.0, 0.0, 2.0]])).round(2).tolist()
    [3.0]
    """
    spread = energy.var(1)
    return np.where(
        spread > 0, (np.diff(energy, axis=1) ** 2).sum(1) / energy.shape[1] / np.maximum(spread, 1e-300), 1
    )


def _of_each(statistic: Callable[[np.ndarray], float], draws: np.ndarray) -> np.ndarray:
    """A statistic of each column of `(chains, draws, size)`; of too few draws, or of what is no number, it is NaN."""
    if draws.shape[1] < 4:
        return np.full(draws.shape[-1], np.nan)
    columns = np.moveaxis(np.asarray(draws, float), -1, 0)
    return np.array([np.nan if np.isnan(one).any() else statistic(one) for one in columns])
