"""How a message is mixed with those of the neighbours: one step of `I − β L`, or several exchanges by Chebyshev.

Mixing is a polynomial `Q` of the graph's Laplacian that keeps the average over agents and shrinks disagreement. With
`a = (λ_max + λ_2)/2` and `b = (λ_max − λ_2)/2` the polynomial of degree `K` that shrinks it most is Chebyshev's. In
the form used here,

    x_0 = y,    x_1 = y − L y/a,    x_{k+1} = p_k (x_k − L x_k/a) − (p_k − 1) x_{k−1},
    p_1 = 2/(2 − ρ²),    p_{k+1} = 1/(1 − ρ² p_k/4),    ρ = b/a,

it shrinks every disagreement to at most `θ = 1/cosh(K arccosh(1/ρ))` of itself. `ρ = 0` (a complete graph) is exact
after one exchange; one exchange with a rate of one's own is D-ULA's `I − β L`. Samplers that correct themselves need
eigenvalues of `Q` that are not far below 0; where `θ` is above ½ they mix by `Q⁺ = (Q + θ I)/(1 + θ)`, which has
none.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from consilience.graphs import Graph

MOST_NEGATIVE = 0.5
"""The largest `θ` for which `Q` is taken as it is: its eigenvalues may be as low as `−θ`."""


class Mixing(NamedTuple):
    """A polynomial of the Laplacian, in numbers."""

    rate: Any
    """`1/a`, or `β`: what one exchange takes of the disagreement."""
    squared_ratio: Any = 0.0
    """`ρ²`, which decides the further exchanges."""
    exchanges: Any = 1
    """`K`, an integer; a traced one makes a loop in the compiled program."""
    kept: Any = 0.0
    """`θ/(1 + θ)`, the share of the message itself in `Q⁺ y = Q y + θ/(1 + θ) (y − Q y)`; 0 if the mixing is `Q`."""


def chebyshev(graph: Graph, exchanges: Any) -> Mixing:
    """The mixing by so many exchanges that agrees best on a graph; `Q⁺` where `Q` could be unstable.

    >>> from consilience import graphs
    >>> round(chebyshev(graphs.complete(4), 1).rate, 6), chebyshev(graphs.path(5), 1).kept > 0.4
    (0.25, True)
    """
    if not graph.num_edges:
        return Mixing(0.0, 0.0, exchanges)
    rate, ratio = graph.fastest_consensus, _ratio(graph)
    if isinstance(exchanges, int):
        theta = contraction(graph, exchanges)
        return Mixing(rate, ratio**2, exchanges, theta / (1 + theta) if theta > MOST_NEGATIVE else 0.0)
    import jax.numpy as jnp

    angle = math.acosh(1 / ratio) if ratio else math.inf
    left: Any = 1 / jnp.cosh(exchanges * angle) if ratio else jnp.zeros(())
    return Mixing(rate, ratio**2, exchanges, jnp.where(left > MOST_NEGATIVE, left / (1 + left), 0.0))


def contraction(graph: Graph, exchanges: int) -> float:
    """`θ`: what is left of the disagreement that so many exchanges shrink least.

    >>> from consilience import graphs
    >>> round(contraction(graphs.ring(6), 1), 6), round(contraction(graphs.ring(6), 4), 6)
    (0.6, 0.024688)
    """
    ratio = _ratio(graph)
    return 1 / math.cosh(min(700.0, exchanges * math.acosh(1 / ratio))) if ratio else 0.0


def exchanges_for(graph: Graph, theta: float) -> int:
    """The fewest exchanges that shrink every disagreement to `theta` of itself.

    >>> from consilience import graphs
    >>> exchanges_for(graphs.complete(5), 0.01), exchanges_for(graphs.path(5), 0.1)
    (1, 5)
    """
    ratio = _ratio(graph)
    return max(1, math.ceil(math.acosh(1 / min(theta, 0.9)) / math.acosh(1 / ratio) - 1e-9)) if ratio else 1


def _ratio(graph: Graph) -> float:
    """`ρ = b/a`; 0 where all eigenvalues but that of the average are equal."""
    if not graph.num_edges:
        return 0.0
    low, high = graph.algebraic_connectivity, graph.largest_eigenvalue
    ratio = (high - low) / (high + low)
    return ratio if ratio > 1e-9 else 0.0
