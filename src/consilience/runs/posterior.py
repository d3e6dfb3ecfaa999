"""The posterior of a run as rows, one for each parameter: mean, spread, interval, mixing.

What all agents have in common is one row; what is an agent's own has a row for each.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from consilience.diagnostics.convergence import effective_draws, mean_error, rhat
from consilience.runs.directory import RunDirectory

LOW, HIGH = 0.025, 0.975


def entry_name(name: str, place: tuple[int, ...]) -> str:
    """What one entry of a variable is called.

    >>> entry_name("w", ()), entry_name("w", (0, 3))
    ('w', 'w[0, 3]')
    """
    return name + (f"[{', '.join(map(str, place))}]" if place else "")


def posterior_rows(run: RunDirectory) -> list[dict[str, Any]]:
    """Rows of a run in unison, in the model's order."""
    draws = run.latest_draws
    return [
        _row(entry_name(name, place), agent, values)
        for name in draws.attrs["parameters"]
        for agent, place, values in _entries(draws[name])
        if np.isfinite(values).all()  # agents may have fewer private parameters than others
    ]


def shared_digest(draws: Any) -> str:
    """A digest of the draws of shared parameters in unison: all agents have the same."""
    digest = hashlib.sha256()
    for name in draws.attrs["parameters"]:
        if "agent" not in draws[name].dims:
            digest.update(np.ascontiguousarray(draws[name].to_numpy()).tobytes())
    return digest.hexdigest()


def _entries(variable: Any) -> Iterator[tuple[int | None, tuple[int, ...], np.ndarray]]:
    values = variable.to_numpy()
    if "agent" not in variable.dims:
        for place in np.ndindex(*values.shape[2:]):
            yield None, place, values[(slice(None), slice(None), *place)]
        return
    for number, agent in enumerate(variable["agent"].to_numpy()):
        for place in np.ndindex(*values.shape[3:]):
            yield int(agent), place, values[(slice(None), number, slice(None), *place)]


def _row(parameter: str, agent: int | None, values: np.ndarray) -> dict[str, Any]:
    """From `(chains, draws)`."""
    column = values[..., None]
    low, high = np.quantile(values, (LOW, HIGH))
    measured = {
        "rhat": rhat(column),
        "ess": effective_draws(column),
        "ess_tail": effective_draws(column, "tail"),
        "mean_error": mean_error(column),
    }
    return {
        "parameter": parameter,
        **({} if agent is None else {"agent": agent}),
        "mean": float(values.mean()),
        "standard_deviation": float(values.std()),
        "low": float(low),
        "high": float(high),
        **{name: float(value[0]) if np.isfinite(value[0]) else None for name, value in measured.items()},
    }
