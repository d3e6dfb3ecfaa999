"""Has a run converged? The rule, when to look, and the verdict in words.

A run has converged if for every parameter, at every agent, R-hat is at most 1.01 and there are at least 400 effective
draws (Vehtari et al., 2021). Where each agent walks a chain of its own, agents must agree too: R-hat across them is
at most 1.01 (`diagnostics/agreement.py`). R-hat cannot see what no chain has visited: chains that all sit in one of
several modes look converged.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from consilience.diagnostics.agreement import agreement
from consilience.diagnostics.convergence import effective_draws, rhat
from consilience.plans import Plan
from consilience.runs.directory import RunDirectory, private_names
from consilience.samplers import SAMPLERS, Unison

RHAT_GOAL, ESS_GOAL = 1.01, 400.0
_FIRST_LOOK, _GROWTH, _UNIT = 200, 1.25, 50
_MOST_DIVERGING = 0.01
_LEAST_BFMI = 0.3
_MOST_TIMES = 1000  # as long, beyond which nobody waits


def looks(num_warmup: int, store_every: int = 1) -> Iterator[int]:
    """The steps after which a run looks whether its draws suffice: after 200 draws, and then ever more of them.

    >>> from itertools import islice
    >>> list(islice(looks(1000), 5))
    [1200, 1250, 1350, 1450, 1600]
    """
    draws = _FIRST_LOOK
    while True:
        yield num_warmup + draws * store_every
        draws = math.ceil(draws * _GROWTH / _UNIT) * _UNIT


class Standing(NamedTuple):
    """How far the draws so far are from the goals, for the worst parameter that is stored here."""

    worst_rhat: float
    """Across chains; where each agent walks a chain of its own, across agents too."""
    fewest_effective: float

    @property
    def is_enough(self) -> bool:
        """Whether they meet them."""
        return self.worst_rhat <= RHAT_GOAL and self.fewest_effective >= ESS_GOAL


def standing(run: RunDirectory) -> Standing:
    """Where the draws so far stand; what cannot be told is no number, and not enough."""
    draws = run.latest_draws
    worst, fewest, private = [1.0], [math.inf], private_names(draws)
    for name in draws.attrs["parameters"]:
        values, with_agents = draws[name].to_numpy(), "agent" in draws[name].dims
        for entry in columns(values, with_agents):
            if not np.isnan(entry).all():  # filling: agents may have fewer private parameters than others
                finite = np.isfinite(entry).all()
                worst.append(float(rhat(entry[..., None])[0]) if finite else math.nan)
                fewest.append(float(effective_draws(entry[..., None])[0]) if finite else math.nan)
        if with_agents and name not in private and values.shape[1] > 1:
            worst += agreement(values.reshape(*values.shape[:3], -1)).tolist()
    return Standing(float(np.max(worst)), float(np.min(fewest)))  # numpy keeps what is no number


def is_enough(run: RunDirectory) -> bool:
    """Whether the draws so far meet the goals, for every parameter that is stored here."""
    return standing(run).is_enough


def columns(values: np.ndarray, with_agents: bool) -> Iterator[np.ndarray]:
    """Each entry of a variable at each agent, `(chains, draws)`."""
    if with_agents:
        for agent in range(values.shape[1]):
            yield from columns(values[:, agent], False)
        return
    for place in np.ndindex(*values.shape[2:]):
        yield values[(slice(None), slice(None), *place)]


def shortcomings(
    rows: Iterable[Mapping[str, Any]], diverging: float = 0.0, across: Mapping[str, float | None] | None = None
) -> list[str]:
    """Why a run has not converged; nothing if it has.

    Args:
        rows: of `parameter`, `agent`, `rhat` and `ess`.
        diverging: the share of draws that diverged.
        across: R-hat across agents of each parameter that they share; `None` where it cannot be told.
    """
    found = list(rows)
    reasons = []
    known = [row for row in found if row["rhat"] is not None and row["ess"] is not None]
    if len(known) < len(found):
        fixed = next(row for row in found if row["rhat"] is None or row["ess"] is None)
        reasons.append(f"{_name(fixed)} does not move, has draws that are no numbers, or too few to tell")
    if known:
        worst = max(known, key=lambda row: row["rhat"])
        if worst["rhat"] > RHAT_GOAL:
            reasons.append(f"R-hat of {_name(worst)} is {_close(worst['rhat'])}, {RHAT_GOAL} at most is wanted")
        fewest = min(known, key=lambda row: row["ess"])
        if fewest["ess"] < ESS_GOAL:
            reasons.append(
                f"{_name(fewest)} has {fewest['ess']:,.0f} effective draws, {ESS_GOAL:.0f} at least are wanted"
            )
    told = {name: value for name, value in (across or {}).items() if value is not None}
    if told and max(told.values()) > RHAT_GOAL:
        name = max(told, key=lambda one: told[one])
        reasons.append(
            f"agents disagree about {name}: R-hat across agents is {_close(told[name])}, {RHAT_GOAL} at most is "
            "wanted"
        )
    if diverging > _MOST_DIVERGING:
        reasons.append(f"{100 * diverging:.1f} % of the draws diverged")
    return reasons


def _close(value: float) -> str:
    """An R-hat, with more digits near the goal.

    >>> _close(1.0149), _close(1.2), _close(2.6349)
    ('1.015', '1.2', '2.63')
    """
    return f"{value:.4g}" if value < 1.1 else f"{value:.3g}"


def verdict(
    converged: bool | None,
    why_not: Sequence[str],
    rows: Iterable[Mapping[str, Any]] = (),
    scope: str = "every parameter at every agent",
) -> str:
    """The verdict in words; `scope` says what the rows are about."""
    if converged is None:
        return f"Not a sample of the posterior: {'; '.join(why_not)}."
    if not converged:
        return f"Not converged: {'; '.join(why_not)}."
    found = list(rows)
    worst, fewest = max(row["rhat"] for row in found), min(row["ess"] for row in found)
    return (
        f"Converged: R-hat is at most {worst:.3f} and there are at least {fewest:,.0f} effective draws, for {scope}."
    )


def remedy(plan: Plan, rows: Iterable[Mapping[str, Any]], diverging: float, agents_disagree: bool) -> str:
    """What to do about a run that has not converged, for its own plan, in words.

    Args:
        plan: what the run followed.
        rows: of `rhat` and `ess`, as for `shortcomings`.
        diverging: the share of draws that diverged.
        agents_disagree: whether R-hat across agents is too large.
    """
    found, advice = list(rows), []
    if shortcomings(found) or agents_disagree:  # not for divergences alone, of which there would be more
        advice.append(_longer(plan, min((row["ess"] for row in found if row["ess"]), default=None)))
    if not plan.sampler.tunes_itself:
        tuning = (kind for kind, one in SAMPLERS.items() if one.tunes_by_default)
        fitting = next(kind for kind in tuning if plan.batch_size is None or not issubclass(SAMPLERS[kind], Unison))
        advice.append(f"or take a sampler that tunes itself and stops when it has converged, --sampler {fitting}")
    if agents_disagree:
        advice.append(
            "smaller steps or more mixing bring agents together"
            if not plan.sampler.tunes_itself
            else "a longer warm-up (--warmup) brings agents together"
        )
    if diverging > _MOST_DIVERGING:
        advice.append("against draws that diverge, --target-acceptance 0.95 or a non-centred hierarchy")
    return "; ".join(advice)


def _longer(plan: Plan, fewest: float | None) -> str:
    """How much longer to sample, from the fewest effective draws; a long way is said to be one."""
    missing = 2.0 if fewest is None else max(2.0, 1.2 * ESS_GOAL / fewest)
    if plan.stops_itself:
        return f"allow more draws than {plan.max_draws:,} (--max-draws), if the traces show chains that move"
    if plan.sampler.tunes_itself:
        return "leave out --draws, and it samples until it has converged"
    if missing > _MOST_TIMES:
        return f"its steps are far too few or too small: more than {_MOST_TIMES} times as many are needed"
    wanted = float(f"{missing * plan.num_steps:.2g}")
    return f"sample longer, about {wanted:,.0f} steps in place of {plan.num_steps:,} (--steps)"


def warnings_of(divergences: int, bfmi: Sequence[float], deepest: float) -> list[str]:
    """What users of NUTS and HMC want to be told, and what to do."""
    found = []
    if divergences:
        found.append(
            f"{divergences:,} draw{'' if divergences == 1 else 's'} diverged: the posterior has places that the step "
            "size cannot follow; try target_acceptance 0.95, or other coordinates (a non-centred hierarchy)"
        )
    if any(value < _LEAST_BFMI for value in bfmi):
        found.append(
            f"BFMI is {min(bfmi):.2f}, below {_LEAST_BFMI}: the energy moves slowly, as with heavy tails or funnels; "
            "other coordinates help"
        )
    if deepest > 0.05:
        found.append(
            f"{100 * deepest:.0f} % of the trajectories reached the largest depth: they would have gone further; a "
            "larger max_depth or a dense mass helps"
        )
    return found


def _name(row: Mapping[str, Any]) -> str:
    agent, name = row.get("agent"), row.get("label", row["parameter"])
    return name + (f" at agent {agent}" if isinstance(agent, int) and not name.startswith(f"site {agent}: ") else "")
