"""What the warm-up of a sampler in unison found, as `status.json` and `summary.json` have it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from consilience.kernel.parameters import Parameters
from consilience.samplers.transitions.adaptation import Adaptation

_MOST_NUMBERS = 2500
"""What is larger is not stored: a covariance of more than 50 parameters, or so many private scales."""


def findings(now: Adaptation, parameters: Parameters, agents: Sequence[int], own: np.ndarray) -> dict[str, Any]:
    """Step size, mass and lengths.

    Args:
        now: what was found until now.
        parameters: the model's, at the agents that are here.
        agents: the numbers of these.
        own: `(agents, p)` their variances of private parameters.
    """
    mass = np.asarray(now.inverse_mass)
    covariance = mass if mass.ndim == 2 else None
    variances = mass if covariance is None else np.diag(covariance)
    about = {
        "step_size": float(now.step_size),
        "mass": "diagonal" if covariance is None else "dense",
        "scales": np.sqrt(variances).tolist(),
    }
    if covariance is not None and covariance.size <= _MOST_NUMBERS:
        about |= _of_dense(covariance, _shared_entries(parameters))
    if 0 < own.size <= _MOST_NUMBERS:
        kept = np.ones(own.shape, bool) if parameters.entries is None else parameters.entries[:, -own.shape[1] :]
        about["private_scales"] = {
            str(agent): np.sqrt(scales[real]).tolist() for agent, scales, real in zip(agents, own, kept, strict=True)
        }
    if now.length != ():
        about["longest_trajectory"] = float(now.length.longest)
    return about


def _of_dense(covariance: np.ndarray, names: Sequence[str]) -> dict[str, Any]:
    """The covariance, and what its correlations are like.

    >>> found = _of_dense(np.array([[4.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 9.0]]), ["a", "b", "c"])
    >>> found["largest_correlation"], round(found["condition"], 6)
    ({'between': ['a', 'b'], 'value': 0.5}, 3.0)
    """
    scales = np.sqrt(np.diag(covariance))
    correlations = covariance / np.outer(scales, scales)
    found: dict[str, Any] = {"covariance": covariance.tolist()}
    if len(scales) > 1:
        apart = np.abs(correlations - np.eye(len(scales)))
        i, j = sorted(int(place) for place in np.unravel_index(apart.argmax(), apart.shape))
        found["largest_correlation"] = {"between": [names[i], names[j]], "value": float(correlations[i, j])}
        found["condition"] = float(np.linalg.cond(correlations))
    return found


def _shared_entries(parameters: Parameters) -> list[str]:
    """What the shared entries of the unconstrained vector are called."""
    layout = parameters.groups[0].parameters if parameters.groups else parameters
    return [
        part.name + (f"[{', '.join(map(str, place))}]" if place else "")
        for part in sorted(layout.parts, key=lambda part: part.start)
        if not part.private
        for place in np.ndindex(*part.free_shape)
    ]
