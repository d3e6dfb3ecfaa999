"""Does the model say what was seen? Outcomes drawn from the posterior beside the observed ones, and calibration.

For each draw `w_s` an outcome is drawn for every row that a site holds, `y_s ~ p(y | w_s, x)`. If the model is right,
the observed outcomes look like one of these sets:

    numbers and counts   how many outcomes fall into each of some bins, observed and over drawn sets
    0 or 1               rows in bins of their mean probability: the share of ones, observed and over drawn sets
    classes              rows in bins of the predicted class's probability: the share that is right

What comes out are a few numbers for each bin, which a report can draw without the data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from consilience.errors import InputError
from consilience.predictive.blocks import blocks
from consilience.predictive.outcomes import Pieces, both_of
from consilience.problems import Outcomes

MOST_ROWS, MOST_DRAWS = 20_000, 400
_BINS, _CALIBRATION_BINS, _ROWS_OF_A_BIN = 30, 10, 10
_TAILS = (0.025, 0.975)


def check_program(outcomes: Outcomes, seed: int) -> Callable[..., Any]:
    """What `check_site` computes with; one program for all sites."""
    names = list(outcomes.kinds)
    return both_of(outcomes, names, names, seed)


def check_site(
    outcomes: Outcomes, program: Callable[..., Any], pieces: Pieces, rows: Any, block: int
) -> dict[str, dict[str, Any]]:
    """What the model says of a site's rows beside what was observed there, by outcome.

    Args:
        outcomes: what the model says about rows.
        program: of `check_program`.
        pieces: draws of the parameters that hold at the site.
        rows: the site's, with outcomes.
        block: how many rows to take at once.
    """
    observed = {name: np.asarray(values) for name, values in outcomes.observed(rows).items()}
    expected: dict[str, list[np.ndarray]] = {name: [] for name in outcomes.kinds}
    drawn: dict[str, list[np.ndarray]] = {name: [] for name in outcomes.kinds}
    for some in blocks(rows, block):
        sums: dict[str, Any] = dict.fromkeys(outcomes.kinds, 0.0)
        sets: dict[str, list[np.ndarray]] = {name: [] for name in outcomes.kinds}
        count = 0
        for piece in pieces:
            means, made = jax.tree.map(np.asarray, program(piece, some.rows, some.number))
            count += len(piece.numbers)
            for name in outcomes.kinds:
                sums[name] = sums[name] + means[name][:, : some.num_rows].sum(0, dtype=float)
                sets[name].append(made[name][:, : some.num_rows])
        for name in outcomes.kinds:
            expected[name].append(sums[name] / count)
            drawn[name].append(np.concatenate(sets[name]))
    return {
        name: _described(kind, observed[name], np.concatenate(expected[name]), np.concatenate(drawn[name], 1))
        for name, kind in outcomes.kinds.items()
    }


def _described(kind: str, observed: np.ndarray, expected: np.ndarray, drawn: np.ndarray) -> dict[str, Any]:
    """From outcomes `(rows, …)`, their means and drawn ones `(draws, rows, …)`."""
    if not np.isfinite(observed).all() or not np.isfinite(expected).all():
        raise InputError("an outcome or its mean is not finite")
    about = {"kind": kind, "num_rows": len(observed), "num_draws": len(drawn)}
    if kind == "class":
        return {**about, **_class_calibration(observed.astype(int), expected, drawn)}
    flat = drawn.reshape(len(drawn), -1).astype(float)
    statistics = {"mean": _beside(observed.mean(), flat.mean(1))}
    if kind == "binary":
        return {**about, "statistics": statistics, **_calibration(observed.ravel(), expected.ravel(), flat)}
    statistics["sd"] = _beside(observed.std(), flat.std(1))
    return {**about, "statistics": statistics, **_histogram(kind, observed.ravel().astype(float), flat)}


def _histogram(kind: str, observed: np.ndarray, drawn: np.ndarray) -> dict[str, Any]:
    """Counts in bins over the middle of the observed values; what lies beyond is counted in the outermost ones."""
    low, high = np.quantile(observed, (0.005, 0.995))
    if kind == "count":
        width = max(1.0, np.ceil((high - low + 1) / _BINS))
        first, last = np.floor(low) - 0.5, np.ceil(high) + 0.5
        edges = np.append(np.arange(max(-0.5, first - width), last + width, width), np.inf)[:-1]
    else:
        margin = 0.1 * (high - low) or 0.5
        edges = np.linspace(low - margin, high + margin, _BINS + 1)

    def counts(values: np.ndarray) -> np.ndarray:
        return np.histogram(np.clip(values, edges[0], edges[-1]), edges)[0]

    over = np.quantile([counts(one) for one in drawn], (_TAILS[0], 0.5, _TAILS[1]), axis=0)
    return {
        "edges": edges.tolist(),
        "observed": counts(observed).tolist(),
        **{name: values.tolist() for name, values in zip(("low", "median", "high"), over, strict=True)},
    }


def _calibration(observed: np.ndarray, expected: np.ndarray, drawn: np.ndarray) -> dict[str, Any]:
    """Shares of ones in bins of equally many rows, ordered by their probability."""
    return _by_bin(expected, observed, drawn)


def _class_calibration(observed: np.ndarray, expected: np.ndarray, drawn: np.ndarray) -> dict[str, Any]:
    """Shares of right predictions in bins of the predicted class's probability."""
    predicted, confidence = expected.argmax(-1).ravel(), expected.max(-1).ravel()
    right = (predicted == observed.ravel()).astype(float)
    made = (drawn.reshape(len(drawn), -1) == predicted).astype(float)
    return {"statistics": {"accuracy": _beside(right.mean(), made.mean(1))}, **_by_bin(confidence, right, made)}


def _by_bin(probability: np.ndarray, observed: np.ndarray, drawn: np.ndarray) -> dict[str, Any]:
    bins = int(np.clip(len(probability) // _ROWS_OF_A_BIN, 1, _CALIBRATION_BINS))
    found: dict[str, list[Any]] = {name: [] for name in ("rows", "predicted", "observed", "low", "high")}
    for places in np.array_split(np.argsort(probability, kind="stable"), bins):
        low, high = np.quantile(drawn[:, places].mean(1), _TAILS)
        values = (len(places), probability[places].mean(), observed[places].mean(), low, high)
        for name, value in zip(found, values, strict=True):
            found[name].append(value if name == "rows" else float(value))
    return found


def _beside(observed: Any, drawn: np.ndarray) -> dict[str, float]:
    """A statistic of the observed outcomes, and its interval and share above over drawn sets."""
    low, high = np.quantile(drawn, _TAILS)
    above = (drawn > observed).mean() + 0.5 * (drawn == observed).mean()
    return {"observed": float(observed), "low": float(low), "high": float(high), "share_above": float(above)}
