"""Draws as curves that a browser draws at once: densities, traces, and how agents come together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray

from consilience.page.history import Line
from consilience.runs.posterior import evenly
from consilience.studies.priors import Prior

_BINS, _TRACE, _TIMES, _MOST_TIMES = 72, 300, 160, 20_000
Points = list[tuple[float, float]]


class Curve(NamedTuple):
    """A line with a name; of one agent, or of one chain where agents have the same draws."""

    name: str
    points: Points
    shares: Sequence[float] = ()
    """Of calibration, what share of the rows each point stands for, if that is known."""


class Curves(NamedTuple):
    """What is drawn of one number."""

    label: str
    density: list[Curve]
    prior: Points
    """The prior's density where the draws are; empty if the run's directory does not say it."""
    trace: list[Curve]


def curves_of(label: str, lines: Sequence[Line], prior: Prior | None) -> Curves:
    """Densities on one grid, agents on top of each other, and traces of the first chain; of a shared one, chains."""
    named = _named(lines)
    every = np.concatenate([values for _, values, _, _ in named]) if named else np.zeros(0)
    if len(every) < 2:
        return Curves(label, [], [], [])
    low, high = np.quantile(every, (0.001, 0.999))
    width = (high - low) or max(abs(high), 1.0)
    edges = np.linspace(low - 0.12 * width, high + 0.12 * width, _BINS + 1)
    centres = (edges[1:] + edges[:-1]) / 2
    density = [Curve(name, _pairs(centres, smoothed(values, weights, edges))) for name, values, weights, _ in named]
    before = [] if prior is None else _pairs(centres, density_of(prior, centres))
    return Curves(
        label, density, before, [Curve(name, _thinned(steps, values)) for name, values, _, steps in traces(lines)]
    )


def _named(lines: Sequence[Line]) -> list[tuple[str, np.ndarray, np.ndarray, np.ndarray]]:
    """All draws of each agent; of what all agents have in common those of each chain."""
    if len(lines) == 1 and lines[0].agent is None:
        return traces(lines)
    return [
        (f"agent {one.agent}", one.values.ravel(), np.tile(one.weights, len(one.values)), one.steps) for one in lines
    ]


def traces(lines: Sequence[Line]) -> list[tuple[str, np.ndarray, np.ndarray, np.ndarray]]:
    """The first chain at each agent, or every chain of what all agents have in common."""
    if len(lines) == 1:
        (one,) = lines
        return [(f"chain {chain}", values, one.weights, one.steps) for chain, values in enumerate(one.values)]
    return [(f"agent {one.agent}", one.values[0], one.weights, one.steps) for one in lines]


def smoothed(values: np.ndarray, weights: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """A histogram smoothed with Silverman's bandwidth; its area is 1.

    >>> edges = np.linspace(-5, 5, 101)
    >>> found = smoothed(np.random.default_rng(0).normal(size=4000), np.ones(4000), edges)
    >>> bool(abs(found.sum() * 0.1 - 1) < 0.01), bool(abs(found[50] - 0.4) < 0.04)
    (True, True)
    """
    counts, _ = np.histogram(values, edges, weights=weights)
    step = edges[1] - edges[0]
    quartiles = np.subtract(*np.quantile(values, (0.75, 0.25))) / 1.349
    spread = min(values.std(), quartiles) or values.std() or step
    bandwidth = max(0.9 * spread * len(values) ** -0.2 / step, 0.5)
    reach = int(min((len(counts) - 1) // 2, np.ceil(4 * bandwidth)))
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) / bandwidth) ** 2)
    found = np.convolve(counts, kernel / kernel.sum(), "same")
    return found / (weights.sum() * step)


def density_of(prior: Prior, grid: np.ndarray) -> np.ndarray:
    """The density of a study's prior.

    >>> density_of(Prior(distribution="normal", mean=0, sd=2), np.array([0.0])).round(3).tolist()
    [0.199]
    """
    from scipy import stats

    kind, scale = prior.distribution, 1 / (prior.rate or 1.0)
    frozen = {
        "normal": stats.norm(prior.mean or 0.0, prior.sd or 1.0),
        "student_t": stats.t(prior.df or 1.0, prior.mean or 0.0, prior.sd or 1.0),
        "cauchy": stats.cauchy(0.0, prior.sd or 1.0),
        "gamma": stats.gamma(prior.shape or 1.0, scale=scale),
        "exponential": stats.expon(scale=scale),
    }
    found = np.asarray(frozen[kind.removeprefix("half_")].pdf(grid))
    return np.where(grid >= 0, 2 * found, 0.0) if kind.startswith("half_") else found


def priors_of(study: Mapping[str, Any] | None) -> dict[str, Prior]:
    """The priors that a run's plan says, by the names that tables show; those of studies."""
    return {name: Prior(**entries) for name, entries in ((study or {}).get("priors") or {}).items()}


def over_time(metrics: xarray.Dataset, name: str) -> Points:
    """A measure over steps, mean over chains, in so many bins that are even on the log scale."""
    some = metrics[[name, "step"]].isel(time=slice(None, None, 1 + metrics.sizes["time"] // _MOST_TIMES))
    steps, values = some["step"].to_numpy(), some[name].to_numpy().mean(0)
    there = np.isfinite(values) & (values > 0) & (steps > 0)
    steps, values = steps[there], values[there]
    if len(steps) <= _TIMES:
        return _pairs(steps, values)
    which = np.digitize(steps, np.geomspace(steps[0], steps[-1] + 1, _TIMES + 1))
    return [(float(steps[which == b].mean()), float(values[which == b].mean())) for b in np.unique(which)]


def even_times(metrics: xarray.Dataset, name: str) -> Points:
    """A measure over steps, of the first chain, at so many of them."""
    return _thinned(metrics["step"].to_numpy(), np.asarray(metrics[name].to_numpy()[0], float))


def _thinned(steps: np.ndarray, values: np.ndarray) -> Points:
    chosen = evenly(len(values), _TRACE)
    return _pairs(steps[chosen], values[chosen])


def _pairs(x: np.ndarray, y: np.ndarray) -> Points:
    """Points with as many digits as a screen can show."""
    return [(float(f"{a:.7g}"), float(f"{b:.5g}")) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
