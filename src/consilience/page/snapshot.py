"""What the page shows at one moment, as plain values; `reader.py` makes it from a run's directory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from consilience.page.agents import Agent
from consilience.page.curves import Curve, Curves
from consilience.page.measures import Verdict
from consilience.page.tables import Classified, LogLine, WarmUp
from consilience.plans import Plan
from consilience.reports.verdicts import MARKS, beside_mark
from consilience.runs.convergence import ESS_GOAL, RHAT_GOAL

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400


class Progress(NamedTuple):
    """How far a run is."""

    words: str
    share: float
    """Between 0 and 1; of a run that stops when it has converged, the share of the effective draws wanted."""
    rate: str = ""
    left: str = ""


class Network(NamedTuple):
    """The graph, with places to draw it at."""

    name: str
    edges: list[tuple[int, int]]
    places: list[tuple[float, float]]


@dataclass(frozen=True)
class Snapshot:
    """A run or a network at one moment."""

    title: str
    subtitle: str
    state: str
    """`waiting`, `running`, `complete`, `interrupted`, `failed`."""
    verdict: Verdict
    progress: Progress
    network: Network
    agents: Sequence[Agent] = ()
    num_draws: int = 0
    unit: str = "step"
    """What is counted: steps, or in unison moves."""
    rows: Sequence[Mapping[str, Any]] = ()
    """Of parameters: moments, R-hat, effective draws."""
    labels: Sequence[str] = ()
    """Of all numbers that can be looked at."""
    num_parameters: int = 0
    """How many there are."""
    left_out: str = ""
    """What cannot be looked at, in words."""
    curves: Mapping[str, Curves] = field(default_factory=dict)
    agreement: Sequence[Curve] = ()
    agreement_words: str = ""
    warmup: WarmUp | None = None
    messages: Sequence[Mapping[str, Any]] = ()
    messages_words: str = ""
    participation: Sequence[Mapping[str, Any]] = ()
    log: Sequence[LogLine] = ()
    classified: Classified | None = None
    reports: Sequence[tuple[str, Path]] = ()
    """What each is of, and its file."""
    notes: Sequence[str] = ()


class Headline(NamedTuple):
    """What stands on top."""

    mark: str
    words: str
    kind: str
    """That of a verdict."""


def headline(one: Snapshot) -> Headline:
    """The verdict with its mark, as of now until a run is complete; of one that failed, why it did."""
    words, kind = beside_mark(one.verdict.words), one.verdict.kind
    if one.state == "failed":
        return Headline("✕ Failed", " ".join(one.notes) or words, "not")
    now = {"not": "… Not converged yet", "converged": "✓ Converged so far"}
    return Headline(MARKS[kind] if one.state == "complete" else now.get(kind, MARKS[kind]), words, kind)


def progress_of(
    plan: Plan,
    step: int,
    draws: int,
    rate: float | None,
    rows: Sequence[Mapping[str, Any]],
    is_done: bool,
    waits: bool = False,
) -> Progress:
    """How far a run is, how fast, and how long it will take, where that can be known.

    Args:
        plan: what it follows.
        step: how many steps (moves, rounds) are made.
        draws: how many draws of a chain are stored.
        rate: steps a second.
        rows: of parameters, for a run that stops when it has converged.
        is_done: whether nothing more comes.
        waits: whether nobody samples, until somebody who is not there comes back.
    """
    unit = "moves" if plan.is_unison else "steps"
    most = "" if plan.is_unison else "at most "
    rated = f"{rate:,.0f} {unit}/s" if rate and rate >= 10 else f"{rate:.2g} {unit}/s" if rate else ""
    if is_done:
        return Progress(f"All {draws:,} draws of a chain are there", 1.0, rated)
    if waits:
        there = progress_of(plan, step, draws, None, rows, is_done)
        return there._replace(words=f"{there.words}, everybody waits")
    left = (plan.num_steps - step) / rate if rate else None
    if not plan.sampler.tunes_itself:
        words = f"step {step:,} of {plan.num_steps:,}"
        return Progress(words, step / plan.num_steps, rated, "" if left is None else f"{duration(left)} left")
    if step < plan.burn_in:
        ahead = f"{most}{duration((plan.burn_in - step) / rate)} of the warm-up left" if rate else ""
        return Progress(f"warming up, {unit[:-1]} {step:,} of {plan.burn_in:,}", step / plan.burn_in, rated, ahead)
    if not plan.stops_itself:
        words = f"{draws:,} of {plan.num_draws or 0:,} draws of a chain"
        return Progress(words, draws / (plan.num_draws or 1), rated, "" if left is None else f"{duration(left)} left")
    known = [row for row in rows if row["rhat"] is not None and row["ess"] is not None]
    mixed = bool(known) and max(row["rhat"] for row in known) <= RHAT_GOAL
    reached = min((row["ess"] for row in known), default=0.0)
    share = min(reached, ESS_GOAL if mixed else 0.95 * ESS_GOAL) / ESS_GOAL
    words = f"{draws:,} draws of a chain, until converged"
    return Progress(words, share, rated, "" if left is None else f"at most {duration(left)} left")


def duration(seconds: float) -> str:
    """Seconds in words.

    >>> [duration(one) for one in (0.4, 75, 3700, 200_000)]
    ['1 s', '1 min 15 s', '1 h 01 min', '2 d 7 h']
    """
    whole = max(1, round(seconds))
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE:02d} s"
    if whole < _DAY:
        return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE:02d} min"
    return f"{whole // _DAY:,} d {whole % _DAY // _HOUR} h"


def network_of(plan: Plan) -> Network:
    """The graph of a plan, laid out in a square from −1 to 1."""
    import networkx

    graph = plan.graph
    drawn = networkx.Graph()
    drawn.add_nodes_from(range(graph.num_agents))
    drawn.add_edges_from(graph.edges.tolist())
    ring_like = graph.name in ("ring", "complete", "watts_strogatz", "erdos_renyi") or graph.num_agents > 100
    found = networkx.circular_layout(drawn) if ring_like else networkx.kamada_kawai_layout(drawn)
    places = np.array([found[i] for i in range(graph.num_agents)], float).reshape(-1, 2)
    if ring_like:
        places = places[:, ::-1] * [-1, 1]  # the first agent is on top
    elif len(places) > 2:  # the long way lies across
        places = places - places.mean(0)
        places = places @ np.linalg.svd(places, full_matrices=False)[2].T
    places = places - (places.max(0) + places.min(0)) / 2
    shown = (places / max(np.abs(places).max(), 1e-9)).round(4).tolist()
    edges = [(int(i), int(j)) for i, j in graph.edges.tolist()]
    return Network(graph.name.replace("_", " "), edges, [(x, y) for x, y in shown])
