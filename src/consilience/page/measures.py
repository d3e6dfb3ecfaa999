"""How far a run has come towards convergence: a row for each parameter, and the verdict in words.

The rule is that of `runs/convergence.py`; of a complete run the rows and the verdict are those of its summary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from consilience.diagnostics.agreement import agreement
from consilience.diagnostics.convergence import effective_draws, rhat
from consilience.page.history import Line
from consilience.reports.verdicts import kind_of
from consilience.runs.convergence import shortcomings, verdict

_FEWEST_DRAWS = 8
EVERYTHING = "every parameter at every agent"


class Verdict(NamedTuple):
    """Whether the draws suffice."""

    words: str
    kind: str
    """`converged`, `not` (yet, or in the end), `other` (no sample of the posterior), or `unknown`."""


def row_of(label: str, lines: Sequence[Line]) -> dict[str, Any]:
    """Moments, R-hat and effective draws of one number so far; those of the worst agent.

    >>> draws = np.random.default_rng(0).normal(size=(2, 500))
    >>> row = row_of("w", [Line(0, draws, np.ones(500), np.arange(500))])
    >>> row["agent"], row["rhat"] < 1.02, row["ess"] > 500
    (0, True, True)
    """
    every = np.concatenate([one.values.ravel() for one in lines])
    if len(every) < _FEWEST_DRAWS:
        return {"parameter": label, "label": label, "rhat": None, "ess": None}
    mixing = [
        (float(rhat(one.values[..., None])[0]), float(effective_draws(one.values[..., None])[0])) for one in lines
    ]
    low, high = np.quantile(every, (0.025, 0.975))
    worst = max(range(len(lines)), key=lambda i: (np.isnan(mixing[i][0]), mixing[i][0]))
    return {
        "parameter": label,
        "label": label,
        "agent": lines[worst].agent,
        "mean": float(every.mean()),
        "standard_deviation": float(every.std()),
        "low": float(low),
        "high": float(high),
        "rhat": _plain(mixing[worst][0]),
        "ess": _plain(min(one[1] for one in mixing) if not any(np.isnan(one[1]) for one in mixing) else np.nan),
    }


def across_agents(lines: Sequence[Line]) -> float | None:
    """R-hat across agents of one number, over the draws that all of them have; nothing of what is not shared."""
    if len(lines) < 2:
        return None
    length = min(one.values.shape[1] for one in lines)
    together = np.stack([one.values[:, :length] for one in lines], 1)
    return _plain(float(agreement(together[..., None])[0]))


def verdict_so_far(
    rows: Sequence[Mapping[str, Any]],
    temperature: float,
    diverging: float = 0.0,
    across: Mapping[str, float | None] | None = None,
    scope: str = EVERYTHING,
) -> Verdict:
    """What would be said of the draws if there were no more; `scope` says of what there are rows."""
    if temperature != 1:
        return Verdict(verdict(None, [f"the temperature is {temperature:g}"]), "other")
    if not rows or all(row["rhat"] is None for row in rows):
        return Verdict("Too few draws to tell.", "unknown")
    why_not = shortcomings(rows, diverging, across)
    if why_not:
        judged = "" if scope == EVERYTHING else f" Looked at: {scope}."
        return Verdict(f"Not converged yet: {'; '.join(why_not)}.{judged}", "not")
    return Verdict(f"So far: {verdict(True, [], rows, scope)}", "converged")


def scope_of(lines: Mapping[str, Sequence[Line]], num_parameters: int, num_agents: int) -> str:
    """Of what draws are looked at, in words.

    >>> line = Line(0, np.zeros((1, 9)), np.ones(9), np.arange(9))
    >>> scope_of({"v": [line]}, 1, 1), scope_of({"v": [line, line._replace(agent=3)]}, 50, 4)
    ('every parameter at every agent', '1 of 50 parameters at 2 of 4 agents')
    """
    own = {one.agent for some in lines.values() for one in some if one.agent is not None}
    parameters = (
        "every parameter" if len(lines) == num_parameters else f"{len(lines)} of {num_parameters:,} parameters"
    )
    agents = "every agent" if not own or len(own) == num_agents else f"{len(own)} of {num_agents:,} agents"
    return f"{parameters} at {agents}"


def verdict_of(summary: Mapping[str, Any]) -> Verdict:
    """The last word on a complete run, as its summary has it."""
    if "verdict" not in summary:
        return Verdict("This run is of an older version, which gave no verdict.", "unknown")
    advice = summary.get("remedy")
    words = summary["verdict"] + (f" What to do: {advice}." if advice else "")
    return Verdict(words, kind_of(summary))


def _plain(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
