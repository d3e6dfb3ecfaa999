"""How far agents are from each other: over time where each walks a chain of its own, else to the bit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import xarray

from consilience.page.curves import Curve, over_time
from consilience.page.history import Entry, History

_MEASURES = {
    "consensus_error": "The consensus error Σ‖wᵢ − w̄‖²: how far agents are from their average.",
    "distance_to_neighbours": "The squared distance of each agent to its neighbours.",
}


def distances(metrics: Mapping[Path, xarray.Dataset], nodes: Mapping[int, Path]) -> tuple[list[Curve], str]:
    """The measured distance over steps, of all agents together or of each node, and what it is."""
    numbers = {path: agent for agent, path in nodes.items()}
    for name, words in _MEASURES.items():
        found = {path: over_time(one, name) for path, one in metrics.items() if name in one}
        if found:
            return [
                Curve(f"agent {numbers[path]}" if path in numbers else "all agents", points)
                for path, points in found.items()
            ], words
    return [], "Nothing was measured yet."


def same_draws(histories: Sequence[History], entries: Sequence[Entry]) -> str:
    """In unison all agents have the same draws; of several nodes it is looked whether that is so."""
    words = "All agents walk the same chains: only sums over the network are exchanged."
    shared = [one for one in entries if any(line.agent is None for line in histories[0].lines(one))]
    if len(histories) < 2 or not shared or len({one.every for one in histories}) > 1:
        return words
    each = [np.stack([one.lines(entry)[0].values for entry in shared]) for one in histories]
    length = min(one.shape[-1] for one in each)
    if length == 0:
        return words
    is_same = all((one[..., :length] == each[0][..., :length]).all() for one in each)
    found = "are the same to the bit" if is_same else "differ, which must not be"
    return f"{words} The draws at the {len(each)} nodes {found}: the first {length:,} that are looked at."
