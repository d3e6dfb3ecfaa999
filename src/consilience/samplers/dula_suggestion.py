"""Step sizes of D-ULA for a problem, a graph and a budget of steps, with the reasons in words.

They are stable, end with agents that agree and a small bias, and spend the budget on moving:

- consensus step constant, 0.9 of the limit of the theorems;
- first step size `α_0 = 1/(2 n L)`, a quarter of what is stable; less where an agent's own potential is not convex
  and its neighbours could not hold it back;
- last step size so small that any agent's disagreement has at most a twentieth of the posterior's smallest variance,
  no parameter's mean is off by more than a tenth of its standard deviation at any agent, and the noise of minibatches
  heats by at most a twentieth, unless the budget then is too short to forget the start; in that case as small as
  leaves 50 relaxation times. The reasons say what remains.
"""

from __future__ import annotations

import math

import numpy as np

from consilience.graphs import Graph
from consilience.samplers.consensus import consensus_reason, default_consensus
from consilience.samplers.landscape import Landscape, shift
from consilience.schedules import FromTo

_EXPONENT = 0.6
EXCESS = 0.05  # of the posterior's smallest variance, for an agent's disagreement
SHIFT = 0.1  # of a standard deviation, for a parameter's mean
HEAT = 0.05  # of the temperature, for minibatches
_BIAS = 0.1  # of the variance, twice
_HALVINGS = 60
_RELAXATIONS = 50
_LEAST_FALL = 0.5
_LARGE_GRAPH = 2000


def suggested_schedules(landscape: Landscape, graph: Graph, num_steps: int) -> tuple[FromTo, float, tuple[str, ...]]:
    """Step size and consensus step, and why they are these."""
    n, pull = graph.num_agents, default_consensus(graph)
    first = 0.5 / (n * landscape.smoothness)
    reasons = [
        consensus_reason(graph, proven=True),
        f"α_0 = {first:.3g}: α_0 n L = 0.5, with n L = {n * landscape.smoothness:.4g} ({landscape.known})",
    ]
    first, words = _held_together(landscape, graph, pull, first)
    reasons += words
    excess, off = _excess(graph, pull), shift(landscape, graph, pull)
    total = landscape.total_smoothness
    wanted = min(
        _BIAS / total,
        EXCESS / (total * excess) if excess else math.inf,
        SHIFT / off if off else math.inf,
        2 * HEAT / landscape.noise if landscape.noise else math.inf,
        _LEAST_FALL * first,
    )
    last, words = _affordable(first, wanted, num_steps, landscape.relaxation)
    reasons += words
    if excess:
        reasons.append(
            f"with α = {last:.3g} at the end, an agent's disagreement has at most {last * excess * total:.1%} of the "
            "posterior's smallest variance"
            + (f", and its means are off by at most {last * off:.2g} standard deviations" if off else "")
        )
    if landscape.noise:
        reasons.append(f"the noise of minibatches then heats by {last * landscape.noise / 2:.1%}")
    return FromTo(start=first, end=last, num_steps=num_steps, exponent=_EXPONENT), pull, tuple(reasons)


def _held_together(landscape: Landscape, graph: Graph, pull: float, first: float) -> tuple[float, list[str]]:
    """A first step size at which agents whose own potentials fall away are held back by their neighbours."""
    hessians = landscape.hessians
    if hessians is None or graph.num_agents == 1 or np.linalg.eigvalsh(hessians).min() >= 0:
        return first, []
    size, n = hessians.shape[1], graph.num_agents
    if n * size > _LARGE_GRAPH:
        return first, ["some agents' own potentials are not convex, and it is not known whether neighbours hold them"]
    whole = np.zeros((n, size, n, size))
    whole[np.arange(n), :, np.arange(n)] = hessians
    mixing, chosen = pull * np.kron(graph.laplacian.toarray(), np.eye(size)), first
    for _ in range(_HALVINGS):
        if np.linalg.eigvalsh(mixing + chosen * n * whole.reshape(n * size, n * size))[0] > 0:
            break
        chosen /= 2
    if chosen == first:
        return first, []
    return chosen, [f"α_0 lowered to {chosen:.3g}: some agents' own potentials are not convex"]


def _affordable(first: float, wanted: float, steps: int, relaxation: float | None) -> tuple[float, list[str]]:
    """The last step size that leaves enough Langevin time, and the reason."""
    if relaxation is None:
        return wanted, [f"α falls to {wanted:.3g}; how long to run is not known"]
    needed, highest = _RELAXATIONS * relaxation, _LEAST_FALL * first
    if _elapsed(first, wanted, steps) >= needed:
        times = _elapsed(first, wanted, steps) / relaxation
        return wanted, [f"α falls to {wanted:.3g}, as low as wanted; the budget holds {times:.0f} relaxation times"]
    if _elapsed(first, highest, steps) < needed:
        times = _elapsed(first, highest, steps) / relaxation
        more = math.ceil(steps * _RELAXATIONS / times)
        return highest, [
            f"α falls only to {highest:.3g}: the budget holds {times:.2g} relaxation times, {_RELAXATIONS} would be "
            f"good; take about {more:,} steps, or read the draws as not yet settled"
        ]
    low, high = math.log(wanted), math.log(highest)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if _elapsed(first, math.exp(middle), steps) >= needed else (middle, high)
    end = math.exp(high)
    return end, [
        f"α falls to {end:.3g}, which leaves {_RELAXATIONS} relaxation times in the budget; {wanted:.3g} would be "
        "better, with more steps"
    ]


def _excess(graph: Graph, pull: float) -> float:
    """What noise adds to the variance of the agent that has it worst, for a step size of 1.

    `n max_i Σ_{j≥2} φ_j(i)²/(β λ_j (1 − β λ_j/2))` over the Laplacian's eigenvectors `φ_j`; for large graphs from
    above, by the slowest and fastest of them.
    """
    if not graph.num_edges:
        return 0.0
    if graph.num_agents > _LARGE_GRAPH:
        slowest, fastest = pull * graph.algebraic_connectivity, pull * graph.largest_eigenvalue
        return graph.num_agents / (slowest * (1 - fastest / 2))
    values, patterns = np.linalg.eigh(graph.laplacian.toarray())
    rates = pull * values[1:]
    return float(graph.num_agents * (patterns[:, 1:] ** 2 @ (1 / (rates * (1 - rates / 2)))).max())


def _elapsed(first: float, last: float, steps: int) -> float:
    """`Σ α_k`, by the integral."""
    offset = FromTo(start=first, end=last, num_steps=steps, exponent=_EXPONENT).offset
    power = 1 - _EXPONENT
    return first * offset**_EXPONENT * ((offset + steps) ** power - offset**power) / power
