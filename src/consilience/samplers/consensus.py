"""The consensus step `I − β L`, which several samplers take: when it is stable, and which one to choose."""

from __future__ import annotations

from consilience.graphs import Graph
from consilience.samplers.base import Finding

MARGIN = 0.9
"""Of the theorems' limit `1/λ_max`, what is chosen where nobody says otherwise."""


def default_consensus(graph: Graph) -> float:
    """A consensus step that is stable and inside the theorems."""
    return MARGIN * graph.proven_consensus_limit if graph.num_edges else 1.0


def consensus_reason(graph: Graph, proven: bool = False) -> str:
    """Why it is that one, in words; `proven` if theorems speak about the sampler."""
    if not graph.num_edges:
        return "a single agent needs no consensus step"
    inside = " and inside the theorems" if proven else ""
    return f"β = {default_consensus(graph):.3g}: {MARGIN} of 1/λ_max, stable{inside}"


def consensus_strength(graph: Graph, first: float) -> float:
    """`β_0 λ_max`, by which the first step moves the pattern of disagreement that it moves most."""
    return first * graph.largest_eigenvalue if graph.num_edges else 0.0


def consensus_finding(graph: Graph, first: float, proven: bool = False) -> Finding:
    """Whether consensus steps that begin with `first` are stable on a graph.

    With `proven`, also whether they are inside the theorems; D-ULA alone has some.
    """
    if not graph.num_edges:
        return Finding("ok", "consensus step", "a single agent needs no consensus")
    stable = graph.stable_consensus_limit
    shown = f"β_0 = {first:.4g}, β_0 λ_max = {consensus_strength(graph, first):.4g}"
    if first >= stable:
        return Finding(
            "error",
            "consensus step",
            f"the consensus step is unstable on this graph ({shown}, must stay below 2)",
            f"start the consensus step below {stable:.4g}; {graph.fastest_consensus:.4g} agrees fastest",
        )
    if not proven:
        return Finding("ok", "consensus step", f"stable ({shown})")
    limit = graph.proven_consensus_limit
    if first >= limit:
        return Finding(
            "warning",
            "consensus step",
            f"the consensus step is stable but outside the theorems ({shown}, they ask for less than 1)",
            f"start it below {limit:.4g} to be inside",
        )
    return Finding("ok", "consensus step", f"stable and inside the theorems ({shown})")
