"""What the methods over a network are meant to reach, and the table in words.

All errors are those beyond noise (`measures.py`), and there must be effective draws enough to tell. NUTS in unison:
converged, means within 0.05 and standard deviations within 3 %. The others: means within 0.1 and standard deviations
within 10 %.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from consilience.yardstick.measures import ESS_GOAL
from consilience.yardstick.methods import METHODS


class Target(NamedTuple):
    """How far off a method may be."""

    mean: float
    sd: float


_UNISON, _OTHERS = Target(0.05, 0.03), Target(0.1, 0.1)


def target_of(method: str) -> Target:
    """What a method is held against."""
    return _UNISON if method in ("nuts", "pooled") else _OTHERS


def targets_met(row: Mapping[str, Any]) -> dict[str, bool]:
    """Whether a cell is within the target of its method; of `nuts` it must have converged too."""
    if row["failed"] is not None:
        return {"on_target": False}
    target = target_of(row["method"])
    close = row["mean_error_beyond_noise"] <= target.mean and row["sd_error_beyond_noise"] <= target.sd
    enough = min(row["ess_mean"], row["ess_square"]) >= ESS_GOAL  # with few draws everything is noise
    return {"on_target": bool(close and enough and (target is _OTHERS or row["converged"]))}


def in_words(rows: Sequence[Mapping[str, Any]]) -> str:
    """How many cells of each method are on target, how many failed, and how many verdicts were false."""
    told = []
    for method in METHODS:
        own = [row for row in rows if row["method"] == method]
        if own:
            reached, failed = (sum(map(bool, (row[name] for row in own))) for name in ("on_target", "failed"))
            lost = f", {failed} failed" if failed else ""
            told.append(f"{method} {reached} of {len(own)}{lost}")
    wrong = sum(row["false_verdict"] for row in rows)
    if not told:
        return ""
    claims = sum(bool(row.get("converged")) for row in rows)
    verdicts = f"Runs that called themselves converged: {claims}, of which {wrong} with a mean more than 0.2 sd off."
    return f"On target: {'; '.join(told)}. {verdicts}"
