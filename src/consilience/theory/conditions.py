"""What the theorems ask of a network and its schedules, checked once.

Condition 1 (equation S6): `α_k = a/(k+1)^δ_2` and `β_k = b/(k+1)^δ_1` with `0 ≤ δ_1`, `1/2 + δ_1 < δ_2 < 1`, on a
connected undirected graph with `b σ_max(L) < 1`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from consilience.errors import ConditionError
from consilience.graphs import Graph
from consilience.schedules import broken_conditions


@dataclass(frozen=True)
class Setting:
    """A network and schedules inside Condition 1; make one with `Setting.of`.

    Attributes:
        num_agents: `n`.
        dimension: `d_w`, the number of parameters.
        connectivity: `λ_2(L)`, 0 for a single agent.
        step_scale: `a = α_0`.
        step_exponent: `δ_2`.
        consensus_scale: `b = β_0`.
        consensus_exponent: `δ_1`.
    """

    num_agents: int
    dimension: int
    connectivity: float
    step_scale: float
    step_exponent: float
    consensus_scale: float
    consensus_exponent: float

    @classmethod
    def of(cls, graph: Graph, sampler: Any, dimension: int) -> Setting:
        """The setting of a graph and a `DULA`; an error that names every condition that does not hold."""
        broken = unmet_conditions(graph, sampler)
        if broken:
            raise ConditionError(
                f"the theorems do not speak about this plan: {'; '.join(broken)}. The recursion behind them does "
                "(consilience.theory.consensus_recursion), or take the plan that `consilience suggest` calls proven"
            )
        return cls(
            graph.num_agents,
            dimension,
            graph.algebraic_connectivity,
            float(sampler.step_size(0)),
            float(sampler.step_size.exponent),
            float(sampler.consensus(0)),
            float(sampler.consensus.exponent),
        )

    @property
    def rate(self) -> float:
        """`δ_2 − 2δ_1`, the power of `k + 1` with which both theorems' bounds fall."""
        return self.step_exponent - 2 * self.consensus_exponent

    @property
    def contraction(self) -> float:
        """`b λ_2(L)`, by which the first step shrinks disagreement at least."""
        return self.consensus_scale * self.connectivity


def unmet_conditions(graph: Graph, sampler: Any) -> list[str]:
    """Which conditions of the theorems a graph and a `DULA` do not meet, in words; empty if all hold.

    >>> from consilience import Polynomial, dula, graphs
    >>> unmet_conditions(graphs.ring(5), dula(Polynomial(scale=1e-3, exponent=0.6), 0.4))
    ['b σ_max(L) < 1 does not hold: b = 0.4, σ_max(L) = 3.618']
    """
    unmet = broken_conditions(sampler.step_size, sampler.consensus)
    for name, schedule in (("α_k = a/(k+1)^δ_2", sampler.step_size), ("β_k = b/(k+1)^δ_1", sampler.consensus)):
        offset = getattr(schedule, "offset", 1.0)
        if schedule.exponent and offset != 1:
            unmet.append(f"{name} does not hold: the offset is {offset:.4g} instead of 1")
    b = float(sampler.consensus(0))
    if graph.num_edges and b >= graph.proven_consensus_limit:
        unmet.append(f"b σ_max(L) < 1 does not hold: b = {b:.4g}, σ_max(L) = {graph.largest_eigenvalue:.4g}")
    if sampler.temperature != 1:
        unmet.append(f"the noise has variance n times the temperature {sampler.temperature:g} instead of n")
    return unmet
