"""What stands in words and tables: warm-up, messages, participation, the log, accuracy and calibration."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray

from consilience.page.curves import Curve, Points, even_times
from consilience.plans import Plan
from consilience.reports.tables import shown
from consilience.runs.answers import checks_of
from consilience.runs.directory import RunDirectory
from consilience.runs.posterior import evenly

_TAIL_BYTES, _MOST_LINES, _LONGEST_LINE = 65_536, 200, 500
_MOST_CURVES = 16


class LogLine(NamedTuple):
    """A line of a node's log."""

    who: str
    words: str


class WarmUp(NamedTuple):
    """Where the warm-up stands and what it found."""

    stage: str
    facts: dict[str, str]
    step_sizes: Points
    windows: list[Mapping[str, float]]


class Classified(NamedTuple):
    """How right and how calibrated predictions are, as far as it was computed."""

    words: str
    accuracy: list[Curve]
    calibration: list[Curve]


def warmup_of(plan: Plan, step: int, status: Mapping[str, Any], metrics: xarray.Dataset | None) -> WarmUp | None:
    """The warm-up of a sampler that tunes itself; `None` for others."""
    if not plan.sampler.tunes_itself:
        return None
    unit, found = ("move" if plan.is_unison else "step"), status.get("adaptation") or {}
    most = "" if plan.is_unison else "at most "
    stage = f"Warming up: {unit} {step:,} of {most}{plan.burn_in:,}" if step < plan.burn_in else "The warm-up is done"
    if step < plan.burn_in and found.get("windows"):
        stage += f", {len(found['windows'])} windows so far"
    facts = {
        "step size": found.get("step_size"),
        "mass": found.get("mass"),
        "largest correlation": found.get("largest_correlation", {}).get("value"),
        "condition number of the correlations": found.get("condition") if plan.is_unison else None,
        "longest trajectory": found.get("longest_trajectory"),
        "whitening": found.get("whitening"),
        "its condition number": None if plan.is_unison else found.get("condition"),
        "exchanges in a step, K": found.get("exchanges"),
        "largest curvature Λ": found.get("curvature"),
        "excess ℓ of one agent": found.get("excess"),
    }
    sizes: Points = []
    if metrics is not None and "step_size" in metrics:
        sizes = even_times(metrics, "step_size")
        facts["step size"] = float(metrics["step_size"].to_numpy()[0, -1])
        facts |= {"acceptance, last 100 moves": float(metrics["acceptance_rate"].to_numpy()[:, -100:].mean())}
        facts |= {"mean tree depth": float(metrics["depth"].to_numpy()[:, -100:].mean()) or None}
        later = metrics["step"].to_numpy() > plan.burn_in
        facts |= {"draws that diverged": int(metrics["diverging"].to_numpy()[:, later].sum())}
    told = {name: shown(value) for name, value in facts.items() if value not in (None, "")}
    return WarmUp(stage, told, sizes, list(found.get("windows", ())))


def message_rows(
    answers: Iterable[Mapping[str, Any]], summaries: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Messages and bytes of each node, and why some were rejected: as they answer, or as a finished run says."""
    ended = [node for one in summaries for node in one.get("nodes") or ([one] if "messages" in one else [])]
    found = {one["agent"]: one for one in [*ended, *answers]}  # an answer is newer
    return [
        {
            "agent": agent,
            **one["messages"],
            **one.get("traffic", {}),
            "why": _reasons(one.get("rejections", {})),
        }
        for agent, one in sorted(found.items())
    ]


def _reasons(found: Mapping[str, int]) -> str:
    return "; ".join(f"{reason} ({count:,})" for reason, count in found.items())


def participation_of(
    members: np.ndarray | None, present: Iterable[int] | None, num_agents: int
) -> list[dict[str, Any]]:
    """In what share of the draws each agent's data counted, and whether it does now; empty if nobody counts."""
    there = None if present is None else set(present)
    if members is None or not len(members):
        return []
    shares = members.mean(0)
    return [
        {"agent": agent, "share": float(shares[agent]), "now": None if there is None else agent in there}
        for agent in range(num_agents)
    ]


def log_of(logs: Mapping[str, Path]) -> list[LogLine]:
    """The last lines of what nodes said, those with a time in its order."""
    found: list[tuple[str, LogLine]] = []
    for who, path in logs.items():
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
        moment = ""
        for one in lines[-_MOST_LINES:]:
            words = _line(one)
            moment = words[:23].replace("T", " ") if words[:4].isdigit() else moment  # a line without one goes along
            found.append((moment, LogLine(who, words)))
    return [one for _, one in sorted(found, key=lambda pair: pair[0])][-_MOST_LINES:]


def _line(text: str) -> str:
    """One line of a log, of bounded length; of a JSON object its time and its message."""
    if text.startswith("{"):
        try:
            entries = json.loads(text)
            text = f"{entries['time']} {entries['message']}"
        except (ValueError, KeyError, TypeError):
            pass
    return "".join(one if one.isprintable() else " " for one in text[:_LONGEST_LINE])


def classified(run: RunDirectory) -> Classified | None:
    """Accuracy over the run and reliability, of classifiers whose predictions were compared."""
    accuracy, calibration, words = [], [], []
    if (run.path / "accuracy.zarr").exists():
        found = run.read_beside("accuracy")
        steps, values = found["step"].to_numpy(), 100 * found["accuracy"].to_numpy().mean(0)
        chosen = evenly(len(steps), 300)
        agents = evenly(len(values), _MOST_CURVES)
        accuracy = [Curve(f"agent {i}", _points(steps[chosen], values[i, chosen])) for i in agents]
        words.append(f"Accuracy of the last draws: {values[:, -20:].mean():.2f} %.")
    if (run.path / "predictions.zarr").exists():
        found = run.read_beside("predictions")
        right = found["predicted"].to_numpy() == found["label"].to_numpy()
        words.append(
            f"Averaged over draws, {100 * right.mean():.2f} % of the held-out inputs are classified rightly."
        )
        if "bin_share" in found:
            words.append("In the figure of calibration a point is as large as its rows are many.")
        for i, agent in enumerate(found["agent"].to_numpy()[:_MOST_CURVES].tolist()):
            where, share = found["bin_confidence"].to_numpy()[i], found["bin_accuracy"].to_numpy()[i]
            there = np.isfinite(where) & np.isfinite(share)
            rows = found["bin_share"].to_numpy()[i][there].tolist() if "bin_share" in found else ()
            calibration.append(Curve(f"agent {agent}", _points(where[there], share[there]), rows))
    for site in checks_of(run)[:_MOST_CURVES]:
        for name, one in site["outcomes"].items():
            if "predicted" in one:
                points = _points(np.array(one["predicted"]), np.array(one["observed"]))
                calibration.append(Curve(f"agent {site['agent']}, {name}", points))
    return Classified(" ".join(words), accuracy, calibration) if accuracy or calibration else None


def _points(x: np.ndarray, y: np.ndarray) -> Points:
    return list(zip(x.astype(float).tolist(), y.astype(float).round(5).tolist(), strict=True))
