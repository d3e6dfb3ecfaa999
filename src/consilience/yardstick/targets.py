"""What the methods over a network are meant to reach, and whether they did.

All errors are those beyond noise (`measures.py`), and there must be effective draws enough to tell. NUTS in unison:
converged, means within 0.05 and standard deviations within 3 %. The others: means within 0.1 and standard deviations
within 10 %. A parameter without a variance may be shifted by as much as a mean.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from consilience import posteriors
from consilience.yardstick.measures import ESS_GOAL
from consilience.yardstick.methods import METHODS

GRAPHS = ("ring", "path", "star", "complete")
"""What is meant by every graph."""
_LEAST_SHARE = 0.8
"""Of the posteriors with natural splits on the ring, for `kinetic`."""
_FEWER_ROUNDS = 100.0
_D_ULA = ("dula", "dula-paper")

Row = Mapping[str, Any]


class Target(NamedTuple):
    """How far off a method may be."""

    mean: float
    sd: float


_UNISON, _OTHERS = Target(0.05, 0.03), Target(0.1, 0.1)


def target_of(method: str) -> Target:
    """What a method is held against."""
    return _UNISON if method in ("nuts", "pooled") else _OTHERS


def targets_met(row: Row) -> dict[str, bool]:
    """Whether a cell is within the target of its method; of `nuts` it must have converged too."""
    if row["failed"] is not None:
        return {"on_target": False}
    target = target_of(row["method"])
    off = max(row["mean_error_beyond_noise"], row.get("shift_without_sd", 0.0))
    close = off <= target.mean and row["sd_error_beyond_noise"] <= target.sd
    enough = min(row["ess_mean"], row["ess_square"]) >= ESS_GOAL  # with few draws everything is noise
    return {"on_target": bool(close and enough and (target is _OTHERS or row["converged"]))}


class Finding(NamedTuple):
    """What became of one target of the whole table.

    Attributes:
        target: in words.
        found: in words.
        met: `None` if too little was measured to say.
    """

    target: str
    found: str
    met: bool | None

    @property
    def outcome(self) -> str:
        """In a word or two."""
        return "open" if self.met is None else "met" if self.met else "missed"


def findings(rows: Sequence[Row], count: int | None = None) -> list[Finding]:
    """Which targets of the whole table are met, which are missed, and which are open.

    Args:
        rows: with `on_target` and `false_verdict`.
        count: how many posteriors there are; if not given, all that this package knows.
    """
    count = len(posteriors.names()) if count is None else count
    return [_of_nuts(rows, count), _of_kinetic(rows, count), _of_verdicts(rows), *_of_rounds(rows)]


def _of_nuts(rows: Sequence[Row], count: int) -> Finding:
    own = [row for row in _of(rows, ["nuts"]) if row["graph"] in GRAPHS]
    wanted, reached = count * len(GRAPHS) * len(posteriors.SPLITS), _on_target(own)
    places = {(row["posterior"], row["graph"], row["split"]) for row in own}  # a split may be by several numbers
    met = False if reached < len(own) else True if len(places) >= wanted else None
    target = "nuts: every posterior on every graph converged, within 0.05 sd and 3 %"
    return Finding(target, f"{reached} of {len(own)} measured, of {wanted} by both splits", met)


def _of_kinetic(rows: Sequence[Row], count: int) -> Finding:
    own = [row for row in _of(rows, ["kinetic"]) if (row["graph"], row["split"]) == ("ring", "natural")]
    reached, least = _on_target(own), math.ceil(_LEAST_SHARE * count)
    met = True if reached >= least else False if len(own) - reached > count - least else None
    target = f"kinetic: {least} of {count} posteriors with natural splits on the ring within 0.1 sd and 10 %"
    return Finding(target, f"{reached} of {len(own)} measured, of {count}", met)


def _of_verdicts(rows: Sequence[Row]) -> Finding:
    claims, wrong = (sum(bool(row.get(name)) for row in rows) for name in ("converged", "false_verdict"))
    found = f"{wrong} of {claims} cells whose runs called themselves converged"
    return Finding(
        "no run calls itself converged that is more than 0.2 sd off", found, wrong == 0 if claims else None
    )


def _of_rounds(rows: Sequence[Row]) -> Iterable[Finding]:
    """Of `nuts` and `kinetic` the rounds, beside those of the better D-ULA wherever that is on target."""
    arrived: dict[tuple[str, ...], float] = {}
    for row in _of(rows, _D_ULA):
        if row["on_target"]:
            place, taken = _place(row), row["rounds_per_effective_mean"]
            arrived[place] = min(taken, arrived.get(place, math.inf))
    tried = len({_place(row) for row in _of(rows, _D_ULA)})
    for method in ("nuts", "kinetic"):
        own = [row for row in _of(rows, [method]) if _place(row) in arrived]
        ratios = [_rounds_saved(row, arrived[_place(row)]) for row in own]
        found = f"D-ULA is on target in {len(arrived)} of {tried} cells"
        if ratios:
            found += f"; there {method} takes {min(ratios):,.3g} to {max(ratios):,.3g} times fewer"
        target = f"{method}: {_FEWER_ROUNDS:.0f} times fewer rounds than D-ULA, where that is on target"
        yield Finding(target, found, min(ratios) >= _FEWER_ROUNDS if ratios else None)


def _rounds_saved(row: Row, by_dula: float) -> float:
    """How many times fewer rounds; a method that is off itself has saved nothing."""
    return by_dula / row["rounds_per_effective_mean"] if row["on_target"] else 0.0


def _of(rows: Sequence[Row], methods: Sequence[str]) -> list[Row]:
    return [row for row in rows if row["method"] in methods]


def _on_target(rows: Sequence[Row]) -> int:
    return sum(bool(row["on_target"]) for row in rows)


def _place(row: Row) -> tuple[str, ...]:
    return row["posterior"], row["graph"], row["split"], str(row["num_agents"])


def in_words(rows: Sequence[Row]) -> str:
    """How many cells of each method are on target, how many failed, and what became of the targets."""
    told = []
    for method in METHODS:
        own = _of(rows, [method])
        if own:
            failed = sum(row["failed"] is not None for row in own)
            lost = f", {failed} failed" if failed else ""
            told.append(f"{method} {_on_target(own)} of {len(own)}{lost}")
    if not told:
        return ""
    outcomes = [one.outcome for one in findings(rows)]
    counted = ", ".join(f"{outcomes.count(one)} {one}" for one in ("met", "missed", "open"))
    return f"Cells on target: {'; '.join(told)}. Targets of the whole table: {counted}."
