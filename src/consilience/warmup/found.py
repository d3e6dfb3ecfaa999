"""What a warm-up found, as plain values that a run stores and shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from consilience.kernel.tuning import Tuning
from consilience.kernel.whitening import Dense, Whitening
from consilience.samplers import Corrected
from consilience.samplers.corrected import MOST_HEATING
from consilience.warmup.stages import RECORD, Stage

_MOST_SHOWN = 1000


def heating(sampler: Corrected, tuning: Tuning, stage: Stage) -> float | None:
    """The temperature at which minibatches with this noise sample, beside the one wanted; `None` without any."""
    noise = float(stage.noise[1])
    if not np.isfinite(noise):
        return None
    return sampler.heating(float(tuning.step_size), noise / (sampler.temperature or 1.0))


def described(sampler: Corrected, tuning: Tuning, stage: Stage) -> dict[str, Any]:
    """What a warm-up found, as plain values."""
    whitening = tuning.whitening
    if isinstance(whitening, Dense):
        scales, condition = np.sqrt((whitening.root**2).sum(1)), float(np.linalg.cond(whitening.root))
    else:
        scales, condition = whitening.scale, float(whitening.scale.max() / whitening.scale.min())
    records = stage.records[np.isfinite(stage.records[:, 0])]
    return {
        "step_size": float(tuning.step_size),
        "exchanges": int(tuning.exchanges),
        "curvature": float(stage.curvature[0]),
        "excess": float(stage.curvature[1]),
        "whitening": "dense" if isinstance(whitening, Dense) else "diagonal",
        "centre": np.asarray(whitening.mean).tolist() if len(scales) <= _MOST_SHOWN else [],
        "scales": scales.tolist() if len(scales) <= _MOST_SHOWN else [],
        **_matrix(whitening),
        "condition": condition,
        "settled": bool(stage.is_settled),
        **_noise(sampler, tuning, stage),
        "windows": [dict(zip(RECORD, row, strict=True)) for row in records.tolist()],
        "rounds": int(stage.rounds),
        "sums": int(stage.sums),
        "gradients": int(stage.gradients),
    }


def _matrix(whitening: Whitening) -> dict[str, Any]:
    """The whole matrix of a small model: with it another run can begin in these coordinates."""
    if not isinstance(whitening, Dense) or np.size(whitening.root) > _MOST_SHOWN:
        return {}
    return {"root": np.asarray(whitening.root).tolist()}


def _noise(sampler: Corrected, tuning: Tuning, stage: Stage) -> dict[str, Any]:
    """Of minibatches: the noise of their gradients, and what it does."""
    if (heated := heating(sampler, tuning, stage)) is None:
        return {}
    plain, left = stage.noise.tolist()
    return {
        "control_variates": tuning.anchor is not None,
        "gradient_noise": left,
        "gradient_noise_without": plain,
        "heating": heated,
    }


def heating_warnings(found: Mapping[str, Any]) -> list[str]:
    """What the noise of minibatches does to the draws, if it is much, and what to do.

    >>> heating_warnings({"heating": 1.2, "control_variates": True})[0].split(":")[0]
    'the noise of minibatches heats by 20 %'
    """
    heating = found.get("heating")
    if heating is None or heating <= MOST_HEATING:
        return []
    remedy = "a larger batch_size" if found["control_variates"] else "control variates (control_variates = true)"
    return [
        f"the noise of minibatches heats by {100 * (heating - 1):.0f} %: variances are too large by about as much; "
        f"{remedy}, or a smaller step_size than the one found, helps"
    ]
