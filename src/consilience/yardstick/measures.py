"""How far draws are from a reference, in its standard deviations, and how exactly that is known.

For an agent's draws of a parameter with reference mean `m` and sd `s`,

    mean error = (mean − m)/s,      sd ratio = sd/s,

with Monte Carlo standard errors of our draws and of the reference, added in squares. What is *beyond noise* is what
is left of an error after four of these. A parameter without a variance has neither: of its draws the share below the
reference's 5 % and 95 % quantiles is compared with these, and a shift that a normal law would show there by as much
says how many standard deviations that is.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from consilience.posteriors import Reference

NOISE = 4.0
"""Monte Carlo standard errors that are no error."""
ESS_GOAL = 5_000.0
"""Effective draws that a judgement wants, of means and of squares, for the worst parameter at the worst agent."""
FALSE = 0.2
"""An error of a mean, in standard deviations, with which no run should call itself converged."""
_TAILS = np.array([0.05, 0.95])
_DENSITY = 0.1031  # of a standard normal at these quantiles: by so much a shift of 1 moves the share below them


def judged(draws: Sequence[np.ndarray], references: Sequence[Reference]) -> dict[str, Any]:
    """Errors and effective draws of the worst parameter at the worst agent.

    Args:
        draws: of each agent, `(chains, draws, size)`.
        references: for each of them, of the same parameters.
    """
    agents = [_of_agent(own, known) for own, known in zip(draws, references, strict=True)]
    every = {name: np.concatenate([one[name] for one in agents]) for name in agents[0]}
    names = [f"{name}{_whose(agent, agents)}" for agent, known in enumerate(references) for name in known.names]
    worst = int(np.nanargmax(np.where(every["finite"], np.abs(every["error"]), -1)))
    return {
        "mean_error": float(np.abs(every["error"][every["finite"]]).max()),
        "mean_error_beyond_noise": float(_beyond(every["error"], every["noise"])[every["finite"]].max()),
        "worst_parameter": names[worst],
        "sd_ratio_smallest": float(every["ratio"][every["finite"]].min()),
        "sd_ratio_largest": float(every["ratio"][every["finite"]].max()),
        "sd_error_beyond_noise": float(_beyond(every["ratio"] - 1, every["ratio_noise"])[every["finite"]].max()),
        "tail_error": float(every["tail"].max()),
        "shift_without_sd": float(every["shift"][~every["finite"]].max(initial=0.0)),
        "ess_mean": float(every["ess"].min()),
        "ess_square": float(every["ess_square"][every["finite"]].min()),
    }


def is_false(row: Mapping[str, Any]) -> bool:
    """Whether a run called itself converged though a parameter is more than 0.2 standard deviations off."""
    return bool(row.get("converged")) and max(row.get("mean_error", 0.0), row.get("shift_without_sd", 0.0)) > FALSE


def _whose(agent: int, agents: Sequence[Any]) -> str:
    return f" at agent {agent}" if len(agents) > 1 else ""


def _beyond(error: np.ndarray, noise: np.ndarray) -> np.ndarray:
    return np.maximum(np.abs(error) - NOISE * noise, 0.0)


def _of_agent(draws: np.ndarray, known: Reference) -> dict[str, np.ndarray]:
    """For each parameter of one agent."""
    mean, sd = draws.mean((0, 1)), draws.std((0, 1))
    mean_error, sd_error = _by_arviz("mcse", draws, "mean"), _by_arviz("mcse", draws, "sd")
    tails, tail_noise = _tails(draws, known)
    return {
        "error": (mean - known.mean) / known.sd,
        "noise": np.hypot(mean_error, known.mean_error) / known.sd,
        "ratio": sd / known.sd,
        "ratio_noise": np.hypot(sd_error, np.where(known.has_sd, known.sd_error, 0.0)) / known.sd,
        "tail": tails.max(0),
        "shift": _beyond(tails, tail_noise).max(0) / _DENSITY,
        "ess": _by_arviz("ess", draws, "mean"),
        "ess_square": _by_arviz("ess", (draws - mean) ** 2, "mean"),
        "finite": known.has_sd,
    }


def _tails(draws: np.ndarray, known: Reference) -> tuple[np.ndarray, np.ndarray]:
    """How far the shares below both quantiles are from what they should be, and their standard errors."""
    below = [draws <= bound for bound in (known.low, known.high)]
    effective = np.stack([_by_arviz("ess", one.astype(float), "mean") for one in below])
    wanted = _TAILS[:, None]
    errors = np.sqrt(wanted * (1 - wanted) * (1 / effective + 1 / known.effective_draws))
    return np.abs(np.stack([one.mean((0, 1)) for one in below]) - wanted), errors


def _by_arviz(statistic: str, draws: np.ndarray, method: str) -> np.ndarray:
    """A statistic of each parameter of `(chains, draws, size)`; of one that does not move, the worst there is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # ArviZ announces its next major version on import
        import arviz
    function, stuck = getattr(arviz, statistic), 1.0 if statistic == "ess" else np.inf
    columns = [draws[..., place] for place in range(draws.shape[-1])]
    return np.array([float(function(one, method=method)) if one.std() > 0 else stuck for one in columns])
